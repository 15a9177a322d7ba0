"""Ordered, disjoint, half-open ranges of sqns with data attached.

Examples are missing packets, pending repairs and repair state. A loss is a range and not a list of packets. A gap of
100,000 packets is one object, which splits only at the edges of an answer for a part of it.
"""

from __future__ import annotations

import functools
import heapq
import itertools
import operator
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Generic, TypeVar

import attrs

from pgm.units import NEVER
from pgm.wire.sequence_numbers import spans_of as spans_of

Span = tuple[int, int]  # first, end
_STALE_ENTRIES = 64  # stale timers that are tolerated before a clean-up, an estimate
FIRST = operator.attrgetter("first")


@attrs.define(eq=False)
class SqnRange:
    """Sqns `first` to `end - 1`. Subclasses add the data of the range."""

    first: int
    end: int

    @property
    def count(self) -> int:
        """Return the number of sqns."""
        return self.end - self.first


R = TypeVar("R", bound=SqnRange)


@functools.cache
def _names(kind: type[SqnRange]) -> tuple[str, ...]:
    return tuple(field.name for field in attrs.fields(kind))


def _copy(original: R) -> R:
    """Return a copy of a range with all its fields. `copy.copy` is much slower for objects with slots."""
    kind: Any = type(original)
    copy: R = object.__new__(kind)
    for name in _names(kind):
        setattr(copy, name, getattr(original, name))
    return copy


class RangeTable(Generic[R]):
    """Table of ranges, ordered by sqn."""

    def __init__(self) -> None:
        self._firsts: list[int] = []
        self._ranges: list[R] = []
        self.sqns = 0  # total of all ranges

    def __len__(self) -> int:
        return len(self._ranges)

    def __iter__(self) -> Iterator[R]:
        return iter(tuple(self._ranges))

    @property
    def oldest(self) -> R | None:
        """Return the range with the lowest sqns; None if the table is empty."""
        return self._ranges[0] if self._ranges else None

    def at(self, sqn: int) -> R | None:
        """Return the range that holds `sqn`; None if there is none."""
        index = bisect_right(self._firsts, sqn) - 1
        return self._ranges[index] if index >= 0 and self._ranges[index].end > sqn else None

    def overlaps(self, first: int, end: int) -> bool:
        """Return whether any of `first` to `end - 1` lies in a range."""
        index = bisect_left(self._firsts, end) - 1
        return index >= 0 and self._ranges[index].end > first

    def overlaps_any(self, spans: Sequence[Span]) -> bool:
        """Return whether any of several spans, in order, reaches into a range."""
        firsts, ranges = self._firsts, self._ranges
        if not firsts or ranges[-1].end <= spans[0][0] or firsts[0] >= spans[-1][1]:
            return False
        for first, end in spans:
            index = bisect_left(firsts, end)
            if index and ranges[index - 1].end > first:
                return True
        return False

    def add(self, new: R) -> R:
        """Insert a range that overlaps no other, and return it."""
        is_apart = self.add_apart(new)
        assert is_apart, (new, self.within(new.first, new.end))
        return new

    def add_apart(self, new: R) -> bool:
        """Insert a range if it overlaps no other. Return whether it was inserted."""
        index = bisect_left(self._firsts, new.first)
        if index and self._ranges[index - 1].end > new.first:
            return False
        if index < len(self._ranges) and self._firsts[index] < new.end:
            return False
        self._firsts.insert(index, new.first)
        self._ranges.insert(index, new)
        self.sqns += new.end - new.first
        return True

    def add_each_apart(self, new: Sequence[R]) -> bool:
        """Insert several ranges in order if none overlaps another. Return whether all were inserted; else none is."""
        firsts, ranges = self._firsts, self._ranges
        if ranges and ranges[-1].end > new[0].first:
            if self.overlaps_any([(entry.first, entry.end) for entry in new]):
                return False
            index = 0
            for entry in new:
                index = bisect_left(firsts, entry.first, index)
                firsts.insert(index, entry.first)
                ranges.insert(index, entry)
        else:
            firsts += [entry.first for entry in new]
            ranges += new
        self.sqns += sum([entry.end - entry.first for entry in new])
        return True

    def reaching(self, sqn: int = -NEVER) -> Iterator[R]:
        """Yield the ranges from that at `sqn`, or the next, on; by default all. The table must not change then."""
        index = max(0, bisect_right(self._firsts, sqn) - 1)
        if index < len(self._ranges) and self._ranges[index].end <= sqn:
            index += 1
        at: Callable[[int], R] = self._ranges.__getitem__
        return map(at, range(index, len(self._ranges)))

    def within(self, first: int, end: int) -> list[R]:
        """Cut ranges at `first` and `end`, and return the ranges between these edges."""
        low = bisect_left(self._firsts, first)
        if low < len(self._ranges) and self._ranges[low].first == first and self._ranges[low].end == end:
            return [self._ranges[low]]  # the usual case: one range, nothing to cut
        low = bisect_right(self._firsts, first) - 1
        if low >= 0 and self._ranges[low].first < first < self._ranges[low].end:
            self._split(low, first)
        low = bisect_left(self._firsts, first)
        high = bisect_left(self._firsts, end)
        if high > low and self._ranges[high - 1].end > end:
            self._split(high - 1, end)
        return self._ranges[low:high]

    def exactly(self, spans: Sequence[Span]) -> list[R] | None:
        """Return the ranges that equal the spans, if they are neighbours; else None."""
        low = bisect_left(self._firsts, spans[0][0]) if spans else 0
        neighbours = self._ranges[low : low + len(spans)]
        return neighbours if [(entry.first, entry.end) for entry in neighbours] == spans else None

    def _split(self, index: int, at: int) -> None:
        left = self._ranges[index]
        right = _copy(left)
        right.first = at
        left.end = at
        self._firsts.insert(index + 1, at)
        self._ranges.insert(index + 1, right)
        self._was_split(right)

    def _cut_off(self, index: int, end: int) -> R:
        """Remove and return the part below `end` of a range that extends beyond `end`."""
        rest = self._ranges[index]
        cut = _copy(rest)
        cut.end = rest.first = self._firsts[index] = end
        self.sqns -= end - cut.first
        return cut

    def _was_split(self, right: R) -> None:
        """Handle the split of a range. `right` is the new range."""

    def uncovered(self, first: int, end: int) -> list[Span]:
        """Return the parts of `first` to `end - 1` that lie in no range."""
        gaps, at = [], first
        index = max(0, bisect_right(self._firsts, first) - 1)
        while index < len(self._ranges) and self._ranges[index].first < end:
            entry = self._ranges[index]
            if entry.first > at:
                gaps.append((at, entry.first))
            at = max(at, entry.end)
            index += 1
        if at < end:
            gaps.append((at, end))
        return gaps

    def join(self, left: R, right: R) -> None:
        """Join two adjacent ranges: `left` grows by `right`, which leaves the table."""
        index = bisect_left(self._firsts, right.first)
        assert self._ranges[index - 1 : index + 1] == [left, right], (left, right)
        assert left.end == right.first, (left, right)
        del self._firsts[index], self._ranges[index]
        left.end = right.end

    def remove(self, old: R) -> None:
        """Remove one range."""
        index = bisect_left(self._firsts, old.first)
        assert self._ranges[index] is old
        del self._firsts[index], self._ranges[index]
        self.sqns -= old.end - old.first

    def discard(self, first: int, end: int) -> list[R]:
        """Remove and return all (parts of) ranges inside `first` to `end - 1`; none if `end` is at or below `first`."""
        if end <= first:
            return []
        index = bisect_left(self._firsts, first)
        if index < len(self._ranges) and self._firsts[index] == first and self._ranges[index].end > end:
            return [self._cut_off(index, end)]  # a gap that fills in order: the range keeps its object and its index
        removed = self.within(first, end)
        if len(removed) == 1:
            self.remove(removed[0])
        elif removed:
            low = bisect_left(self._firsts, removed[0].first)
            del self._firsts[low : low + len(removed)], self._ranges[low : low + len(removed)]
            self.sqns -= sum([entry.end - entry.first for entry in removed])
        return removed

    def keep_oldest(self, sqns: int) -> int:
        """Remove the newest sqns beyond a number of sqns. Return how many were removed."""
        beyond = removed = max(0, self.sqns - sqns)
        while beyond:
            newest = self._ranges[-1]
            beyond -= sum(one.count for one in self.discard(max(newest.first, newest.end - beyond), newest.end))
        return removed

    def discard_each(self, spans: Iterable[Span]) -> list[R]:
        """Remove and return all (parts of) ranges inside several spans, in order."""
        removed: list[R] = []
        low, firsts, ranges = 0, self._firsts, self._ranges
        if isinstance(spans, list) and len(spans) > 1:
            low = bisect_left(firsts, spans[0][0])
            high = low + len(spans)
            # Neighbours in the table that equal the spans are removed together.
            if high <= len(firsts) and firsts[high - 1] == spans[-1][0]:
                removed = ranges[low:high]
                if [(entry.first, entry.end) for entry in removed] == spans:
                    del firsts[low:high], ranges[low:high]
                    self.sqns -= sum([entry.end - entry.first for entry in removed])
                    return removed
                removed, low = [], 0
        for first, end in spans:
            low = bisect_left(firsts, first, low)
            if low < len(ranges) and ranges[low].first == first and ranges[low].end == end:
                del firsts[low]
                removed.append(ranges.pop(low))
                self.sqns -= end - first
            else:
                removed += self.discard(first, end)
        return removed


@attrs.define(eq=False)
class TimedRange(SqnRange):
    """Range with a timer. NEVER means that no timer runs. Only `TimedRanges.arm` may set the deadline."""

    deadline_ns: int = attrs.field(default=NEVER, kw_only=True)


T = TypeVar("T", bound=TimedRange)


class TimedRanges(RangeTable[T]):
    """Table of ranges with a timer each.

    The timers are lists of ranges by instant, and a heap of the instants. An entry becomes stale when its range is
    armed again or removed. Stale entries stay until their instant is due, or until they outnumber the ranges.
    """

    def __init__(self) -> None:
        super().__init__()
        self._due: dict[int, list[T]] = {}
        self._instants: list[int] = []
        self._entries = 0  # total length of the lists in `_due`

    def extend(self, new: Sequence[T]) -> None:
        """Insert ranges in order, all above every other range, with one common deadline."""
        assert not self._ranges or self._ranges[-1].end <= new[0].first, (self._ranges[-1], new[0])
        self._firsts += [entry.first for entry in new]
        self._ranges += new
        self.sqns += sum([entry.end - entry.first for entry in new])
        self._schedule(new, new[0].deadline_ns)

    def find_deadline_ns(self) -> int:
        """Drop stale entries, and return the earliest deadline; NEVER if no timer runs."""
        while self._instants:
            at_ns = self._instants[0]
            due = self._due[at_ns]
            while due and due[-1].deadline_ns != at_ns:
                due.pop()
                self._entries -= 1
            if due:
                return at_ns
            del self._due[heapq.heappop(self._instants)]
        return NEVER

    def arm(self, entry: T, at_ns: int) -> None:
        """Start or restart the timer of a range in the table."""
        if entry.deadline_ns != at_ns:
            entry.deadline_ns = at_ns
            self._schedule((entry,), at_ns)

    def arm_each(self, entries: Iterable[T], at_ns: int) -> None:
        """Start or restart the timers of several ranges in the table."""
        changed = [entry for entry in entries if entry.deadline_ns != at_ns]
        for entry in changed:
            entry.deadline_ns = at_ns
        if changed:
            self._schedule(changed, at_ns)

    def _schedule(self, entries: Sequence[T], at_ns: int) -> None:
        due = self._due.get(at_ns)
        if due is None:
            due = self._due[at_ns] = []
            heapq.heappush(self._instants, at_ns)
        due += entries
        self._entries += len(entries)
        if self._entries > 2 * len(self._ranges) + _STALE_ENTRIES:
            self._clear_out()

    def _clear_out(self) -> None:
        self._due = {}
        armed = [entry for entry in self._ranges if entry.deadline_ns != NEVER]
        for entry in armed:
            self._due.setdefault(entry.deadline_ns, []).append(entry)
        self._instants = sorted(self._due)
        self._entries = len(armed)

    def take_due(self, now_ns: int) -> list[T]:
        """Stop the timers that are due. Return their ranges, lowest sqns first."""
        expired = []
        while self._instants and self._instants[0] <= now_ns:
            at_ns = heapq.heappop(self._instants)
            due = self._due.pop(at_ns)
            self._entries -= len(due)
            for entry in due:
                if entry.deadline_ns == at_ns:
                    entry.deadline_ns = NEVER
                    expired.append(entry)
        expired.sort(key=FIRST)
        return expired

    def _was_split(self, right: T) -> None:
        if right.deadline_ns != NEVER:
            self._schedule((right,), right.deadline_ns)

    def join(self, left: T, right: T) -> None:
        """Join two adjacent ranges, with the timer of `left`."""
        super().join(left, right)
        right.deadline_ns = NEVER

    def remove(self, old: T) -> None:
        """Remove one range, and stop its timer."""
        super().remove(old)
        old.deadline_ns = NEVER

    def discard_each(self, spans: Iterable[Span]) -> list[T]:
        """Remove and return all (parts of) ranges inside several spans, in order. Their timers stop."""
        removed = super().discard_each(spans)
        for entry in removed:
            entry.deadline_ns = NEVER
        return removed

    def discard(self, first: int, end: int) -> list[T]:
        """Remove and return all (parts of) ranges inside `first` to `end - 1`. Their timers stop."""
        removed = super().discard(first, end)
        for entry in removed:
            entry.deadline_ns = NEVER
        return removed


def lists_of(spans: Sequence[Span], size: int) -> list[list[int]]:
    """Cut spans into lists of at most `size` sqns, in order, one for each NAK."""
    sqns = [first for first, _ in spans]
    if sum([end for _, end in spans]) - sum(sqns) > len(sqns):  # some span has several sqns
        sqns = list(itertools.chain.from_iterable(itertools.starmap(range, spans)))
    return [sqns[at : at + size] for at in range(0, len(sqns), size)]


def without(spans: Iterable[Span], others: Iterable[Span]) -> list[Span]:
    """Return the spans without `others`, which are disjoint."""
    table: RangeTable[SqnRange] = RangeTable()
    for first, end in others:
        table.add(SqnRange(first, end))
    return [gap for first, end in spans for gap in table.uncovered(first, end)]


def merged(spans: Iterable[Span]) -> list[Span]:
    """Sort spans, and join those that touch or overlap."""
    joined: list[Span] = []
    for first, end in sorted(spans):
        if joined and first <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((first, end))
    return joined
