"""Entries of the queue, continued from the positions of an earlier life.

Every loss of a durable receiver passes through this module. Rows of an archive take the place of a loss. A loss remains
where the archive has no rows. The live stream waits in the queue meanwhile. An overflow of the queue is one more loss to
fill. So the stream goes on from the archive, and joins the live stream when the archive is faster.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator

import attrs

from pgm.core.effects import CloseCause, Closed, Conflict, Forged, LossCause, Lost, NoSnapshot, Opened, Snapshot
from pgm.core.receiver.receiver import ReceiverCore
from pgm.core.window.reassembly import LargeMessage, WholeMessages
from pgm.net.durable.memory import Memory
from pgm.net.durable.past import Past, PastMessages, PastRange, PastRead
from pgm.net.durable.position import Position
from pgm.net.durable.position_file import SavedSession
from pgm.net.endpoint.inbox import Inbox
from pgm.net.endpoint.places import Places
from pgm.net.endpoint.queue_item import QueueItem
from pgm.net.framing.items import StreamMark
from pgm.wire.formats import Tsi


@attrs.define(eq=False)
class _Fill:
    """Read of an archive in place of a loss."""

    reads: PastRead


@attrs.define(eq=False)
class _Rest:
    """Rest of an earlier session, which may have ended."""

    saved: SavedSession
    tsi: Tsi
    data_port: int
    is_replaced: bool  # a later session of its source has begun
    until_ns: int = 0  # the session may still be heard until then
    reads: PastRead | None = None
    has_opened: bool = False


class Continuation:
    """Queue of a receiver that continues earlier sessions. It takes the place of the inbox for its endpoint."""

    def __init__(
        self, inbox: Inbox, core: ReceiverCore, memory: Memory, places: Places, past: Past | None, gone_ivl: int
    ) -> None:
        """Continue what `memory` has. A session without its source counts as ended after `gone_ivl` ns."""
        self._inbox = inbox
        self._core = core
        self._memory = memory
        self._places = places
        self._past = past
        self._gone_ivl = gone_ivl
        self._next: dict[Tsi, int] = {}  # by session: the sqn behind everything handed on
        self._work: deque[QueueItem | _Fill | _Rest] = deque()
        self._final: deque[QueueItem] = deque()  # before the work: entries that no archive changes any more
        self._freed = 0  # octets of entries that were dropped
        for saved in memory.sessions:
            if not saved.is_done and (past is not None or saved.is_closed):
                self._work.append(self._rest_of(saved, 0, is_replaced=False))

    @property
    def is_waiting(self) -> bool:
        """Return whether entries wait for an archive, or for a session to be heard."""
        return bool(self._work)

    def close(self) -> None:
        """Give up all reads."""
        for entry in self._work:
            if not isinstance(entry, QueueItem) and entry.reads is not None:
                entry.reads.close()

    def free(self) -> int:
        """Return the octets of entries that were dropped since the last call."""
        freed, self._freed = self._freed, 0
        return freed

    def pop(self, *, drains: bool) -> QueueItem | None:
        """Return the next entry; None if none is ready."""
        while True:
            if self._final:
                return self._hand_on(self._final.popleft())
            if not self._work:
                queued = self._inbox.pop(drains=drains)
                if queued is None:
                    return None
                self._work.extend(self._arrive(queued))
            entry = self._work[0]
            if isinstance(entry, QueueItem):
                self._work.popleft()
                self._cut(entry)
            elif not (self._fill(entry) if isinstance(entry, _Fill) else self._finish(entry)):
                return None

    def _hand_on(self, entry: QueueItem) -> QueueItem:
        found = entry.found
        if isinstance(found, (Opened, Conflict, Forged, Snapshot, NoSnapshot)) or found.tsi not in self._next:
            return entry
        if isinstance(found, PastMessages):
            self._core.counters.archive_sqns += found.count
        if not isinstance(found, Closed):
            self._next[found.tsi] = max(self._next[found.tsi], _span_of(found)[1])
        elif found.cause is not CloseCause.SILENT:
            data_port, epoch_ns, shift = self._places.identity(found.tsi)
            end = self._next.pop(found.tsi) + shift
            self._memory.put_back(SavedSession(Position(bytes(found.tsi), epoch_ns, end), data_port, end - 1, True))
        return entry

    def _arrive(self, queued: QueueItem) -> Iterator[QueueItem | _Rest]:
        """Yield what an entry of the inbox means for this receiver."""
        found = queued.found
        if not isinstance(found, Opened) or found.resumed:
            yield queued
            return
        state = self._core.sessions.state_of(found.tsi)
        position = None if state is None else self._memory.take(state)
        for saved in self._memory.replaced_by(found.tsi):
            yield self._rest_of(saved, found.data_port, is_replaced=True)
        self._memory.note(found.tsi)
        first = found.first
        if position is not None and state is not None:
            done = self._next.get(found.tsi, position.sqn)  # its rest may have begun to come from an archive
            first = position.local_sqn(state) + max(0, done - position.sqn)
            position = position if done <= position.sqn else attrs.evolve(position, sqn=done, index=0)
        self._places.open(found.tsi, found.data_port, position)
        self._next[found.tsi] = first
        yield QueueItem(attrs.evolve(found, first=first), 0)
        if first < found.first:
            yield QueueItem(Lost(found.tsi, first, found.first - first, LossCause.WINDOW), 0)

    def _cut(self, entry: QueueItem) -> None:
        """Take an entry without what was handed on before. A loss is filled first."""
        found = entry.found
        if isinstance(found, (StreamMark, NoSnapshot)) or found.tsi not in self._next:
            self._final.append(entry)
            return
        expected = self._next[found.tsi]
        first, end = _span_of(found)
        if end <= expected:
            self._freed += entry.frees_octets
        elif isinstance(found, Lost):
            first = max(first, expected)
            lost = attrs.evolve(found, first=first, count=end - first)
            if self._past is None:
                self._final.append(QueueItem(lost, 0))
            else:
                data_port, epoch_ns, shift = self._places.identity(lost.tsi)
                wanted = PastRange(lost.tsi, epoch_ns, data_port, shift, first, end, lost.cause)
                self._work.appendleft(_Fill(self._past.read(wanted)))
        elif isinstance(found, WholeMessages) and first < expected:
            part = WholeMessages(found.tsi, found.run.part(expected, end))
            self._final.append(QueueItem(part, entry.frees_octets))
        else:
            self._final.append(entry)

    def _fill(self, fill: _Fill) -> bool:
        """Go on with a loss. Return False if it must wait."""
        taken = fill.reads.take()
        if taken is not None:
            self._final.append(QueueItem(taken, 0))
        elif fill.reads.is_over:
            self._work.popleft()
        else:
            return False
        return True

    def _rest_of(self, saved: SavedSession, data_port: int, *, is_replaced: bool) -> _Rest:
        data_port = saved.data_port or data_port
        return _Rest(saved, self._core.setup.names.named(saved.position.tsi, data_port), data_port, is_replaced)

    def _begin(self, rest: _Rest) -> None:
        """Begin the wait for a session, and the read of its rest."""
        rest.until_ns = time.monotonic_ns() + self._gone_ivl
        if self._past is not None:
            position = rest.saved.position
            needs_end = not rest.is_replaced
            wanted = PastRange(rest.tsi, position.epoch_ns, rest.data_port, 0, position.sqn, needs_end=needs_end)
            rest.reads = self._past.read(wanted)

    def _finish(self, rest: _Rest) -> bool:
        """Go on with the rest of a session. Return False if it must wait."""
        state = self._core.sessions.state_of(rest.tsi)
        if state is not None and rest.saved.position.is_of(state):  # it is heard, and goes on by itself
            self._drop(rest)
            return True
        if not rest.until_ns:
            self._begin(rest)
        reads = rest.reads
        if reads is not None and not rest.has_opened and reads.is_begun:
            self._open(rest)
            return True
        taken = None if reads is None else reads.take()
        if taken is not None:
            self._final.append(QueueItem(taken, 0))
            return True
        if reads is not None and not reads.is_over:
            return False
        is_closed = reads is not None and reads.is_closed
        if not is_closed and (rest.is_replaced or rest.saved.is_closed) and time.monotonic_ns() < rest.until_ns:
            return False
        if is_closed or rest.is_replaced or rest.saved.is_closed:
            self._conclude(rest, is_closed=is_closed or rest.saved.is_closed)
        self._drop(rest)
        return True

    def _drop(self, rest: _Rest) -> None:
        self._work.popleft()
        if rest.reads is not None:
            rest.reads.close()

    def _open(self, rest: _Rest) -> None:
        first = rest.saved.position.sqn
        rest.has_opened = True
        self._places.open(rest.tsi, rest.data_port, rest.saved.position)
        self._next[rest.tsi] = first
        self._final.append(QueueItem(Opened(rest.tsi, first, "", rest.data_port), 0))

    def _conclude(self, rest: _Rest, *, is_closed: bool) -> None:
        """End a session: what was sent and is nowhere held is lost."""
        if not rest.has_opened:
            self._open(rest)
        first, lead = self._next[rest.tsi], rest.saved.lead
        if rest.reads is not None:
            first = max(first, rest.reads.next_sqn)
        if first <= lead:
            self._final.append(QueueItem(Lost(rest.tsi, first, lead + 1 - first, LossCause.SOURCE_GONE), 0))
        cause = CloseCause.FIN if is_closed else CloseCause.EXPIRED
        self._final.append(QueueItem(Closed(rest.tsi, max(first, lead + 1), cause), 0))


def _span_of(found: WholeMessages | LargeMessage | PastMessages | Lost) -> tuple[int, int]:
    """Return the first sqn of an entry, and the sqn behind it."""
    if isinstance(found, WholeMessages):
        return found.run.first, found.run.end
    return found.first, found.first + found.count
