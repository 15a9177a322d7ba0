"""What was repaired lately: for so long NAKs for it are echoes (RFC 5.3).

Of single packets that went together no more is kept than their list: it is over before most of it is asked for again, so that a
comparison of its ends, or with another list as a set, is mostly all that it comes to.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Sequence

import attrs

from pgm.core.structures.ranges import RangeTable, Span, SqnRange
from pgm.wire.sequence_numbers import spans_of


@attrs.define(eq=False)
class _Repaired(SqnRange):
    """Sqns that were repaired; asking for them is an echo until `until_ns`."""

    until_ns: int


class RecentRepairs:
    """The memory of one responder, of `lasts_ns`. Whoever asks calls `expire` first."""

    def __init__(self, lasts_ns: int) -> None:
        self._lasts_ns = lasts_ns
        self._table: RangeTable[_Repaired] = RangeTable()
        self._fading: deque[tuple[int, Sequence[Span]]] = deque()  # until_ns, what was put into the table
        self._lists: deque[tuple[int, Sequence[int]]] = deque()  # until_ns, sqns that are not in the table

    def __len__(self) -> int:
        """Ranges and lists that are remembered."""
        return len(self._table) + len(self._lists)

    def expire(self, now_ns: int) -> None:
        """Forget what has been remembered long enough."""
        lists, fading = self._lists, self._fading
        while lists and lists[0][0] <= now_ns:
            lists.popleft()
        while fading and fading[0][0] <= now_ns:
            until_ns, spans = fading.popleft()
            for repaired in self._table.discard_each(spans):
                if repaired.until_ns > until_ns:  # it was repaired once more since
                    self._table.add(repaired)

    def note(self, spans: Sequence[Span], now_ns: int) -> None:
        """Spans in order were repaired."""
        self.expire(now_ns)  # here too: most repairs are heard, and no NAK may ever come
        if self._lists:
            self._tabulate()
        self._note(spans, now_ns + self._lasts_ns)

    def _note(self, spans: Sequence[Span], until_ns: int) -> None:
        if not self._table.add_each_apart([_Repaired(first, end, until_ns) for first, end in spans]):
            for first, end in spans:
                self._table.discard(first, end)
                self._table.add(_Repaired(first, end, until_ns))
        self._fading.append((until_ns, spans))

    def note_list(self, sqns: Sequence[int], now_ns: int) -> None:
        """Sqns in order were repaired, none of which was remembered."""
        self._lists.append((now_ns + self._lasts_ns, sqns))

    def note_scattered(self, spans: Sequence[Span], now_ns: int) -> None:
        """Single packets in order were repaired, none of which was remembered."""
        if self._table.sqns:  # others repair, too: what they say would have to be compared with each list
            self.note(spans, now_ns)
        else:
            self.note_list([first for first, _ in spans], now_ns)

    def has_any(self, sqns: Sequence[int]) -> bool:
        """Whether any of sqns in order was repaired."""
        for others in self._lists_near(sqns[0], sqns[-1] + 1):
            if not set(others).isdisjoint(sqns):
                return True
        return self._table.sqns > 0 and self._table.overlaps_any([(sqn, sqn + 1) for sqn in sqns])

    def overlaps_any(self, spans: Sequence[Span]) -> bool:
        """The same of spans in order."""
        for others in self._lists_near(spans[0][0], spans[-1][1]) if self._lists else ():
            if any(bisect_left(others, first) < bisect_left(others, end) for first, end in spans):
                return True
        return self._table.overlaps_any(spans)

    def overlaps(self, first: int, end: int) -> bool:
        """The same of one span."""
        if self._lists:
            self._tabulate_if_near(first, end)
        return self._table.overlaps(first, end)

    def uncovered(self, first: int, end: int) -> list[Span]:
        """The parts of `first` to `end - 1` that were not repaired."""
        if self._lists:
            self._tabulate_if_near(first, end)
        return self._table.uncovered(first, end)

    def _lists_near(self, first: int, end: int) -> list[Sequence[int]]:
        return [sqns for _, sqns in self._lists if sqns[0] < end and first <= sqns[-1]]

    def _tabulate_if_near(self, first: int, end: int) -> None:
        if self._lists_near(first, end):
            self._tabulate()

    def _tabulate(self) -> None:
        """Put all lists into the table: they came after all that is in it."""
        for until_ns, sqns in self._lists:
            self._note(spans_of(sqns), until_ns)
        self._lists.clear()
