"""Polling before sleeping: only if answers come soon, and never for a slow stream."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pgm.net.driver.adaptive_polling import AdaptivePolling
from pgm.units import MICROSECOND, MILLISECOND

IVL = 150 * MICROSECOND


def test_nothing_is_looked_for_until_a_sleep_was_short() -> None:
    looks = AdaptivePolling(IVL)
    assert looks.ivl == 0
    looks.woke(MILLISECOND)
    assert looks.ivl == 0
    looks.woke(IVL)
    assert looks.ivl == IVL


def test_answers_that_come_soon_are_looked_for_all_the_time() -> None:
    looks = AdaptivePolling(IVL)
    looks.woke(IVL)
    for _ in range(1000):
        looks.polled(IVL // 4, found=True)
        assert looks.ivl == IVL


def test_one_long_sleep_ends_it() -> None:
    looks = AdaptivePolling(IVL)
    looks.woke(IVL)
    looks.polled(IVL // 4, found=True)
    looks.woke(10 * IVL)
    assert looks.ivl == 0


def test_polling_continues_briefly_after_slow_answer() -> None:
    looks = AdaptivePolling(IVL)
    looks.woke(IVL)
    for _ in range(5):
        looks.polled(IVL * 3 // 4, found=True)
        assert looks.ivl == IVL
    for _ in range(10):
        looks.polled(IVL * 3 // 4, found=True)
    assert looks.ivl == 0


def test_polling_stops_for_long_after_an_interrupted_poll() -> None:
    looks = AdaptivePolling(IVL)
    looks.woke(IVL)
    looks.polled(5 * MILLISECOND, found=True)
    sleeps = 0
    while not looks.ivl:
        looks.woke(IVL)
        sleeps += 1
    assert 500 < sleeps < 1100


def test_without_time_to_look_nothing_is_ever_looked_for() -> None:
    looks = AdaptivePolling(0)
    for ns in (0, 1, MILLISECOND):
        looks.woke(ns)
        assert looks.ivl == 0


@given(st.lists(st.tuples(st.integers(0, 10 * IVL), st.integers(0, 2 * IVL), st.booleans()), min_size=1, max_size=300))
def test_polling_costs_little_more_than_the_sleeps_it_spares(
    steps: list[tuple[int, int, bool]],
) -> None:
    looks, spent, sleeps, spared = AdaptivePolling(IVL), 0, 0, 0
    for sleep_ns, look_ns, found in steps:
        if looks.ivl:
            looks.polled(look_ns, found=found)
            spent, spared = spent + look_ns, spared + found
        if not looks.ivl or not found:
            looks.woke(sleep_ns)
            sleeps += 1
    longest_more = 2 * IVL  # the last look may take the account below nothing
    assert spent <= spared * IVL // 2 + sleeps * IVL // 128 + 2 * IVL + longest_more
