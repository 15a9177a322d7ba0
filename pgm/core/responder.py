"""Answering NAKs with RDATA: collect for a moment, send once, ignore the echoes (RFC 5.3).

Used by sources, over the transmit window, and by repairers, over the cache. Which segment a repair goes to is
part of the request.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Protocol

import attrs
import numpy as np

from pgm.core.channel import Segment
from pgm.core.counters import Counters
from pgm.core.effects import Send, data
from pgm.core.ranges import Range, RangeTable, Span
from pgm.parameters import Parameters
from pgm.units import NEVER
from pgm.wire.data import build_rdata
from pgm.wire.train import MAX_TRAIN_PACKETS, Octets, Run


class Store(Protocol):
    """Where repairs come from."""

    def parts(self, first: int, end: int) -> Iterator[Run]:
        """What is there of `first` to `end - 1`, in order."""


@attrs.define(eq=False)
class Pending(Range):
    """Sqns to be repaired, not before `due_ns`."""

    due_ns: int


@attrs.define(eq=False)
class Served(Range):
    """Sqns that were just repaired; repeated NAKs are echoes until `until_ns`."""

    until_ns: int


@attrs.define
class _Queue:
    segment: Segment
    pending: RangeTable[Pending] = attrs.field(factory=RangeTable)
    served: RangeTable[Served] = attrs.field(factory=RangeTable)
    fading: deque[tuple[int, int, int]] = attrs.field(factory=deque)  # until_ns, first, end


class Responder:
    """The repairs that one session owes, per segment."""

    def __init__(self, store: Store, segments: Iterable[Segment], parameters: Parameters, counters: Counters) -> None:
        self._store = store
        self._parameters = parameters
        self._counters = counters
        self._queues = [_Queue(segment) for segment in segments]
        self._due_ns = NEVER

    @property
    def deadline_ns(self) -> int:
        """When the first repair may leave, as far as holding is concerned; NEVER when none is owed."""
        return self._due_ns

    @property
    def pending_sqns(self) -> int:
        """Repairs owed."""
        return sum(queue.pending.sqns for queue in self._queues)

    def request(self, spans: Iterable[Span], segment: Segment, now_ns: int, hold_ns: int | None = None) -> list[Span]:
        """Owe repairs for what the store has of `spans`; returns what it lacks."""
        queue = self._queue(segment)
        self._fade(queue, now_ns)
        due = now_ns + (self._parameters.rdata_hold_ivl if hold_ns is None else hold_ns)
        lacking: list[Span] = []
        for first, end in spans:
            at = first
            for part in self._store.parts(first, end):
                if part.first > at:
                    lacking.append((at, part.first))
                at = part.end
                self._owe(queue, part.first, part.end, due)
            if at < end:
                lacking.append((at, end))
        return lacking

    def _owe(self, queue: _Queue, first: int, end: int, due_ns: int) -> None:
        fresh = 0
        for low, high in queue.served.uncovered(first, end):
            fresh += high - low
            for new_first, new_end in queue.pending.uncovered(low, high):
                queue.pending.add(Pending(new_first, new_end, due_ns))
                self._due_ns = min(self._due_ns, due_ns)
        self._counters.repairs_ignored += end - first - fresh

    def _queue(self, segment: Segment) -> _Queue:
        return next(queue for queue in self._queues if queue.segment.index == segment.index)

    @staticmethod
    def _fade(queue: _Queue, now_ns: int) -> None:
        while queue.fading and queue.fading[0][0] <= now_ns:
            until_ns, first, end = queue.fading.popleft()
            for served in queue.served.within(first, end):
                if served.until_ns <= until_ns:
                    queue.served.remove(served)

    def heard_repair(self, first: int, end: int, segment: Segment, now_ns: int) -> None:
        """Somebody else repaired these sqns on a segment: nothing is owed for them there."""
        queue = self._queue(segment)
        if queue.pending:
            cancelled = queue.pending.discard(first, end)
            self._counters.repairs_cancelled += sum(one.count for one in cancelled)
            self._rearm(now_ns)
        self._mark_served(queue, first, end, now_ns)

    def _mark_served(self, queue: _Queue, first: int, end: int, now_ns: int) -> None:
        self._fade(queue, now_ns)  # here too: most repairs are heard, and no NAK may ever come
        until = now_ns + self._parameters.rdata_ignore_ivl
        queue.served.discard(first, end)
        queue.served.add(Served(first, end, until))
        queue.fading.append((until, first, end))

    def next_train(self, most_octets: int, trail: int, now_ns: int) -> Send | None:
        """RDATA for the oldest sqns that are due on some segment, as many of one size as fit a train."""
        for queue in self._queues:
            parts, is_done = self._collect(queue, most_octets, now_ns)
            if parts:
                rows = [build_rdata(part, trail) for part in parts]
                whole: Octets = rows[0] if len(rows) == 1 else np.concatenate(rows)
                self._counters.rdata_packets += whole.shape[0]
                self._counters.rdata_octets += whole.size
                self._queues.append(self._queues.pop(self._queues.index(queue)))  # the next segment's turn
                self._rearm(now_ns)
                return data(queue.segment, whole)
            if is_done:
                self._rearm(now_ns)
        return None

    def _collect(self, queue: _Queue, most_octets: int, now_ns: int) -> tuple[list[Run], bool]:
        """Take requests off a queue until a train is full; also says whether any were dropped as no longer held."""
        parts: list[Run] = []
        has_dropped = False
        room, packets = most_octets, MAX_TRAIN_PACKETS
        for request in queue.pending:
            if request.due_ns > now_ns:
                continue
            found = next(self._store.parts(request.first, request.end), None)
            if found is None or found.first > request.first:
                queue.pending.discard(request.first, request.end if found is None else found.first)
                has_dropped = True
                if found is None:
                    continue
            if parts and found.stride != parts[0].stride:
                break
            count = max(1, min(found.count, packets, room // found.stride))
            part = found.part(found.first, found.first + count)
            queue.pending.discard(part.first, part.end)
            self._mark_served(queue, part.first, part.end, now_ns)
            parts.append(part)
            room, packets = room - part.octets, packets - count
            if room < found.stride or not packets:
                break
        return parts, has_dropped

    def next_octets(self) -> int:
        """A guess at the size of the next train, for pacing: what is owed, in packets of the oldest one that is held."""
        for queue in self._queues:
            for pending in queue.pending:
                found = next(self._store.parts(pending.first, pending.end), None)
                if found is not None:
                    return min(queue.pending.sqns, MAX_TRAIN_PACKETS) * found.stride
        return 0

    def _rearm(self, now_ns: int) -> None:
        self._due_ns = NEVER
        for queue in self._queues:
            for one in queue.pending:
                self._due_ns = min(self._due_ns, one.due_ns)
                if one.due_ns <= now_ns:
                    return
