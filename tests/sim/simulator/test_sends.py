"""Sends per packet agree with the formula."""

from __future__ import annotations

import pytest

from tests.sim.figures.sends import TOLERANCE, expected_sends, rows


@pytest.mark.parametrize(("nodes", "sends"), [(1, 1.010), (100, 1.644), (10**4, 2.642), (10**6, 3.642)])
def test_formula_gives_the_published_means(nodes: int, sends: float) -> None:
    assert expected_sends(0.01, nodes) == pytest.approx(sends, abs=6e-4)


@pytest.mark.parametrize("tree", ["flat", "two tiers"])
def test_each_link_carries_as_many_sends_as_the_formula_says(tree: str) -> None:
    found = list(rows(tree, 0.1, packets=300))
    assert [row for row in found if abs(row.error) > TOLERANCE] == []
    assert all(row.sends > 1.2 for row in found)
