"""Receivers that continue where their application stopped: with `durable=`, or with positions in `start=`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import attrs

from pgm.core.receiver.receiver import ReceiverCore
from pgm.errors import UsageError
from pgm.net.core_factory import stream_of, unordered_ports
from pgm.net.durable.archives import ArchivePast
from pgm.net.durable.memory import Memory
from pgm.net.durable.past import Past
from pgm.net.durable.position_file import MOST_SESSIONS, PositionFile, SavedSession, file_of
from pgm.net.durable.saver import PositionSaver
from pgm.net.endpoint.ack_positions import AckPositions
from pgm.net.endpoint.continuation import Continuation
from pgm.net.endpoint.inbox import Inbox
from pgm.net.endpoint.places import Places
from pgm.net.endpoint.policies import Policies
from pgm.net.endpoint.start_position import Start, positions_of
from pgm.topology.node_plan import NodePlan


@attrs.frozen(eq=False)
class EarlierLife:
    """Past of a receiver: the memory, the archives, and the file of the memory."""

    memory: Memory
    past: Past | None = None
    file: PositionFile | None = None


@contextmanager
def earlier_life(
    durable: str | Path | None,
    start: Start,
    archive: str | Sequence[str] | None,
    policies: Policies,
    plan: NodePlan,
    stream: str | None,
) -> Iterator[EarlierLife | None]:
    """Open the positions of a durable receiver, or take those of `start`; None for another receiver.

    Raises `UsageError` for what such a receiver cannot do, and `ProcessError` if another process has the file.
    """
    given = positions_of(start)
    if durable is None and given is None:
        if archive is not None:
            raise UsageError("archive= is for durable receivers", remedy="give durable=, or positions in start=")
        yield None
        return
    if plan.parameters.join_from == "snapshot":
        raise UsageError(
            'start="snapshot" begins without a memory, and durable= is one',
            remedy='leave out durable=, or start="snapshot"',
        )
    _require_all_messages(policies, plan, stream)
    past = _past_of(archive, plan)
    if durable is None:
        yield EarlierLife(Memory(SavedSession(one, 0, one.sqn - 1, one.is_end) for one in given or ()), past)
        return
    if given is not None:
        raise UsageError(
            "durable= and positions in start= are two memories",
            remedy="leave out durable=, if the application stores its positions",
        )
    file = PositionFile(file_of(durable))
    try:
        yield EarlierLife(Memory(file.sessions), past, file)
    finally:
        file.close()


def _past_of(archive: str | Sequence[str] | None, plan: NodePlan) -> Past | None:
    """Return the archives at some addresses, by default those of the topology; None without any."""
    locations = plan.archives if archive is None else (archive,) if isinstance(archive, str) else tuple(archive)
    if not locations:
        return None
    sealed = [stream.name for stream in plan.streams if stream.readers is not None]
    if sealed and archive is None:
        return None  # rows of a sealed stream are not decrypted: what no repairer holds is lost
    if sealed:
        raise UsageError(
            f"the stream {sealed[0]} is sealed, and rows of archives are not decrypted",
            remedy="leave out archive=, or name another stream",
        )
    ports = frozenset(stream.data_port for stream in plan.streams if stream.framing == "batch")
    return ArchivePast(locations, ports, plan.parameters)


def _require_all_messages(policies: Policies, plan: NodePlan, stream: str | None) -> None:
    """Raise `UsageError` for a receiver that skips messages, or takes them out of order."""
    if policies.on_loss == "resync" or policies.slow != "block":
        raise UsageError(
            f"a receiver that continues at a position takes every message, but on_loss={policies.on_loss!r} "
            f"and slow={policies.slow!r} skip some",
            remedy='use slow="block", and on_loss="report" or "raise"',
        )
    streams = plan.streams if stream is None else (stream_of(plan, stream),)
    if unordered_ports(streams):
        raise UsageError(
            "a position needs an ordered stream", remedy='write order = "ordered" at the stream, or name another stream'
        )


class Resumption:
    """Continuation of one receiver: its queue, its places, and the thread that saves them."""

    def __init__(self, life: EarlierLife, core: ReceiverCore, inbox: Inbox, positions: AckPositions) -> None:
        """Begin to continue. Without a file the application stores its positions itself."""
        parameters = core.parameters
        self._memory = life.memory
        self.inbox = inbox
        self.places = Places(positions, core.sessions.state_of, max(parameters.max_sessions, MOST_SESSIONS) + 1)
        self.entries = Continuation(inbox, core, life.memory, self.places, life.past, parameters.durable_gone_ivl)
        self.poll_ivl = parameters.archive_poll_ivl
        self._saver = (
            None if life.file is None else PositionSaver(life.file, self._snapshot, parameters.durable_sync_ivl)
        )

    def _snapshot(self) -> Sequence[SavedSession]:
        return self._memory.with_current(self.places.saved())

    def note(self) -> None:
        """Note that the application has moved. Raises the `ProcessError` of a write that failed."""
        if self._saver is not None:
            self._saver.note()

    def close(self) -> None:
        """End the reads of archives, and write the last positions. Raises `ProcessError`."""
        self.entries.close()
        if self._saver is not None:
            self._saver.close()


@contextmanager
def resuming(
    life: EarlierLife | None, core: ReceiverCore, inbox: Inbox, positions: AckPositions
) -> Iterator[Inbox | Resumption]:
    """Yield the queue of a receiver for the length of a block: its inbox, or the continuation of an earlier life."""
    if life is None:
        yield inbox
        return
    resumption = Resumption(life, core, inbox, positions)
    try:
        yield resumption
    finally:
        resumption.close()
