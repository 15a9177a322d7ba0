"""Late joiners below elements without the wanted history.

The nearest repairer above serves the history, once for all joiners.
"""

from __future__ import annotations

import pytest

from pgm.core.effects import LossCause
from pgm.sim.faults import Faults
from pgm.units import SECOND
from tests.sim.support.late_join import BEFORE, LOWER, MESSAGES, RATE, late_below, late_ones, questions, repairs
from tests.sim.support.worlds import MS, finish, stream

WISHES = {
    "oldest": ({"join_from": "oldest"}, 0),
    "count": ({"join_from": "last", "join_sqns": 800}, BEFORE - 800),
    "time": ({"join_from": "last", "join_secs": 4 * SECOND}, BEFORE - 4 * RATE),
    "sqn": ({"join_from": "sqn", "join_sqns": 923}, 923),
}


@pytest.mark.parametrize(
    ("lower", "wish"), [*(("aggregator", wish) for wish in WISHES), *((lower, "sqn") for lower in LOWER[1:])]
)
def test_it_begins_where_it_wants_to_and_the_source_hears_nothing(lower: str, wish: str) -> None:
    wanted, first = WISHES[wish]
    world, tap = late_below(lower, **wanted)
    finish(world)
    got = stream(world, "late-0")
    assert abs(got.first - first) <= (2 * RATE if wish in ("count", "time") else 0)
    assert got.first + got.delivered_sqns == MESSAGES
    assert not got.lost
    assert world.nodes["source"].total("nak_packets_in") == 0
    assert world.nodes["source"].total("rdata_packets") == 0
    assert repairs(tap, "upper") <= BEFORE + RATE - got.first
    assert world.nodes["early"].total("duplicate_packets") == 0, "history goes to the late one alone"


@pytest.mark.parametrize("lower", ["aggregator", "repairer"])
def test_all_that_come_at_once_cost_the_repairer_above_one_copy(lower: str) -> None:
    world, tap = late_below(lower, 8, messages=2000, join_from="oldest")
    finish(world)
    for name in late_ones(world):
        got = stream(world, name)
        assert (got.first, got.delivered_sqns) == (0, 2000), name
        assert not got.lost
    assert world.nodes["source"].total("nak_packets_in") == 0
    # The lower element holds the rest itself: an aggregator its relay_cache_ivl of 2 s, a late repairer 1 s.
    history = BEFORE - (2 * RATE if lower == "aggregator" else RATE)
    assert history - RATE < repairs(tap, "upper") < history * 1.05 + RATE
    assert BEFORE - RATE < repairs(tap, "lower") < BEFORE * 1.05 + RATE
    assert questions(tap, "lower") <= 2 * 8 + 2, "one that goes up, and an answer for each"


@pytest.mark.parametrize("lower", ["aggregator", "repairer"])
def test_late_join_tiers_history_held_nowhere_is_lost_at_once(lower: str) -> None:
    world, _ = late_below(lower, keeps={"cache_secs": 3 * SECOND}, join_from="sqn", join_sqns=100)
    world.run_until(20 * SECOND)
    got = stream(world, "late-0")
    assert got.first == 100
    assert set(got.lost) == {LossCause.WINDOW}
    assert got.lost_sqns + got.delivered_sqns == MESSAGES - 100
    assert BEFORE - 5 * RATE < 100 + got.lost_sqns < BEFORE - 2 * RATE
    assert world.nodes["source"].total("nak_packets_in") == 0


@pytest.mark.parametrize("lower", ["aggregator", "repairer"])
@pytest.mark.parametrize("crashing", ["lower", "upper"])
def test_an_element_that_starts_anew_in_the_middle(lower: str, crashing: str) -> None:
    """A restarted lower element still gets all history from its parent.

    If the upper element restarts, the only copy is gone, and its loss is reported at once.
    """
    world, _ = late_below(lower, 2, messages=2200, join_from="oldest")
    Faults(world).crash_and_restart(crashing, 8 * SECOND + 300 * MS, SECOND // 2)
    world.run_until(14 * SECOND)
    for name in late_ones(world):
        got = stream(world, name)
        assert got.first == 0
        assert got.delivered_sqns + got.lost_sqns == 2200
        assert set(got.lost) == (set() if crashing == "lower" else {LossCause.WINDOW})
    assert world.nodes["source"].total("rdata_packets") < RATE, "a restarted repairer's own losses at most"


def test_late_join_tiers_named_start_without_caches_is_lost() -> None:
    world, tap = late_below("aggregator", keeps={"cache_bytes": 1}, join_from="sqn", join_sqns=100)
    joined_ns = 8 * SECOND
    world.run_until(joined_ns + SECOND)
    got = stream(world, "late-0")
    assert got.first == 100
    assert set(got.lost) == {LossCause.WINDOW}
    assert got.delivered_sqns > 0
    assert repairs(tap, "upper") == 0
