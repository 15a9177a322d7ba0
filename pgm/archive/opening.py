"""Recording for a node of a topology: from its plan to a recorder that runs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from pgm.archive.errors import ArchiveError
from pgm.archive.recorder import Names, Recorder
from pgm.archive.recovery import Log
from pgm.archive.writer import ArchiveWriter
from pgm.core import path
from pgm.topology.node_plan import NodePlan
from pgm.wire.formats import Tsi

# The recorder's thread hands the interpreter back this soon when the protocol wants it; the default, 5 ms, is half the
# shortest default back-off of a NAK.
_SWITCH_S = 0.0005


def names_of(plan: NodePlan) -> Names:
    """How the rows of a node name what it records."""
    return Names(
        node=plan.name,
        segment=plan.upstream.name,
        streams={stream.data_port: stream.name for stream in plan.streams},
        batched=frozenset(stream.data_port for stream in plan.streams if stream.framing == "batch"),
        sources={stream.data_port: stream.source for stream in plan.streams if stream.source is not None},
    )


@contextmanager
def recording(
    plan: NodePlan, directory: Path, path_of: Callable[[Tsi], path.Path | None], log: Log
) -> Iterator[Recorder]:
    """A recorder for the length of a block; behind it, everything that came is on disk. Raises `ArchiveError`."""
    writer = ArchiveWriter(directory, plan.parameters, log)
    recorder = Recorder(writer, plan.parameters, names_of(plan), path_of, log)
    before = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH_S)
    recorder.start()
    try:
        yield recorder
    finally:
        recorder.close()
        sys.setswitchinterval(before)
    if recorder.failure is not None:
        raise ArchiveError(
            f"recording into {directory} ended early: {recorder.failure}",
            remedy="look at the log; what came since is not recorded",
        ) from recorder.failure
