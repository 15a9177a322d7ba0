"""Positions of an application in its streams, which bound the acks of its receiver.

A receiver with `ack="auto"` acknowledges an item when the application comes back for the next one. With `ack="manual"` the
application calls `Receiver.ack`. An item ends before the first packet of the next item: a packet with several messages is
taken with the last of them. Packets without an item for the application, such as those of other subjects, need no ack.
"""

from __future__ import annotations

from bisect import insort
from collections import OrderedDict, deque
from collections.abc import Collection

import attrs

from pgm.core.effects import CloseCause, Closed, Lost, Opened
from pgm.core.window.reassembly import WholeMessages
from pgm.net.endpoint.policies import Ack
from pgm.net.endpoint.queue_item import QueueContent
from pgm.net.framing.items import BatchItem, Message, StreamMark, Unpacker, first_sqn_of, span_of, with_last
from pgm.net.framing.objects import Object, ObjectItem
from pgm.units import NEVER
from pgm.wire.formats import Tsi

_MOST_APART = 65_536  # spans that were taken ahead of others; far more than a receive window has holes


@attrs.define(eq=False)
class AckPosition:
    """AckPosition of the application in one session, in sqns."""

    is_ordered: bool
    taken: int  # the newest sqn up to which everything was taken
    seen: int  # the newest sqn that reached the application's queue entries
    _apart: list[tuple[int, int]] = attrs.field(factory=list)  # first and last sqn of spans taken ahead of others

    def cover(self, last: int) -> None:
        """Note that everything up to `last` was taken."""
        if last > self.taken:
            self.taken = last
            self._join()

    def take(self, first: int, last: int) -> None:
        """Note that `first` to `last` were taken, perhaps before earlier packets."""
        if first <= self.taken + 1:
            self.cover(last)
        elif first <= last:
            insort(self._apart, (first, last))
            if len(self._apart) > _MOST_APART:
                self._apart.pop()

    def _join(self) -> None:
        while self._apart and self._apart[0][0] <= self.taken + 1:
            self.taken = max(self.taken, self._apart.pop(0)[1])


@attrs.define(eq=False)
class _Entry:
    """Entry of the queue whose items the application is taking: what it has not been given, in sqns."""

    tsi: Tsi
    first: int
    last: int


class JointAcks:
    """Acks of the receivers of one node, which a parent knows by one address: the lowest of each session counts."""

    def __init__(self) -> None:
        self._by_session: dict[Tsi, dict[AckPositions, int]] = {}

    def lowest(self, tsi: Tsi, member: AckPositions, acked: int) -> int:
        """Note the position of one receiver. Return the lowest of all in its session."""
        members = self._by_session.setdefault(tsi, {})
        members[member] = acked
        return min(members.values()) if len(members) > 1 else acked

    def leave(self, tsi: Tsi, member: AckPositions) -> bool:
        """Forget a receiver. Return whether none is left in the session."""
        members = self._by_session.get(tsi, {})
        members.pop(member, None)
        if not members:
            self._by_session.pop(tsi, None)
        return not members

    def forget(self, member: AckPositions) -> None:
        """Forget a receiver that has closed."""
        for tsi in tuple(self._by_session):
            self.leave(tsi, member)


class AckPositions:
    """Positions of one receiver's application in all sessions."""

    def __init__(self, ack: Ack, unordered_ports: Collection[int], most_sessions: int, joint: JointAcks) -> None:
        self.is_manual = ack == "manual"
        self.unpacker = Unpacker()
        self.has_members = False  # a session is acknowledged; False for plain streams, which test nothing else
        self._unordered_ports = unordered_ports
        self._most_sessions = most_sessions
        self._joint = joint
        self._sessions: OrderedDict[Tsi, AckPosition] = OrderedDict()
        self._entry: _Entry | None = None

    def acked(self, tsi: Tsi, begin: int, delivered: int) -> int:
        """Return the newest sqn that the receivers of the node may acknowledge."""
        self.has_members = True
        return self._joint.lowest(tsi, self, max(begin, min(delivered, self._taken(tsi, begin))))

    def _taken(self, tsi: Tsi, begin: int) -> int:
        position, entry = self._sessions.get(tsi), self._entry
        if position is None:
            return begin
        if not self.is_manual and entry is not None and entry.tsi == tsi:
            begun = self.unpacker.begun_sqn  # messages of a batch move the position one by one
            if begun is not None and (position.is_ordered or entry.first <= position.taken + 1):
                return max(position.taken, begun - 1)
        return position.taken

    def next_of(self, tsi: Tsi) -> int | None:
        """Return the sqn behind everything that was taken of a session; None for an unknown one."""
        position = self._sessions.get(tsi)
        return None if position is None else position.taken + 1

    def end_of_entry(self, tsi: Tsi) -> int:
        """Return the sqn behind the entry that the application is taking, or behind everything taken without one."""
        entry = self._entry
        return entry.last + 1 if entry is not None and entry.tsi == tsi else self._sessions[tsi].taken + 1

    def leave(self, tsi: Tsi) -> bool:
        """End the membership in a session. Return whether no receiver of the node is a member any more."""
        return self._joint.leave(tsi, self)

    def close(self) -> None:
        """End all memberships, also in sessions that the core has forgotten."""
        self._joint.forget(self)

    def begin(self, content: QueueContent, held_from: int | None) -> None:
        """Note the next entry of the queue; the decoder still holds its packets from `held_from` on."""
        if isinstance(content, Opened):
            self._open(content)
        position = self._sessions.get(content.tsi)
        if position is None or isinstance(content, StreamMark):
            if position is not None and isinstance(content, Closed) and content.cause is not CloseCause.SILENT:
                self._sessions.move_to_end(content.tsi, last=False)  # nothing follows: it is the first to be forgotten
            return
        if isinstance(content, WholeMessages):
            first, last = content.run.first, content.run.end - 1
        else:
            first, last = content.first, content.first + content.count - 1
        if position.is_ordered:
            first = position.seen + 1
        if held_from is not None:
            last = min(last, held_from - 1)
        position.seen = max(position.seen, last)
        self._entry = _Entry(content.tsi, first, last)

    def _open(self, opened: Opened) -> None:
        if opened.resumed and opened.tsi in self._sessions:
            return
        is_ordered = opened.data_port not in self._unordered_ports
        self._sessions[opened.tsi] = AckPosition(is_ordered, opened.first - 1, opened.first - 1)
        self._sessions.move_to_end(opened.tsi)
        if len(self._sessions) > self._most_sessions:
            self._sessions.popitem(last=False)

    def give(self, item: BatchItem | Message, ready: deque[BatchItem | Message]) -> BatchItem | Message:
        """Note that the application gets an item of the entry, before those that are ready. Return the item."""
        entry = self._entry
        if entry is None or not self.is_manual or isinstance(item, StreamMark):
            return item
        position, first = self._sessions[entry.tsi], first_sqn_of(item)
        last = first_sqn_of(ready[0]) - 1 if ready else entry.last
        if first > entry.first:
            position.take(entry.first, first - 1)
        entry.first = last + 1
        if isinstance(item, Lost):
            position.take(first, last)
            return item
        return with_last(item, last)

    def put_back(self, item: BatchItem | Message | None, ready: deque[BatchItem | Message]) -> None:
        """Put an item of the entry back at the front of the ready items; None is ignored."""
        if item is not None:
            ready.appendleft(item)
            if self._entry is not None:
                self._entry.first = min(self._entry.first, first_sqn_of(item))

    @property
    def has_entry(self) -> bool:
        """Return whether `come_back` has something to do."""
        return self._entry is not None

    def come_back(self, ready: deque[BatchItem | Message]) -> Tsi | None:
        """Note that the application wants the next item. Return the session whose position has moved."""
        entry = self._entry
        if entry is None:
            return None
        self.put_back(self.unpacker.take_rest(), ready)
        last = first_sqn_of(ready[0]) - 1 if ready else entry.last
        position = self._sessions[entry.tsi]
        if not self.is_manual:
            if position.is_ordered:
                position.cover(last)
            else:
                position.take(entry.first, last)
            entry.first = max(entry.first, last + 1)
        elif not ready:
            position.take(entry.first, last)
        if not ready:
            self._entry = None
        return entry.tsi

    def cover(self, item: ObjectItem | BatchItem | Message, before: int = NEVER, most: int = 0) -> None:
        """Note that the application has processed an item, and in ordered streams everything before it.

        Packets from sqn `before` on do not count, but at most `most` of them.
        """
        position = self._sessions.get(item.tsi)
        if position is None:
            return
        first, last = item.span if isinstance(item, Object) else span_of(item)
        last = min(last, max(before - 1, last - most))
        if position.is_ordered:
            position.cover(last)
        else:
            position.take(first, last)
