"""Small share of the grid of storms: the goodput is back soon after the trigger, and repairs keep to their share."""

from __future__ import annotations

import pytest

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
