"""What children asked for and the cache lacked: sent as soon as it comes, to the segments that wait for it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import attrs

from pgm.core.segment import Segment
from pgm.core.structures.ranges import RangeTable, Span, SqnRange
from pgm.wire.formats import Nla


@attrs.define(eq=False)
class PendingRequest(SqnRange):
    """Sqns that are waited for, by a bit per downstream segment."""

    segments: int
    joiner: Nla | None  # the late joiner that alone wants them


class PendingRequests:
    """The wishes of one session."""

    def __init__(self, downs: Sequence[Segment], limit: int) -> None:
        self._downs = tuple(downs)
        self._limit = limit
        self._wishes: RangeTable[PendingRequest] = RangeTable()

    @property
    def is_empty(self) -> bool:
        """Whether nobody waits for anything."""
        return not self._wishes

    def add(self, first: int, end: int, segment: Segment, joiner: Nla | None) -> None:
        """A segment waits for these."""
        bit = 1 << self._downs.index(segment)
        for found in self._wishes.within(first, end):
            found.segments |= bit
            found.joiner = found.joiner if found.joiner == joiner else None
        for low, high in self._wishes.uncovered(first, end):
            self._wishes.add(PendingRequest(low, high, bit, joiner))

    def keep_bound(self) -> int:
        """No more wishes than allowed, the oldest go; returns how many went."""
        refused = 0
        while len(self._wishes) > self._limit:
            oldest = self._wishes.oldest
            assert oldest is not None
            self._wishes.remove(oldest)
            refused += 1
        return refused

    def came(self, first: int, end: int) -> Iterator[tuple[PendingRequest, Segment]]:
        """These are here: what was waited for of them, and where."""
        for wish in self._wishes.discard(first, end):
            for index, segment in enumerate(self._downs):
                if wish.segments >> index & 1:
                    yield wish, segment

    def came_on(self, first: int, end: int, segment: Segment) -> None:
        """These have come to a segment without us."""
        bit = 1 << self._downs.index(segment)
        for found in self._wishes.within(first, end):
            found.segments &= ~bit
            if not found.segments:
                self._wishes.remove(found)

    def forget(self, spans: Sequence[Span]) -> None:
        """These will not come."""
        for first, end in spans:
            self._wishes.discard(first, end)
