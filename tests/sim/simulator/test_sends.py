"""Sends per packet agree with the formula."""

from __future__ import annotations

import pytest

from tests.sim.figures.sends import TOLERANCE, rows


@pytest.mark.parametrize("tree", ["flat", "two tiers"])
def test_each_link_carries_as_many_sends_as_the_formula_says(tree: str) -> None:
    found = list(rows(tree, 0.1, packets=300))
    assert [row for row in found if abs(row.error) > TOLERANCE] == []
    assert all(row.sends > 1.2 for row in found)
