"""Small share of the grid of storms: the goodput is back soon after the trigger, and repairs keep to their share."""

from __future__ import annotations

from typing import Any

import pytest

from tests.sim.support import floods
from tests.sim.support.storms import TREES, TRIGGERS, run


@pytest.mark.parametrize(
    ("trigger", "load", "tree"),
    [
        ("flood of NAKs of one receiver for 5 s", 0.6, "flat"),
        ("flood of NAKs of one receiver for 5 s", 0.3, "two tiers"),
        ("uplinks down for 3 s", 0.3, "two tiers"),
        ("all receivers stopped for 3 s", 0.6, "flat"),
    ],
)
def test_goodput_is_back_after_the_trigger(trigger: str, load: float, tree: str) -> None:
    outcome = run(TRIGGERS[trigger], load, TREES[tree])
    assert outcome.holds, outcome
    assert outcome.lost == 0


def assert_honest_are_unharmed(place: str, rate: int, addresses: int, **more: Any) -> None:
    outcome = floods.run(place, rate, addresses, **more)
    assert outcome.lost == 0
    assert outcome.median_ms <= 10
    assert outcome.p99_ms <= (600 if addresses == 0 else 150)
    assert outcome.braked == 0
    assert not any("excessive" in text for _, text in outcome.notices)


@pytest.mark.parametrize("place", ["source", "relay"])
def test_flood_from_many_addresses_harms_no_honest_receiver(place: str) -> None:
    assert_honest_are_unharmed(place, 20_000, 100, for_s=1)


def test_flood_with_unnamed_receivers_harms_no_proven_one() -> None:
    assert_honest_are_unharmed("repairer", 6000, 100, for_s=1, are_named=False)


def test_flood_of_a_named_receiver_spends_no_relays_allowance() -> None:
    assert_honest_are_unharmed("relay", 6000, 0, for_s=1)


def test_widest_flood_harms_no_honest_receiver() -> None:
    """Tests the worst of `floods.FLOODS`. `python -m tests.sim.support.floods` runs all of them, at three places."""
    assert_honest_are_unharmed("relay", *floods.FLOODS[-1])
