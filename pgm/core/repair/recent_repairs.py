"""Memory of recent repairs, for which NAKs are echoes (RFC 5.3).

Single packets that were repaired together are kept as one list. A list expires before most of its sqns are requested
again. Most lookups therefore need only a comparison of the list's ends, or of two lists as sets.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Sequence

import attrs

from pgm.core.structures.ranges import RangeTable, Span, SqnRange
from pgm.wire.sequence_numbers import spans_of


@attrs.define(eq=False)
class _RepairedRange(SqnRange):
    """Repaired sqns. A NAK for any of them is an echo until `until_ns`."""

    until_ns: int


class RecentRepairs:
    """Memory of one responder's repairs for `lasts_ns` each. Callers call `expire` before a lookup."""

    def __init__(self, lasts_ns: int) -> None:
        self._lasts_ns = lasts_ns
        self._table: RangeTable[_RepairedRange] = RangeTable()
        self._expiries: deque[tuple[int, Sequence[Span]]] = deque()  # until_ns, spans in the table
        self._lists: deque[tuple[int, Sequence[int]]] = deque()  # until_ns, sqns that are not in the table

    def __len__(self) -> int:
        """Return the number of remembered ranges and lists."""
        return len(self._table) + len(self._lists)

    def expire(self, now_ns: int) -> None:
        """Forget repairs whose time is over."""
        lists, expiries = self._lists, self._expiries
        while lists and lists[0][0] <= now_ns:
            lists.popleft()
        while expiries and expiries[0][0] <= now_ns:
            until_ns, spans = expiries.popleft()
            for repaired in self._table.discard_each(spans):
                if repaired.until_ns > until_ns:  # the range was repaired again later
                    self._table.add(repaired)

    def note(self, spans: Sequence[Span], now_ns: int) -> None:
        """Note repaired spans, in order."""
        self.expire(now_ns)  # here too, because a node that only hears repairs may never get a NAK
        if self._lists:
            self._tabulate()
        self._note(spans, now_ns + self._lasts_ns)

    def _note(self, spans: Sequence[Span], until_ns: int) -> None:
        if not self._table.add_each_apart([_RepairedRange(first, end, until_ns) for first, end in spans]):
            for first, end in spans:
                self._table.discard(first, end)
                self._table.add(_RepairedRange(first, end, until_ns))
        self._expiries.append((until_ns, spans))

    def note_list(self, sqns: Sequence[int], now_ns: int) -> None:
        """Note repaired sqns, in order. None of them may be remembered already."""
        self._lists.append((now_ns + self._lasts_ns, sqns))

    def note_scattered(self, spans: Sequence[Span], now_ns: int) -> None:
        """Note repaired single packets, in order. None of them may be remembered already."""
        if self._table.sqns:  # other nodes repair too, and each of their repairs would be compared with each list
            self.note(spans, now_ns)
        else:
            self.note_list([first for first, _ in spans], now_ns)

    def overlaps_any(self, spans: Sequence[Span]) -> bool:
        """Return whether any sqn of the spans, which are in order, was repaired."""
        for others in self._lists_near(spans[0][0], spans[-1][1]) if self._lists else ():
            if not set(others).isdisjoint([first for first, _ in spans]):
                return True
            if any(bisect_left(others, first) < bisect_left(others, end) for first, end in spans if end - first > 1):
                return True
        return self._table.sqns > 0 and self._table.overlaps_any(spans)

    def overlaps(self, first: int, end: int) -> bool:
        """Return whether any of `first` to `end - 1` was repaired."""
        if self._lists:
            self._tabulate_if_near(first, end)
        return self._table.overlaps(first, end)

    def uncovered(self, first: int, end: int) -> list[Span]:
        """Return the parts of `first` to `end - 1` that were not repaired."""
        if self._lists:
            self._tabulate_if_near(first, end)
        return self._table.uncovered(first, end)

    def _lists_near(self, first: int, end: int) -> list[Sequence[int]]:
        return [sqns for _, sqns in self._lists if sqns[0] < end and first <= sqns[-1]]

    def _tabulate_if_near(self, first: int, end: int) -> None:
        if self._lists_near(first, end):
            self._tabulate()

    def _tabulate(self) -> None:
        """Put all lists into the table. The lists are newer than every range in the table."""
        for until_ns, sqns in self._lists:
            self._note(spans_of(sqns), until_ns)
        self._lists.clear()
