"""Recording for a node of a topology: from the node's plan to a running recorder."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from pgm.archive.errors import ArchiveError
from pgm.archive.recording.feeds import RowNames
from pgm.archive.recording.recorder import Log, Recorder
from pgm.archive.store.key_lines import keep_keys
from pgm.core.session import state as path
from pgm.errors import UsageError
from pgm.topology.node_plan import NodePlan
from pgm.wire.formats import Tsi


def names_of(plan: NodePlan) -> RowNames:
    """Return the names that a node's rows carry."""
    sealed = frozenset(stream.data_port for stream in plan.streams if stream.readers is not None)
    opened = frozenset(stream.data_port for stream in plan.streams if plan.reads(stream)) & sealed
    batched = frozenset(stream.data_port for stream in plan.streams if stream.framing == "batch")
    return RowNames(
        node=plan.name,
        segment=plan.upstream.name,
        streams={stream.data_port: stream.name for stream in plan.streams},
        batched=batched - (sealed - opened),  # rows of others are encrypted packets
        signed=frozenset(stream.data_port for stream in plan.streams if stream.is_proved),
        sealed=sealed,
        opened=opened,
    )


@contextmanager
def recording(
    plan: NodePlan,
    directory: Path,
    path_of: Callable[[Tsi], path.SessionState | None],
    log: Log,
) -> Iterator[Recorder]:
    """Run a recorder for a block, at whose end all deliveries are on disk. Raises `ArchiveError`, `UsageError`."""
    # only the writer process imports pyarrow, so this process merely checks that it exists
    if find_spec("pyarrow") is None:
        raise UsageError(
            f"node {plan.name} records, which needs pyarrow", remedy="pip install 'pgm-repair-network[arrow]'"
        )
    others = tuple(one for one in plan.archives if one != plan.record_service)
    recorder = Recorder(directory, plan.parameters, names_of(plan), path_of, log, others)
    recorder.start()
    keep_keys(directory, {stream.name: stream.signers or () for stream in plan.streams})
    try:
        yield recorder
    finally:
        recorder.close()
    if recorder.failure is not None:
        raise ArchiveError(
            f"recording into {directory} ended early: {recorder.failure.message}",
            remedy="look at the log; later deliveries are not recorded",
        ) from recorder.failure
