"""Answering NAKs with RDATA: collect for a moment, send once, ignore the echoes (RFC 5.3).

Used by sources, over the transmit window, and by repairers, over the cache, with one responder per segment.
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
from pgm.wire.formats import Nla
from pgm.wire.train import MAX_CONVOY_PACKETS, Octets, Run


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


class Responder:
    """The repairs that one session owes to one segment, or to one node of it by unicast."""

    def __init__(
        self, store: Store, segment: Segment, parameters: Parameters, counters: Counters, to: Nla | None = None
    ) -> None:
        self._store = store
        self._segment = segment
        self._to = to
        self._parameters = parameters
        self._counters = counters
        self._pending: RangeTable[Pending] = RangeTable()
        self._served: RangeTable[Served] = RangeTable()
        self._fading: deque[tuple[int, int, int]] = deque()  # until_ns, first, end
        self._due_ns = NEVER

    @property
    def deadline_ns(self) -> int:
        """When the first repair may leave, as far as holding is concerned; NEVER when none is owed."""
        return self._due_ns

    @property
    def pending_sqns(self) -> int:
        """Repairs owed."""
        return self._pending.sqns

    def request(self, spans: Iterable[Span], now_ns: int, hold_ns: int | None = None) -> list[Span]:
        """Owe repairs for what the store has of `spans`, no later than `hold_ns` from now; returns what it lacks."""
        self._fade(now_ns)
        due = now_ns + (self._parameters.rdata_hold_ivl if hold_ns is None else hold_ns)
        lacking: list[Span] = []
        for first, end in spans:
            at = first
            for part in self._store.parts(first, end):
                if part.first > at:
                    lacking.append((at, part.first))
                at = part.end
                self._owe(part.first, part.end, due)
            if at < end:
                lacking.append((at, end))
        return lacking

    def _owe(self, first: int, end: int, due_ns: int) -> None:
        fresh = 0
        for low, high in self._served.uncovered(first, end):
            fresh += high - low
            for owed in self._pending.within(low, high):
                owed.due_ns = min(owed.due_ns, due_ns)
                self._due_ns = min(self._due_ns, due_ns)
            for new_first, new_end in self._pending.uncovered(low, high):
                self._pending.add(Pending(new_first, new_end, due_ns))
                self._due_ns = min(self._due_ns, due_ns)
        self._counters.repairs_ignored += end - first - fresh

    def _fade(self, now_ns: int) -> None:
        while self._fading and self._fading[0][0] <= now_ns:
            until_ns, first, end = self._fading.popleft()
            for served in self._served.within(first, end):
                if served.until_ns <= until_ns:
                    self._served.remove(served)

    def heard_repair(self, first: int, end: int, now_ns: int) -> None:
        """Somebody else repaired these sqns on the segment: nothing is owed for them any more."""
        if self._pending:
            cancelled = self._pending.discard(first, end)
            self._counters.repairs_cancelled += sum(one.count for one in cancelled)
            self._rearm(now_ns)
        self._mark_served(first, end, now_ns)

    def _mark_served(self, first: int, end: int, now_ns: int) -> None:
        self._fade(now_ns)  # here too: most repairs are heard, and no NAK may ever come
        until = now_ns + self._parameters.rdata_ignore_ivl
        self._served.discard(first, end)
        self._served.add(Served(first, end, until))
        self._fading.append((until, first, end))

    def next_train(
        self, most_octets: int, trail: int, now_ns: int, most_packets: int = MAX_CONVOY_PACKETS
    ) -> Send | None:
        """RDATA for the oldest sqns that are due, as many of one size as fit a train."""
        parts, has_changed = self._collect(most_octets, most_packets, now_ns)
        if has_changed:
            self._rearm(now_ns)
        if not parts:
            return None
        rows = [build_rdata(part, trail) for part in parts]
        whole: Octets = rows[0] if len(rows) == 1 else np.concatenate(rows)
        self._counters.rdata_packets += whole.shape[0]
        self._counters.rdata_octets += whole.size
        return data(self._segment, whole, self._to)

    def _collect(self, most_octets: int, most_packets: int, now_ns: int) -> tuple[list[Run], bool]:
        """Take requests until a train is full; also says whether any were taken, or dropped as no longer held."""
        parts: list[Run] = []
        has_changed = False
        room, packets = most_octets, most_packets
        for request in self._pending:
            if request.due_ns > now_ns:
                continue
            found = next(self._store.parts(request.first, request.end), None)
            if found is None or found.first > request.first:
                self._pending.discard(request.first, request.end if found is None else found.first)
                has_changed = True
                if found is None:
                    continue
            if parts and found.stride != parts[0].stride:
                break
            count = max(1, min(found.count, packets, room // found.stride))
            part = found.part(found.first, found.first + count)
            self._pending.discard(part.first, part.end)
            self._mark_served(part.first, part.end, now_ns)
            parts.append(part)
            room, packets = room - part.octets, packets - count
            if room < found.stride or not packets:
                break
        return parts, has_changed or bool(parts)

    def next_octets(self) -> int:
        """A guess at the size of the next train, for pacing: what is owed, in packets of the oldest one that is held."""
        for pending in self._pending:
            found = next(self._store.parts(pending.first, pending.end), None)
            if found is not None:
                return min(self._pending.sqns, MAX_CONVOY_PACKETS) * found.stride
        return 0

    def _rearm(self, now_ns: int) -> None:
        self._due_ns = NEVER
        for one in self._pending:
            self._due_ns = min(self._due_ns, one.due_ns)
            if one.due_ns <= now_ns:
                return
