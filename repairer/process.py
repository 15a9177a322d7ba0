"""The repairer as a process."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

from pgm.archive.recording.node_recording import recording
from pgm.core.segment import Segment
from pgm.net.core_factory import element_setup
from pgm.net.element_process import Log, run_element
from pgm.telemetry.snapshot import Snapshot
from pgm.topology.node_plan import NodePlan
from repairer.core import RepairerCore


def build(
    plan: NodePlan, segments: Sequence[Segment], rng: random.Random | None = None, *, records: bool = False
) -> RepairerCore:
    """Return the core for a plan. Without `rng`, the random seed differs at each start."""
    generator = rng or random.Random(random.SystemRandom().random())
    return RepairerCore(element_setup(plan, segments), plan.parameters, generator, records=records)


async def run(plan: NodePlan, log: Log, seed: str | None = None) -> Snapshot:
    """Run until a signal, and return the last snapshot.

    Raise `TransportError`, `ProcessError`, `ArchiveError` or `UsageError`.
    """
    if plan.record_directory is None:
        return await run_element(plan, build, log, seed)
    return await _run_recording(plan, Path(plan.record_directory), log, seed)


async def _run_recording(plan: NodePlan, directory: Path, log: Log, seed: str | None) -> Snapshot:
    core: RepairerCore | None = None

    def build_recorded(plan: NodePlan, segments: Sequence[Segment]) -> RepairerCore:
        nonlocal core
        core = build(plan, segments, records=True)
        recorder.counters = core.counters
        return core

    with recording(plan, directory, lambda tsi: None if core is None else core.sessions.state_of(tsi), log) as recorder:
        snapshot = await run_element(plan, build_recorded, log, seed, recorder.take)
    assert core is not None
    return snapshot | {"counters": core.counters.snapshot()}  # includes the counters of packets recorded at the end
