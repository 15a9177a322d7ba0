"""How many transmission groups are asked for at a time."""

from __future__ import annotations

import pytest

from pgm.core.recovery.group_limit import GroupLimit
from pgm.core.recovery.missing_range import MissingRange
from pgm.core.structures.ranges import TimedRanges
from pgm.units import NEVER

LIMIT = GroupLimit(8, 3)


def end_of(table, trail):
    LIMIT.review(table, trail)
    return LIMIT.end_sqn


def table_of(*spans):
    table = TimedRanges()
    for first, end in spans:
        table.add(MissingRange(first, end))
    return table


@pytest.mark.parametrize(
    ("spans", "end"),
    [
        ([(0, 24)], NEVER),
        ([(0, 25)], 24),
        ([(2, 3), (4, 9), (16, 17)], NEVER),
        ([(2, 3), (4, 9), (16, 17), (50, 60)], 48),
        ([(2, 3), (4, 9), (40, 60)], 48),
        ([(100, 1000)], 120),
        ([(100, 118), (119, 120)], NEVER),
    ],
)
def test_group_limit_of_three_groups_ends_behind_the_third(spans, end):
    assert end_of(table_of(*spans), 0) == end


def test_group_limit_counts_no_group_below_the_trail():
    assert end_of(table_of((0, 4), (8, 9), (20, 50)), 19) == 40


@pytest.mark.parametrize(("left", "is_freed"), [([(0, 2)], False), ([(8, 9)], True), ([], True)])
def test_group_limit_is_freed_by_a_group_that_lacks_nothing(left, is_freed):
    assert LIMIT.is_freed(table_of(*left), [MissingRange(2, 8)]) is is_freed
