"""Range tables against a dictionary of sqns."""

from __future__ import annotations

import itertools
from typing import Any

import attrs
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from pgm.core.structures.ranges import RangeTable, TimedRange, TimedRanges, lists_of, merged, spans_of
from pgm.units import NEVER
from tests.memory import kept_by

SPACE = 60
sqns = st.integers(0, SPACE)
instants = st.integers(0, 50)


@attrs.define(eq=False)
class Tagged(TimedRange):
    """A range with something attached."""

    tag: int = 0


def spans(draw_first, draw_second):
    return min(draw_first, draw_second), max(draw_first, draw_second)


class RangesAsADictionary(RuleBasedStateMachine):
    """Whatever is done to the table by range is done to the model sqn by sqn."""

    def __init__(self) -> None:
        super().__init__()
        self.table: TimedRanges[Tagged] = TimedRanges()
        self.tags: dict[int, int] = {}
        self.timers: dict[int, int] = {}
        self.next_tag = 0

    @rule(one=sqns, other=sqns, deadline=st.one_of(st.none(), instants))
    def fill(self, one: int, other: int, deadline: int | None) -> None:
        first, end = spans(one, other)
        free = [sqn for sqn in range(first, end) if sqn not in self.tags]
        gaps = self.table.uncovered(first, end)
        assert gaps == spans_of(free)
        for low, high in gaps:
            self.next_tag += 1
            added = self.table.add(Tagged(low, high, tag=self.next_tag))
            if deadline is not None:
                self.table.arm(added, deadline)
            for sqn in range(low, high):
                self.tags[sqn] = self.next_tag
                self.timers[sqn] = NEVER if deadline is None else deadline

    @rule(one=sqns, other=sqns)
    def add_apart(self, one: int, other: int) -> None:
        first, end = spans(one, other)
        if first == end:
            return
        is_free = not any(sqn in self.tags for sqn in range(first, end))
        assert self.table.overlaps(first, end) == (not is_free)
        assert self.table.add_apart(Tagged(first, end, tag=self.next_tag + 1)) == is_free
        if is_free:
            self.next_tag += 1
            for sqn in range(first, end):
                self.tags[sqn], self.timers[sqn] = self.next_tag, NEVER

    @rule(edges=st.lists(sqns, min_size=2, max_size=8, unique=True))
    def add_each_apart(self, edges: list[int]) -> None:
        wanted = list(zip(sorted(edges)[::2], sorted(edges)[1::2], strict=False))
        asked = [sqn for first, end in wanted for sqn in range(first, end)]
        is_free = not any(sqn in self.tags for sqn in asked)
        assert self.table.overlaps_any(wanted) == (not is_free)
        new = [Tagged(first, end, tag=self.next_tag + 1) for first, end in wanted]
        assert self.table.add_each_apart(new) == is_free
        if is_free:
            self.next_tag += 1
            for sqn in asked:
                self.tags[sqn], self.timers[sqn] = self.next_tag, NEVER

    @rule(skipped=st.integers(0, 3), count=st.integers(1, 4))
    def discard_a_row(self, skipped: int, count: int) -> None:
        """Ranges next to each other, as they are."""
        wanted = [(one.first, one.end) for one in self.table][skipped : skipped + count]
        found = self.table.discard_each(wanted)
        assert [(one.first, one.end) for one in found] == wanted
        for sqn in [sqn for first, end in wanted for sqn in range(first, end)]:
            del self.tags[sqn], self.timers[sqn]
        assert all(span.deadline_ns == NEVER for span in found)

    @rule(one=sqns, other=sqns, deadline=instants)
    def change(self, one: int, other: int, deadline: int) -> None:
        first, end = spans(one, other)
        found = self.table.within(first, end)
        covered = [sqn for span in found for sqn in range(span.first, span.end)]
        assert covered == [sqn for sqn in range(first, end) if sqn in self.tags]
        for span in found:
            self.next_tag += 1
            span.tag = self.next_tag
            self.table.arm(span, deadline)
            for sqn in range(span.first, span.end):
                self.tags[sqn] = self.next_tag
                self.timers[sqn] = deadline

    @rule(first=sqns, end=sqns)
    def discard(self, first: int, end: int) -> None:
        """A span may end before it begins: sums of numbers off the wire give such spans."""
        found = self.table.discard(first, end)
        assert all(span.count > 0 for span in found)
        gone = [(sqn, span.tag) for span in found for sqn in range(span.first, span.end)]
        assert gone == [(sqn, self.tags[sqn]) for sqn in range(first, end) if sqn in self.tags]
        for sqn, _ in gone:
            del self.tags[sqn], self.timers[sqn]
        assert all(span.deadline_ns == NEVER for span in found)

    @rule(edges=st.lists(sqns, min_size=2, max_size=8))
    def discard_each(self, edges: list[int]) -> None:
        """Spans in order, empty ones and neighbours among them."""
        wanted = list(zip(sorted(edges)[::2], sorted(edges)[1::2], strict=False))
        found = self.table.discard_each(wanted)
        gone = [(sqn, span.tag) for span in found for sqn in range(span.first, span.end)]
        asked = [sqn for first, end in wanted for sqn in range(first, end)]
        assert gone == [(sqn, self.tags[sqn]) for sqn in asked if sqn in self.tags]
        for sqn, _ in gone:
            del self.tags[sqn], self.timers[sqn]
        assert all(span.deadline_ns == NEVER for span in found)

    @rule(counts=st.lists(st.integers(1, 3), min_size=1, max_size=3), deadline=instants)
    def extend(self, counts: list[int], deadline: int) -> None:
        new, at = [], max(self.tags, default=-1) + 1
        for count in counts:
            self.next_tag += 1
            new.append(Tagged(at, at + count, deadline_ns=deadline, tag=self.next_tag))
            for sqn in range(at, at + count):
                self.tags[sqn], self.timers[sqn] = self.next_tag, deadline
            at += count + 1
        self.table.extend(new)

    @rule(sqn=sqns)
    def remove(self, sqn: int) -> None:
        found = self.table.at(sqn)
        assert (found is None) == (sqn not in self.tags)
        if found is not None:
            assert found.tag == self.tags[sqn]
            self.table.remove(found)
            for gone in range(found.first, found.end):
                del self.tags[gone], self.timers[gone]

    @rule(sqn=sqns)
    def join(self, sqn: int) -> None:
        left = self.table.at(sqn)
        right = self.table.at(left.end) if left is not None else None
        if left is None or right is None:
            return
        self.table.join(left, right)
        for joined in range(left.first, left.end):
            self.tags[joined], self.timers[joined] = left.tag, left.deadline_ns

    @rule(now=instants)
    def take_due(self, now: int) -> None:
        due = self.table.take_due(now)
        taken = [sqn for span in due for sqn in range(span.first, span.end)]
        assert taken == sorted(sqn for sqn, at in self.timers.items() if at <= now)
        for sqn in taken:
            self.timers[sqn] = NEVER

    @invariant()
    def the_same_sqns_tags_and_timers(self) -> None:
        held = {sqn: (span.tag, span.deadline_ns) for span in self.table for sqn in range(span.first, span.end)}
        assert held == {sqn: (tag, self.timers[sqn]) for sqn, tag in self.tags.items()}
        assert self.table.sqns == len(self.tags)

    @invariant()
    def ordered_and_disjoint(self) -> None:
        ranges = list(self.table)
        assert all(span.first < span.end for span in ranges)
        assert all(left.end <= right.first for left, right in itertools.pairwise(ranges))
        assert len(self.table) == len(ranges)
        assert self.table.oldest is (ranges[0] if ranges else None)

    @invariant()
    def earliest_timer(self) -> None:
        assert self.table.find_deadline_ns() == min(self.timers.values(), default=NEVER)


TestRangesAsADictionary: Any = RangesAsADictionary.TestCase


def test_a_huge_gap_is_one_range():
    """A loss of a hundred thousand packets costs as much as a loss of one."""
    table: RangeTable[Tagged] = RangeTable()
    table.add(Tagged(0, 100_000))
    assert len(table) == 1
    table.discard(50_000, 50_001)
    assert [(span.first, span.end) for span in table] == [(0, 50_000), (50_001, 100_000)]
    assert table.sqns == 99_999


def test_restarting_timers_leaves_little_behind():
    """Every NAK or NCF that is heard restarts timers; a flood of them must not fill the memory."""
    table: TimedRanges[Tagged] = TimedRanges()
    ranges = [table.add(Tagged(sqn, sqn + 1)) for sqn in range(10)]
    for at in range(10_000):
        table.arm(ranges[at % 10], 1_000_000 + at)
    assert len(kept_by(table)) < 600
    assert table.find_deadline_ns() == 1_000_000 + 9990
    assert table.take_due(1_000_000 + 9994) == ranges[:5]
    assert table.take_due(NEVER - 1) == ranges[5:]


def test_equal_instants_come_lowest_first():
    table: TimedRanges[Tagged] = TimedRanges()
    for sqn in (5, 3, 9, 1):
        table.arm(table.add(Tagged(sqn, sqn + 1)), 7)
    assert [span.first for span in table.take_due(7)] == [1, 3, 5, 9]


@given(
    present=st.lists(st.integers(0, 30), max_size=12),
    asked=st.lists(st.integers(0, 30), max_size=6),
    takes=st.slices(12),
)
def test_ranges_that_are_exactly_what_spans_say(present, asked, takes):
    """Found where cutting finds the same and cuts nothing, and where no other lies between."""
    table = RangeTable()
    for first, end in spans_of(present):
        table.add(TimedRange(first, end))
    there = [(one.first, one.end) for one in table]
    for some in (spans_of(asked), there[takes] if takes.step in {None, 1} else there):
        found = table.exactly(some)
        low = there.index(some[0]) if some and some[0] in there else 0
        assert (found is not None) == (there[low : low + len(some)] == some)
        if found is not None:
            assert found == [one for first, end in some for one in table.within(first, end)]
            assert [(one.first, one.end) for one in table] == there


@given(numbers=st.lists(st.integers(-5, 30)))
def test_spans_of_numbers(numbers):
    found = spans_of(numbers)
    assert [number for first, end in found for number in range(first, end)] == sorted(set(numbers))
    assert all(left[1] < right[0] for left, right in itertools.pairwise(found))


@given(numbers=st.lists(st.integers(0, 200)), size=st.integers(1, 63))
def test_lists_of_spans_are_full_and_in_order(numbers, size):
    found = list(lists_of(spans_of(numbers), size))
    assert [number for part in found for number in part] == sorted(set(numbers))
    assert all(len(part) == size for part in found[:-1])
    assert all(0 < len(part) <= size for part in found)


@given(pairs=st.lists(st.tuples(st.integers(0, 30), st.integers(1, 8)), max_size=8))
def test_merged_spans(pairs):
    given_spans = [(first, first + count) for first, count in pairs]
    found = merged(given_spans)
    assert found == spans_of(number for first, end in given_spans for number in range(first, end))
