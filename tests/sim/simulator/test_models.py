"""Simulated trees agree with the formulas: a small share of `python -m tests.sim.figures.models`."""

from __future__ import annotations

from pgm.models.back_off import exponential_naks, uniform_naks
from tests.sim.figures.models.back_offs import SILENCE, naks_per_loss


def test_exponential_back_off_spares_most_naks_of_a_thousand() -> None:
    uniform = naks_per_loss(1000, 2, nak_bo="uniform", has_relay=True, group=1000)
    assert abs(uniform / uniform_naks(1000, SILENCE) - 1) < 0.1
    exponential = naks_per_loss(1000, 4, nak_bo="exponential", has_relay=True, group=1000)
    assert exponential < 3 * exponential_naks(1000, SILENCE) < uniform / 8


def test_exponential_back_off_needs_no_ncf_if_naks_are_copied() -> None:
    naks = naks_per_loss(100, 30, nak_bo="exponential", has_relay=False, group=100)
    assert abs(naks / exponential_naks(100, SILENCE) - 1) < 0.4  # three standard errors
