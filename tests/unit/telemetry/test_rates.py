"""Rates over a second, a minute and five minutes, with their peaks."""

from __future__ import annotations

import pytest

from pgm.core.counters import Counters
from pgm.telemetry.rates import Rates
from pgm.units import SECOND
from tests.memory import kept_by

MIDNIGHT = 1_000_000.0


def sampled(gains: list[int]) -> Rates:
    """Return the rates of a node that received these numbers of packets in successive seconds."""
    counters, rates = Counters(), Rates()
    rates.sample(counters, 0, MIDNIGHT)
    for second, gain in enumerate(gains, 1):
        counters.received_packets += gain
        rates.sample(counters, second * SECOND, MIDNIGHT + second)
    return rates


def test_rates_are_those_of_their_windows() -> None:
    found = sampled([100] * 240 + [400] * 60 + [0]).snapshot()["received_packets"]
    assert found["1s"] == {"per_s": 0, "peak_per_s": 400, "peak_at": MIDNIGHT + 241}
    assert found["1min"]["per_s"] == pytest.approx(400 * 59 / 60, abs=0.01)
    assert found["1min"]["peak_per_s"] == 400
    assert found["1min"]["peak_at"] == MIDNIGHT + 300
    assert found["5min"]["per_s"] == pytest.approx((100 * 239 + 400 * 60) / 300, abs=0.01)
    assert found["5min"]["peak_per_s"] == pytest.approx((100 * 240 + 400 * 60) / 300, abs=0.01)


def test_rates_young_node_has_no_peaks_of_long_windows() -> None:
    found = sampled([10] * 5).snapshot()["received_packets"]
    assert found["1min"] == {"per_s": 10, "peak_per_s": 0, "peak_at": None}
    assert found["1s"]["peak_per_s"] == 10


def test_rates_unmoved_counters_are_left_out_and_bounded() -> None:
    rates = Rates()
    counters = Counters()
    assert rates.snapshot() == {}
    for second in range(2000):
        counters.lost_sqns += 1
        rates.sample(counters, second * SECOND, MIDNIGHT + second)
    assert set(rates.snapshot()) == {"lost_sqns"}
    assert len(kept_by(rates)) <= 4 * 302
