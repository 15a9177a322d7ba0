"""Buckets and the pacer: what may leave in any interval, however late anybody asks."""

import random

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgm.core.pacing.pacer import Pacer
from pgm.core.pacing.token_bucket import TokenBucket
from pgm.units import MICROSECOND, MILLISECOND, SECOND
from pgm.wire.train import MAX_CONVOY_OCTETS, MAX_TRAIN_OCTETS
from tests.unit.core.makers import parameters

rates = st.sampled_from([1, 7, 1000, 2000, 999_983, 25_000_000, 3_000_000_007, 125_000_000_000])


def assert_within(taken, rate, burst_ns, extra=0):
    """In any interval T at most burst + rate x T, in whole units."""
    for index, (start, _) in enumerate(taken):
        total = 0
        for at, amount in taken[index:]:
            total += amount
            assert (total - extra) * SECOND <= rate * (burst_ns + at - start), (start, at, total)


@pytest.mark.rfc("SRC-03")
@given(rate=rates, burst_ns=st.integers(1, SECOND), seed=st.integers(0, 1 << 30))
def test_bucket_never_gives_more_than_burst_and_rate(rate, burst_ns, seed):
    """Over random traffic and late calls."""
    rng = random.Random(seed)
    bucket = TokenBucket(rate, burst_ns)
    holds = rate * burst_ns // SECOND
    if not holds:
        return
    now, taken = rng.randrange(10 * SECOND), []
    for _ in range(60):
        now += rng.choice([0, 1, rng.randrange(burst_ns + 1), rng.randrange(3 * burst_ns + 1)])
        amount = rng.randint(1, max(1, min(holds, rng.choice([1, 10, holds]))))
        available = bucket.available(now)
        could = bucket.ready_at(amount) <= now
        assert could == (amount <= available) or abs(amount - available) <= 1  # spare time between two units
        assert bucket.take(amount, now) == could
        if could:
            taken.append((now, amount))
    assert_within(taken, rate, burst_ns)


@given(rate=rates, burst_ns=st.integers(1, SECOND), amount=st.integers(0, 100), now=st.integers(0, SECOND))
def test_token_bucket_available_units_can_be_taken(rate, burst_ns, amount, now):
    bucket = TokenBucket(rate, burst_ns)
    bucket.charge(amount, now)
    available = bucket.available(now)
    assert not available or bucket.take(available, now)


def test_ready_is_the_first_instant_at_which_it_can_be_taken():
    bucket = TokenBucket(1000, 10 * MILLISECOND)
    assert bucket.take(10, SECOND)
    assert not bucket.take(4, SECOND)
    at = bucket.ready_at(4)
    assert at == SECOND + 4 * MILLISECOND
    assert not bucket.take(4, at - 1)
    assert bucket.take(4, at)


def test_more_than_the_bucket_holds_waits_for_a_full_one():
    bucket = TokenBucket(1000, 10 * MILLISECOND)
    assert bucket.take(25, SECOND)
    assert bucket.ready_at(25) == SECOND + 25 * MILLISECOND
    assert bucket.ready_at(1) == SECOND + 16 * MILLISECOND


@pytest.mark.rfc("SRC-03")
def test_idle_time_is_worth_one_burst():
    """A bucket of one second would let a whole second's traffic out after a pause."""
    bucket = TokenBucket(1000, 10 * MILLISECOND)
    assert bucket.take(10, 0)
    assert bucket.available(3600 * SECOND) == 10


@given(late_ns=st.integers(0, 4 * MILLISECOND))
def test_late_calls_lose_nothing(late_ns):
    """A driver that serves deadlines late, by less than the bucket allows, still reaches the rate."""
    bucket = TokenBucket(1_000_000, 5 * MILLISECOND)
    now = 0
    for _ in range(1000):
        now = max(now, bucket.ready_at(1000) + late_ns)
        assert bucket.take(1000, now)
    assert now <= 1000 * MILLISECOND


@st.composite
def pacers(draw):
    return parameters(
        txw_max_rte=draw(st.sampled_from([1000, 125_000, 25_000_000, 1_250_000_000])),
        txw_burst_ivl=draw(st.sampled_from([100 * MICROSECOND, 5 * MILLISECOND, SECOND])),
        rdata_share=draw(st.sampled_from([0.001, 0.25, 0.5, 1.0])),
        max_tpdu=draw(st.sampled_from([128, 1472, 9000, 65_507])),
        txw_peak_ratio=draw(st.sampled_from([1, 4])),
    )


def take(pacer, rng, now, settings, everything, repairs):
    """Send data or a repair as soon as it may go; notes it, and returns when that was."""
    octets = rng.randint(100, pacer.train_octets)
    if rng.random() < 0.5:
        now = max(now, pacer.repair_ready_at(octets))
        octets = min(octets, pacer.repair_room(now))
        assert octets >= min(100, settings.max_tpdu)
        pacer.repair_sent(octets, now)
        repairs.append((now, octets))
    else:
        now = max(now, pacer.data_ready_at(octets))
        pacer.data_sent(octets, now)
    everything.append((now, octets))
    return now


def assert_paced(settings, rate, everything, repairs):
    """All octets keep to the rate, and repairs to their share, each with its burst."""
    packet_ns = -(-settings.max_tpdu * SECOND // rate) + 1 + min(settings.txw_slack_ivl, settings.txw_burst_ivl // 2)
    assert_within(everything, rate, max(settings.txw_burst_ivl, packet_ns))
    share = max(1, round(rate * settings.rdata_share))
    whole_ns = min(SECOND, max(settings.txw_burst_ivl, packet_ns) * rate // share)
    packet_ns = -(-settings.max_tpdu * SECOND // share) + 1
    assert_within(repairs, share, max(whole_ns, packet_ns))


@pytest.mark.rfc("SRC-02", "SRC-03", "SRC-04", "SRC-05")
@given(settings=pacers(), seed=st.integers(0, 1 << 30))
def test_pacer_holds_the_rate_and_the_repairs_to_their_share(settings, seed):
    """Sent as soon as allowed or later, data and repairs in any mixture."""
    rng = random.Random(seed)
    pacer = Pacer(settings)
    now, everything, repairs = 0, [], []
    for _ in range(60):
        now = take(pacer, rng, now, settings, everything, repairs)
        now += rng.choice([0, 0, 0, rng.randrange(SECOND)])
    assert_paced(settings, settings.txw_max_rte, everything, repairs)


def test_a_packet_always_fits_a_train():
    """However slow the line and however short the burst: a bucket that never fills would stop the source."""
    for rate in (1000, 25_000_000):
        for max_tpdu in (128, 65_507):
            pacer = Pacer(
                parameters(txw_max_rte=rate, max_tpdu=max_tpdu, txw_burst_ivl=100 * MICROSECOND, rdata_share=0.001)
            )
            assert pacer.train_octets >= max_tpdu
            assert pacer.repair_octets >= max_tpdu
            now = 3600 * 24 * 365 * SECOND
            pacer.repair_sent(max_tpdu, now)
            now = pacer.repair_ready_at(max_tpdu)
            assert pacer.repair_room(now) >= max_tpdu


def test_trains_are_as_long_as_the_burst():
    """At 1 Mbit/s 64 KB would be half a second of line."""
    assert Pacer(parameters(txw_max_rte=125_000)).train_octets == 1472
    assert Pacer(parameters(txw_max_rte=2_500_000)).train_octets == 6250
    assert Pacer(parameters(txw_max_rte=1_250_000_000)).train_octets == MAX_CONVOY_OCTETS
    # Several trains at once are no faster than the peak rate allows; one train may be.
    for peak_ivl in (1000, MILLISECOND):
        pacer = Pacer(parameters(txw_max_rte=25_000_000, txw_burst_ivl=20 * MILLISECOND, txw_peak_ivl=peak_ivl))
        assert pacer.train_octets == max(MAX_TRAIN_OCTETS, 4 * 25_000_000 * peak_ivl // SECOND)


@pytest.mark.rfc("SRC-04")
@pytest.mark.parametrize("ratio", [1, 4])
def test_peak_rate_keeps_successive_trains_apart(ratio):
    """The leaky bucket beside the token bucket."""
    pacer = Pacer(parameters(txw_max_rte=1_000_000, txw_burst_ivl=SECOND, txw_peak_ratio=ratio, txw_peak_ivl=1))
    pacer.data_sent(10_000, SECOND)
    gap = pacer.data_ready_at(10_000) - SECOND
    assert abs(gap - 10_000 * SECOND // (1_000_000 * ratio)) <= 1


@pytest.mark.parametrize("rate", [125_000, 2_000_000, 60_000_000, 160_000_000, 250_000_000])
def test_timers_of_a_millisecond_keep_the_rate(rate):
    """A driver that wakes late, by up to two milliseconds, sends more then, and loses nothing of the rate."""
    pacer, rng = Pacer(parameters(txw_max_rte=rate)), random.Random(rate)
    now, sent = SECOND, 0
    while now < 4 * SECOND:
        ready = pacer.data_ready_at(pacer.train_octets)
        if ready > now:
            now += -(-(ready - now) // MILLISECOND) * MILLISECOND + rng.randrange(MILLISECOND)
            continue
        pacer.data_sent(pacer.train_octets, now)
        sent += pacer.train_octets
    assert 0.98 * 3 * rate <= sent <= 1.02 * 3 * rate


@pytest.mark.rfc("SRC-03", "SRC-05")
@given(settings=pacers(), seed=st.integers(0, 1 << 30))
def test_a_rate_that_is_changed_holds_from_then_on(settings, seed):
    """Whatever was sent before at another one, and repairs have their share of the new one."""
    rng = random.Random(seed)
    pacer, now = Pacer(settings), SECOND
    for rate in rng.choices([1000, 125_000, 25_000_000, 1_250_000_000], k=4):
        pacer.set_rate(rate, now)
        fresh = Pacer(attrs.evolve(settings, txw_max_rte=rate))
        everything, repairs = [], []
        for _ in range(15):
            now = take(pacer, rng, now, settings, everything, repairs)
        assert pacer.rate == rate
        assert (pacer.train_octets, pacer.repair_octets) == (fresh.train_octets, fresh.repair_octets)
        assert_paced(settings, rate, everything, repairs)


def test_nobody_waits_longer_at_a_new_rate_than_for_one_bucket():
    """A packet at 8 kbit/s is paid for in a second and a half, and no more once the rate is another."""
    pacer = Pacer(parameters(txw_max_rte=1000))
    pacer.data_sent(1472, SECOND)
    assert pacer.data_ready_at(1472) > 2 * SECOND
    pacer.set_rate(25_000_000, SECOND)
    assert pacer.data_ready_at(1472) <= SECOND
    pacer.data_sent(pacer.train_octets, SECOND)
    pacer.set_rate(1000, SECOND)
    assert SECOND < pacer.data_ready_at(1472) <= 3 * SECOND
