"""Places of an application in its streams, to the single message: for `Receiver.position`, and for durable receivers."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator

import attrs
import numpy as np

from pgm.core.effects import CloseCause, Closed, Conflict, Forged, Opened
from pgm.core.session.state import NO_EPOCH, SessionState
from pgm.net.durable.position import Position
from pgm.net.durable.position_file import SavedSession
from pgm.net.endpoint.ack_positions import AckPositions
from pgm.net.framing.items import BatchItem, Message, MultipartBatch, first_sqn_of
from pgm.net.framing.packed_batch import PackedBatch
from pgm.wire.formats import Tsi

_Framed = PackedBatch | MultipartBatch


@attrs.define(eq=False)
class _Session:
    """Session of a place: the parts of a position besides the sqn."""

    data_port: int
    epoch_ns: int
    shift: int
    lead: int
    is_closed: bool = False
    skips: tuple[int, int] = (-1, 0)  # sqn, and messages of its packet that were taken in an earlier life
    tail: tuple[int, int] = (-1, 0)  # sqn of the newest message, and messages of its packet so far


class Places:
    """Places in at most `most` sessions of one receiver, which is more than its core has at a time."""

    def __init__(self, positions: AckPositions, state_of: Callable[[Tsi], SessionState | None], most: int) -> None:
        self._positions = positions
        self._state_of = state_of
        self._most = most
        self._sessions: OrderedDict[Tsi, _Session] = OrderedDict()
        self._given: BatchItem | Message | None = None
        self._finished: Position | None = None

    def open(self, tsi: Tsi, data_port: int, start: Position | None) -> None:
        """Note a session that opens, at a position if there is one."""
        self._sessions.pop(tsi, None)
        session = self._sessions[tsi] = _Session(data_port, 0, 0, -1)
        if start is not None:
            session.epoch_ns, session.lead = start.epoch_ns, start.sqn - 1
        self._refresh(tsi, session)
        if start is not None and start.index:
            session.skips = start.sqn - session.shift, start.index
        if len(self._sessions) > self._most:
            self._sessions.popitem(last=False)

    def _refresh(self, tsi: Tsi, session: _Session) -> None:
        """Take what SPMs have told since."""
        state = self._state_of(tsi)
        if state is not None and not session.is_closed:
            if state.epoch is not NO_EPOCH:
                session.epoch_ns, session.shift = state.epoch.started_ns, state.epoch.shift
            session.lead = max(session.lead, state.lead + session.shift)

    def identity(self, tsi: Tsi) -> tuple[int, int, int]:
        """Return data port, start of the session in ns, and what the source's own sqns are higher by."""
        session = self._sessions[tsi]
        self._refresh(tsi, session)
        return session.data_port, session.epoch_ns, session.shift

    def counted(self, items: Iterable[BatchItem]) -> Iterator[BatchItem]:
        """Yield items without the messages of an earlier life. Count messages that share packets."""
        for item in items:
            if not isinstance(item, _Framed) or not len(item):
                yield item
                continue
            rest = self._count(item, self._sessions[item.tsi])
            if rest is not None:
                yield rest

    def _count(self, item: _Framed, session: _Session) -> _Framed | None:
        sqns = np.asarray(item.sqns)
        first, last = int(sqns[0]), int(sqns[-1])
        index = session.tail[1] if session.tail[0] == first else 0
        in_last = int(np.count_nonzero(sqns == last))
        session.tail = last, in_last + (index if first == last else 0)
        sqn, taken = session.skips
        skipped = 0
        if first <= sqn:
            skipped = int(np.searchsorted(sqns, sqn))  # messages of earlier packets were taken, too
            before = index if first == sqn else 0
            skipped += max(0, min(int(np.count_nonzero(sqns == sqn)), taken - before))
        if last > sqn:
            session.skips = -1, 0
        return item.behind(skipped, index) if skipped < len(item) else None

    def give(self, item: BatchItem | Message) -> None:
        """Note the item that the application gets."""
        if isinstance(item, (Conflict, Forged)):
            return  # it moves no position
        self._given = item
        if isinstance(item, Closed) and item.tsi in self._sessions:
            session = self._sessions[item.tsi]
            self._refresh(item.tsi, session)
            if item.cause is not CloseCause.SILENT:
                session.is_closed, session.lead = True, item.next_sqn - 1 + session.shift
                self._sessions.move_to_end(item.tsi, last=False)  # nothing follows: it is the first to be forgotten

    def after_given(self, ready: BatchItem | Message | None) -> Position | None:
        """Return the position behind the message that the application got last; None before the first opening.

        `ready` is the next item of the same entry.
        """
        item = self._given
        if item is None or item.tsi not in self._sessions:
            return None
        place = self._positions.unpacker.next_place()
        if place is not None:
            return self._position(item.tsi, *place)
        if isinstance(item, Opened):
            return self._position(item.tsi, item.first, self._sessions[item.tsi].skips[1])
        if isinstance(item, Closed):
            is_end = self._sessions[item.tsi].is_closed
            return attrs.evolve(self._position(item.tsi, item.next_sqn, 0), is_end=is_end)
        if isinstance(ready, _Framed):
            return self._position(item.tsi, *ready.place(0))
        sqn = self._positions.end_of_entry(item.tsi) if ready is None else first_sqn_of(ready)
        tail_sqn, tail = self._sessions[item.tsi].tail
        return self._position(item.tsi, sqn, tail if tail_sqn == sqn else 0)

    def finish(self, ready: BatchItem | Message | None) -> None:
        """Note that the application has processed all that it got, and takes nothing more. `ready` as in `after_given`."""
        if not self._positions.is_manual:
            self._finished = self.after_given(ready)

    def _position(self, tsi: Tsi, sqn: int, index: int) -> Position:
        session = self._sessions[tsi]
        self._refresh(tsi, session)
        return Position(bytes(tsi), session.epoch_ns, sqn + session.shift, index)

    def saved(self) -> list[SavedSession]:
        """Return what the application has processed of each session, in any thread."""
        found = []
        given = self._positions.unpacker.given_place()
        for tsi, session in tuple(self._sessions.items()):
            sqn, index = self._positions.next_of(tsi), 0
            if sqn is None:
                continue
            if session.skips[0] == sqn:
                index = session.skips[1]
            if given is not None and given[0] == tsi and given[1:] > (sqn, index) and not self._positions.is_manual:
                sqn, index = given[1:]
            position = self._position(tsi, sqn, index)
            if self._finished is not None and self._finished.tsi == position.tsi:
                position = max(
                    position, attrs.evolve(self._finished, is_end=False), key=lambda one: (one.sqn, one.index)
                )
            found.append(
                SavedSession(position, session.data_port, max(session.lead, position.sqn - 1), session.is_closed)
            )
        return found
