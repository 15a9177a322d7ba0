"""Draws of the back-off follow the distribution of `nak_bo`, from the injected generator alone."""

from __future__ import annotations

import math
import random

import pytest

from pgm.core.polling.back_off import draw_back_off
from pgm.models.back_off import exponential_naks
from pgm.units import MILLISECOND
from tests.unit.core.makers import parameters
from tests.unit.core.recovery.recoveries import recovery

IVL = 10 * MILLISECOND


def draws(count: int, **changes: object) -> list[int]:
    settings, rng = parameters(**changes), random.Random(7)
    return [draw_back_off(settings, IVL, rng) for _ in range(count)]


def test_back_off_uniform_is_the_default_of_the_rfc() -> None:
    rng = random.Random(7)
    assert draws(100) == [rng.randint(1, IVL) for _ in range(100)]
    assert recovery(parameters(nak_bo_ivl=IVL), seed=7).draw_back_off() == draws(1)[0]


def test_back_off_exponential_is_that_of_rfc_5401() -> None:
    found = sorted(draws(10_000, nak_bo="exponential", nak_bo_group=1000))
    assert found[0] >= 1
    assert found[-1] <= IVL
    rate = math.log(1000) + 1
    for share in (0.1, 0.5, 0.9):
        expected = IVL * math.log1p(share * math.expm1(rate)) / rate
        assert found[int(share * 10_000)] == pytest.approx(expected, rel=0.02)


def test_back_off_exponential_takes_17_naks_of_ten_thousand() -> None:
    naks = []
    settings, rng = parameters(nak_bo="exponential", nak_bo_group=10_000), random.Random(1)
    for _ in range(20):
        times = [draw_back_off(settings, IVL, rng) for _ in range(10_000)]
        end = min(times) + IVL // 4
        naks.append(sum(time < end for time in times))
    mean = sum(naks) / len(naks)
    assert abs(mean - exponential_naks(10_000, 0.25)) < 2 * 12.3 / math.sqrt(len(naks))  # twice the standard error


def test_back_off_of_a_group_of_one_stays_within_the_interval() -> None:
    assert max(draws(1000, nak_bo="exponential", nak_bo_group=1)) <= IVL
