"""Requests of children for packets that the cache lacks, sent on arrival to the segments that wait for them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import attrs

from pgm.core.segment import Segment
from pgm.core.structures.ranges import RangeTable, Span, SqnRange
from pgm.wire.formats import Nla


@attrs.define(eq=False)
class PendingRequest(SqnRange):
    """Sqns that some segments wait for, with one bit per downstream segment."""

    segments: int
    joiner: Nla | None  # the late joiner that sent the only request


class PendingRequests:
    """The pending requests of one session."""

    def __init__(self, downs: Sequence[Segment], limit: int) -> None:
        self._downs = tuple(downs)
        self._limit = limit
        self._requests: RangeTable[PendingRequest] = RangeTable()

    @property
    def is_empty(self) -> bool:
        """Whether no request is pending."""
        return not self._requests

    def add(self, first: int, end: int, segment: Segment, joiner: Nla | None) -> None:
        """Note that a segment waits for the sqns `first` to `end - 1`."""
        bit = 1 << self._downs.index(segment)
        for request in self._requests.within(first, end):
            request.segments |= bit
            request.joiner = request.joiner if request.joiner == joiner else None
        for low, high in self._requests.uncovered(first, end):
            self._requests.add(PendingRequest(low, high, bit, joiner))

    def keep_bound(self) -> int:
        """Drop the oldest requests beyond the limit. Return how many were dropped."""
        refused = 0
        while len(self._requests) > self._limit:
            oldest = self._requests.oldest
            assert oldest is not None
            self._requests.remove(oldest)
            refused += 1
        return refused

    def came(self, first: int, end: int) -> Iterator[tuple[PendingRequest, Segment]]:
        """Yield the requests for sqns that just came, with their segments."""
        for request in self._requests.discard(first, end):
            for index, segment in enumerate(self._downs):
                if request.segments >> index & 1:
                    yield request, segment

    def came_on(self, first: int, end: int, segment: Segment) -> None:
        """Note that sqns reached a segment without this node."""
        bit = 1 << self._downs.index(segment)
        for request in self._requests.within(first, end):
            request.segments &= ~bit
            if not request.segments:
                self._requests.remove(request)

    def forget(self, spans: Sequence[Span]) -> None:
        """Drop requests for sqns that will not come."""
        for first, end in spans:
            self._requests.discard(first, end)
