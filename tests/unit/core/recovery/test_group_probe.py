"""What is asked for first of groups that may be short."""

from __future__ import annotations

import pytest

from pgm.core.recovery.group_limit import GroupProbe
from pgm.core.recovery.missing_range import MissingRange
from tests.unit.core.recovery.test_group_limit import table_of

PROBE = GroupProbe(8)


def first_of(spans, trail=0, most=63):
    """The spans asked for first, of all ranges in order."""
    table = table_of(*spans)
    return [(part.first, part.end) for found in table for part in PROBE.asked_first(table, found, trail, most)]


@pytest.mark.parametrize(
    ("spans", "asked"),
    [
        ([(0, 24)], [(7, 8), (15, 16), (23, 24)]),
        ([(0, 20)], [(7, 8), (15, 16), (16, 20)]),
        ([(3, 8)], [(7, 8)]),
        ([(3, 5)], [(3, 5)]),
        ([(3, 5), (7, 8)], [(7, 8)]),
        ([(3, 10), (12, 18)], [(7, 8), (15, 16), (16, 18)]),
    ],
)
def test_group_probe_asks_for_last_sqns_first(spans, asked):
    assert first_of(spans) == asked


def test_group_probe_asks_for_no_more_than_there_is_room_for():
    assert first_of([(0, 800)], most=2) == [(7, 8), (15, 16)]


def test_group_probe_of_a_group_that_has_partly_left_asks_for_all():
    assert first_of([(2, 3), (4, 24)], trail=5) == [(2, 3), (4, 8), (15, 16), (23, 24)]
    assert not PROBE.is_held(table_of((2, 3), (7, 8)), MissingRange(2, 3), 5)


@pytest.mark.parametrize(("arrived", "is_freed"), [((2, 7), False), ((7, 8), True), ((8, 9), False), ((5, 12), True)])
def test_group_probe_is_freed_by_a_last_sqn(arrived, is_freed):
    assert PROBE.is_freed(table_of(), [MissingRange(*arrived)]) is is_freed
