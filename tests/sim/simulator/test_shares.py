"""Requests at the source agree with the formulas of the page."""

from __future__ import annotations

from tests.sim.figures.shares import TOLERANCE, lone_repairer, three_subnets


def test_shares_lone_repairer_agrees_with_the_formula_of_check() -> None:
    assert abs(lone_repairer(8, 0.05, packets=3000).error) < TOLERANCE


def test_shares_tree_with_a_killed_repairer_agrees_too() -> None:
    row = three_subnets("repairer-0", messages=4000)
    assert abs(row.error) < TOLERANCE
    assert row.share < 0.055
