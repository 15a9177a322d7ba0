"""The repairer as a process."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import attrs

from pgm.archive.recording.node_recording import recording
from pgm.archive.recording.recorder import Recorder
from pgm.archive.service.node_service import serving
from pgm.core.effects import Effect, Save
from pgm.core.segment import Segment
from pgm.core.session.signed_streams import NO_SIGNERS, StreamSigners
from pgm.core.session.start_positions import BY_PARAMETERS, StartPositions
from pgm.core.session.state import SessionState
from pgm.core.structures.arena import PROCESS_MEMORY
from pgm.net.cache_file import CacheFile
from pgm.net.control.operated_process import Log
from pgm.net.core_factory import element_setup, own_parameters
from pgm.net.durable.archive_memory import ArchiveMemory
from pgm.net.element_process import run_element
from pgm.net.keys.control_keys import with_codes
from pgm.net.keys.stream_signatures import signers_of
from pgm.telemetry.snapshot import Snapshot
from pgm.topology.node_plan import NodePlan
from pgm.units import MIB, SECOND
from pgm.wire.formats import Tsi
from repairer.core import RepairerCore

# systemd sets the variable for a unit with RuntimeDirectory=. That folder is in memory, and may outlive the process.
DIRECTORY_VARIABLE = "RUNTIME_DIRECTORY"


def build(
    plan: NodePlan,
    segments: Sequence[Segment],
    rng: random.Random | None = None,
    signers: StreamSigners = NO_SIGNERS,
    *,
    starts: StartPositions = BY_PARAMETERS,
    records: bool = False,
    saves: bool = False,
) -> RepairerCore:
    """Return the core for a plan. Without `rng`, the random seed differs at each start."""
    generator = rng or random.Random(random.SystemRandom().random())
    setup = attrs.evolve(element_setup(plan, segments, signers), starts=starts)
    return RepairerCore(setup, own_parameters(plan), generator, records=records, saves=saves)


def cache_path(plan: NodePlan) -> Path | None:
    """Return the path of the node's cache file: in the folder of the plan, or in that of its systemd unit, or None."""
    folder = plan.cache_directory
    if folder is None:
        folder = os.environ.get(DIRECTORY_VARIABLE, "").partition(":")[0]
    return Path(folder) / f"{plan.topology}.{plan.name}.cache".replace("/", "_") if folder else None


class _Repairer:
    """A repairer's core, once it is built, between its cache file and its recorder."""

    def __init__(self, plan: NodePlan, log: Log) -> None:
        """Open and check the cache file, if there is one. Raises `ProcessError`."""
        path = cache_path(plan)
        self.file = None if path is None else CacheFile(path, plan.parameters.cache_bytes, log)
        self.recorder: Recorder | None = None
        self._memory: ArchiveMemory | None = None
        self.core: RepairerCore | None = None
        self._saved: list[tuple[int, Save]] = []
        if self.file is not None:
            began_ns = time.monotonic_ns()
            self._saved += self.file.saved(began_ns - plan.parameters.cache_secs, began_ns)
            octets = sum(save.run.octets for _, save in self._saved)
            took_s = (time.monotonic_ns() - began_ns) / SECOND
            log("cache-file", f"{path}: {octets / MIB:.1f} MiB of an earlier process, checked in {took_s:.3f} s")

    def state_of(self, tsi: Tsi) -> SessionState | None:
        """Return the state of a session; None if it is unknown."""
        return None if self.core is None else self.core.sessions.state_of(tsi)

    def build(self, plan: NodePlan, segments: Sequence[Segment]) -> RepairerCore:
        """Return the core, with what an earlier process saved."""
        starts: StartPositions = BY_PARAMETERS
        if self.recorder is not None:
            starts = self._memory = ArchiveMemory(self.recorder)
        signers, records, saves = (
            with_codes(signers_of(plan.streams), plan, plan.streams),
            self.recorder is not None,
            self.file is not None,
        )
        core = self.core = build(plan, segments, signers=signers, starts=starts, records=records, saves=saves)
        if self.recorder is not None:
            self.recorder.counters = core.counters
        if self.file is not None:
            core.counters.cache_records_refused += self.file.counters.cache_records_refused
            self.file.counters = core.counters
            core.restore(self._saved)
            self._saved = []  # the cache alone decides how long its packets stay
        return core

    def take(self, effect: Effect) -> None:
        """Save or record a packet."""
        if not isinstance(effect, Save):
            if self._memory is not None:
                self._memory.take(effect)
        elif self.file is not None:
            self.file.save(effect, time.monotonic_ns())


async def run(plan: NodePlan, log: Log, seed: str | None = None) -> Snapshot:
    """Run until a signal, and return the last snapshot.

    Raise `TransportError`, `ProcessError`, `ArchiveError` or `UsageError`.
    """
    repairer = _Repairer(plan, log)
    with ExitStack() as stack:
        if plan.record_directory is not None:
            directory = Path(plan.record_directory)
            repairer.recorder = stack.enter_context(recording(plan, directory, repairer.state_of, log))
            stack.enter_context(serving(plan, directory, log))
        memory = PROCESS_MEMORY if repairer.file is None else repairer.file
        snapshot = await run_element(plan, repairer.build, log, seed, repairer.take, memory)
    assert repairer.core is not None
    return snapshot | {"counters": repairer.core.counters.snapshot()}  # with packets recorded at the end
