"""Predictions of `pgm plan` hold in simulations; `tests.sim.figures.plans` has ten trees and longer runs."""

from __future__ import annotations

from tests.sim.figures.plans import line, row


def test_prediction_is_near_the_simulation() -> None:
    found = row("three tiers, 2 %", packets=1000)
    assert abs(found.error("sends")) < 0.02
    assert abs(found.error("naks")) < 0.2
    assert abs(found.error("p50_ms")) < 0.2
    assert abs(found.error("p99_ms")) < 0.5
    assert line(found).count("|") == 14
