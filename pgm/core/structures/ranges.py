"""Ordered, disjoint, half-open ranges of sqns with something attached: missing packets, pending repairs, repair state.

A loss is a range, not a list of packets: a gap of 100,000 packets is one object, and it splits only
where an answer covers a part of it.
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
_STALE_ENTRIES = 64  # left among timers before it is worth clearing out: a guess
FIRST = operator.attrgetter("first")


@attrs.define(eq=False)
class SqnRange:
    """The sqns `first` to `end - 1`. Subclasses add what is known about them."""

    first: int
    end: int

    @property
    def count(self) -> int:
        """How many sqns."""
        return self.end - self.first


R = TypeVar("R", bound=SqnRange)


@functools.cache
def _names(kind: type[SqnRange]) -> tuple[str, ...]:
    return tuple(field.name for field in attrs.fields(kind))


def _twin(one: R) -> R:
    """Another with all that is known about this one. `copy.copy` takes ten times as long for objects with slots."""
    kind: Any = type(one)
    twin: R = object.__new__(kind)
    for name in _names(kind):
        setattr(twin, name, getattr(one, name))
    return twin


class RangeTable(Generic[R]):
    """Ranges by sqn."""

    def __init__(self) -> None:
        self._firsts: list[int] = []
        self._ranges: list[R] = []
        self.sqns = 0  # in all ranges together

    def __len__(self) -> int:
        return len(self._ranges)

    def __iter__(self) -> Iterator[R]:
        return iter(tuple(self._ranges))

    @property
    def oldest(self) -> R | None:
        """The range with the lowest sqns."""
        return self._ranges[0] if self._ranges else None

    def at(self, sqn: int) -> R | None:
        """The range that holds `sqn`."""
        index = bisect_right(self._firsts, sqn) - 1
        return self._ranges[index] if index >= 0 and self._ranges[index].end > sqn else None

    def overlaps(self, first: int, end: int) -> bool:
        """Whether any of `first` to `end - 1` lies in a range."""
        index = bisect_left(self._firsts, end) - 1
        return index >= 0 and self._ranges[index].end > first

    def overlaps_any(self, spans: Sequence[Span]) -> bool:
        """The same of several spans in order: whether any of them reaches into a range."""
        firsts, ranges = self._firsts, self._ranges
        if not firsts or ranges[-1].end <= spans[0][0] or firsts[0] >= spans[-1][1]:
            return False
        for first, end in spans:
            index = bisect_left(firsts, end)
            if index and ranges[index - 1].end > first:
                return True
        return False

    def add(self, new: R) -> R:
        """Insert a range that overlaps none."""
        is_apart = self.add_apart(new)
        assert is_apart, (new, self.within(new.first, new.end))
        return new

    def add_apart(self, new: R) -> bool:
        """Insert a range if it overlaps none; says whether it did not."""
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
        """The same for several in order: all of them, or none."""
        firsts, ranges = self._firsts, self._ranges
        if ranges and ranges[-1].end > new[0].first:
            if self.overlaps_any([(one.first, one.end) for one in new]):
                return False
            index = 0
            for one in new:
                index = bisect_left(firsts, one.first, index)
                firsts.insert(index, one.first)
                ranges.insert(index, one)
        else:
            firsts += [one.first for one in new]
            ranges += new
        self.sqns += sum([one.end - one.first for one in new])
        return True

    def reaching(self, sqn: int = -NEVER) -> Iterator[R]:
        """Ranges from the one that holds `sqn`, or the next, on, or all, those before sqn 0 too; the table must not change meanwhile."""
        index = max(0, bisect_right(self._firsts, sqn) - 1)
        if index < len(self._ranges) and self._ranges[index].end <= sqn:
            index += 1
        at: Callable[[int], R] = self._ranges.__getitem__
        return map(at, range(index, len(self._ranges)))

    def within(self, first: int, end: int) -> list[R]:
        """The ranges inside `first` to `end - 1`, after cutting those that reach across an edge."""
        low = bisect_left(self._firsts, first)
        if low < len(self._ranges) and self._ranges[low].first == first and self._ranges[low].end == end:
            return [self._ranges[low]]  # as it is mostly: one range, and nothing to cut
        low = bisect_right(self._firsts, first) - 1
        if low >= 0 and self._ranges[low].first < first < self._ranges[low].end:
            self._split(low, first)
        low = bisect_left(self._firsts, first)
        high = bisect_left(self._firsts, end)
        if high > low and self._ranges[high - 1].end > end:
            self._split(high - 1, end)
        return self._ranges[low:high]

    def exactly(self, spans: Sequence[Span]) -> list[R] | None:
        """The ranges that are what spans in order say, one for each, if they are neighbours; else None."""
        low = bisect_left(self._firsts, spans[0][0]) if spans else 0
        found = self._ranges[low : low + len(spans)]
        return found if [(one.first, one.end) for one in found] == spans else None

    def _split(self, index: int, at: int) -> None:
        left = self._ranges[index]
        right = _twin(left)
        right.first = at
        left.end = at
        self._firsts.insert(index + 1, at)
        self._ranges.insert(index + 1, right)
        self._was_split(right)

    def _cut_off(self, index: int, end: int) -> R:
        """Take what lies before `end` out of a range that goes on behind it."""
        rest = self._ranges[index]
        cut = _twin(rest)
        cut.end = rest.first = self._firsts[index] = end
        self.sqns -= end - cut.first
        return cut

    def _was_split(self, right: R) -> None:
        """A range was cut in two; `right` is new."""

    def uncovered(self, first: int, end: int) -> list[Span]:
        """The parts of `first` to `end - 1` that lie in no range."""
        gaps, at = [], first
        index = max(0, bisect_right(self._firsts, first) - 1)
        while index < len(self._ranges) and self._ranges[index].first < end:
            found = self._ranges[index]
            if found.first > at:
                gaps.append((at, found.first))
            at = max(at, found.end)
            index += 1
        if at < end:
            gaps.append((at, end))
        return gaps

    def join(self, left: R, right: R) -> None:
        """Make two that touch one: `left` grows by `right`, which is no range any more."""
        index = bisect_left(self._firsts, right.first)
        assert self._ranges[index - 1 : index + 1] == [left, right], (left, right)
        assert left.end == right.first, (left, right)
        del self._firsts[index], self._ranges[index]
        left.end = right.end

    def remove(self, old: R) -> None:
        """Take one range out."""
        index = bisect_left(self._firsts, old.first)
        assert self._ranges[index] is old
        del self._firsts[index], self._ranges[index]
        self.sqns -= old.end - old.first

    def discard(self, first: int, end: int) -> list[R]:
        """Cut out and return everything inside `first` to `end - 1`. An empty span, or one that ends before it begins, cuts nothing."""
        if end <= first:
            return []
        index = bisect_left(self._firsts, first)
        if index < len(self._ranges) and self._firsts[index] == first and self._ranges[index].end > end:
            return [self._cut_off(index, end)]  # as it is while a gap fills in order: it stays what and where it is
        found = self.within(first, end)
        if len(found) == 1:
            self.remove(found[0])
        elif found:
            low = bisect_left(self._firsts, found[0].first)
            del self._firsts[low : low + len(found)], self._ranges[low : low + len(found)]
            self.sqns -= sum([one.end - one.first for one in found])
        return found

    def discard_each(self, spans: Iterable[Span]) -> list[R]:
        """The same for several spans in order."""
        found: list[R] = []
        low, firsts, ranges = 0, self._firsts, self._ranges
        if isinstance(spans, list) and len(spans) > 1:
            low = bisect_left(firsts, spans[0][0])
            high = low + len(spans)
            # Ranges that lie next to each other, as they came, leave together.
            if high <= len(firsts) and firsts[high - 1] == spans[-1][0]:
                found = ranges[low:high]
                if [(one.first, one.end) for one in found] == spans:
                    del firsts[low:high], ranges[low:high]
                    self.sqns -= sum([one.end - one.first for one in found])
                    return found
                found, low = [], 0
        for first, end in spans:
            low = bisect_left(firsts, first, low)
            if low < len(ranges) and ranges[low].first == first and ranges[low].end == end:
                del firsts[low]
                found.append(ranges.pop(low))
                self.sqns -= end - first
            else:
                found += self.discard(first, end)
        return found


@attrs.define(eq=False)
class TimedRange(SqnRange):
    """A range with a timer. NEVER means that none runs; set it by `TimedRanges.arm` only."""

    deadline_ns: int = attrs.field(default=NEVER, kw_only=True)


T = TypeVar("T", bound=TimedRange)


class TimedRanges(RangeTable[T]):
    """Ranges with a timer each: by instant those that are due then, and a heap of the instants.

    What was armed anew or has left stays where it was until its instant comes up, or until such stale entries outnumber the ranges.
    """

    def __init__(self) -> None:
        super().__init__()
        self._due: dict[int, list[T]] = {}
        self._instants: list[int] = []
        self._entries = 0  # in all lists of `_due` together

    def extend(self, new: Sequence[T]) -> None:
        """Insert ranges that lie in order behind all others, with a timer that they share."""
        assert not self._ranges or self._ranges[-1].end <= new[0].first, (self._ranges[-1], new[0])
        self._firsts += [one.first for one in new]
        self._ranges += new
        self.sqns += sum([one.end - one.first for one in new])
        self._put_together(new, new[0].deadline_ns)

    @property
    def next_deadline_ns(self) -> int:
        """The earliest timer."""
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

    def arm(self, one: T, at_ns: int) -> None:
        """Start or restart the timer of a range in the table."""
        if one.deadline_ns != at_ns:
            one.deadline_ns = at_ns
            self._put_together((one,), at_ns)

    def arm_each(self, some: Iterable[T], at_ns: int) -> None:
        """The same for several."""
        others = [one for one in some if one.deadline_ns != at_ns]
        for one in others:
            one.deadline_ns = at_ns
        if others:
            self._put_together(others, at_ns)

    def _put_together(self, some: Sequence[T], at_ns: int) -> None:
        due = self._due.get(at_ns)
        if due is None:
            due = self._due[at_ns] = []
            heapq.heappush(self._instants, at_ns)
        due += some
        self._entries += len(some)
        if self._entries > 2 * len(self._ranges) + _STALE_ENTRIES:
            self._clear_out()

    def _clear_out(self) -> None:
        self._due = {}
        armed = [one for one in self._ranges if one.deadline_ns != NEVER]
        for one in armed:
            self._due.setdefault(one.deadline_ns, []).append(one)
        self._instants = sorted(self._due)
        self._entries = len(armed)

    def take_due(self, now_ns: int) -> list[T]:
        """The ranges whose timer has run out, lowest sqns first; their timers stop."""
        found = []
        while self._instants and self._instants[0] <= now_ns:
            at_ns = heapq.heappop(self._instants)
            due = self._due.pop(at_ns)
            self._entries -= len(due)
            for one in due:
                if one.deadline_ns == at_ns:
                    one.deadline_ns = NEVER
                    found.append(one)
        found.sort(key=FIRST)
        return found

    def _was_split(self, right: T) -> None:
        if right.deadline_ns != NEVER:
            self._put_together((right,), right.deadline_ns)

    def join(self, left: T, right: T) -> None:
        """Make two that touch one, with the timer of `left`."""
        super().join(left, right)
        right.deadline_ns = NEVER

    def remove(self, old: T) -> None:
        """Take one range out and stop its timer."""
        super().remove(old)
        old.deadline_ns = NEVER

    def discard_each(self, spans: Iterable[Span]) -> list[T]:
        """Cut out and return everything inside spans that are in order; their timers stop."""
        found = super().discard_each(spans)
        for one in found:
            one.deadline_ns = NEVER
        return found

    def discard(self, first: int, end: int) -> list[T]:
        """Cut out and return everything inside `first` to `end - 1`; their timers stop."""
        found = super().discard(first, end)
        for one in found:
            one.deadline_ns = NEVER
        return found


def lists_of(spans: Sequence[Span], size: int) -> list[list[int]]:
    """Cut spans into lists of at most `size` sqns, in order: one NAK each."""
    sqns = [first for first, _ in spans]
    if sum([end for _, end in spans]) - sum(sqns) > len(sqns):  # not scattered ones, each by itself
        sqns = list(itertools.chain.from_iterable(itertools.starmap(range, spans)))
    return [sqns[at : at + size] for at in range(0, len(sqns), size)]


def without(spans: Iterable[Span], others: Iterable[Span]) -> list[Span]:
    """What is left of spans when others, that lie within them, are taken out."""
    table: RangeTable[SqnRange] = RangeTable()
    for first, end in others:
        table.add(SqnRange(first, end))
    return [gap for first, end in spans for gap in table.uncovered(first, end)]


def merged(spans: Iterable[Span]) -> list[Span]:
    """Sort spans and join those that touch."""
    joined: list[Span] = []
    for first, end in sorted(spans):
        if joined and first <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((first, end))
    return joined
