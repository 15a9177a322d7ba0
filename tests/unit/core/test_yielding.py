"""A source that slows down while it is asked for too much, and only if it is told to."""

import pytest

from pgm.core.effects import Notice
from pgm.core.yielding import Yielding
from pgm.units import SECOND
from tests.unit.core.makers import BY_UNICAST, MS, OWN, PEER, nak_packet, parameters, payload_of, train_of
from tests.unit.core.sources import START, source

FASTEST, LEAST = 1_000_000, 100_000
SETTINGS = {"txw_max_rte": FASTEST, "txw_min_rte": LEAST, "txw_yield_share": 0.05, "txw_yield_ivl": 100 * MS}


def rates(shares, octets=FASTEST, **changes):
    """The rate after each interval in which so large a share of a thousand packets, and octets, was asked for."""
    made, found = Yielding(parameters(**SETTINGS | changes)), []
    made.review(0)
    for number, share in enumerate(shares, 1):
        made.sent(1000, octets)
        made.asked(round(1000 * share))
        made.review(number * 100 * MS)
        found.append(made.rate)
    return found


def test_the_rate_falls_by_quarters_while_too_much_is_asked_for_and_never_below_the_least():
    found = rates([0.06] * 12)
    assert found[:3] == [750_000, 562_500, 421_875]
    assert found[-1] == LEAST


def test_the_rate_stays_in_between_and_grows_back_by_steps_to_the_whole():
    found = rates([1.0] * 4 + [0.03] * 3 + [0.0125] * 50)
    assert found[3:7] == [found[3]] * 4
    assert found[7] == found[6] + FASTEST // 40
    assert found[-1] == FASTEST


def test_what_was_sent_and_not_what_might_have_been_is_cut():
    assert rates([0.06], octets=40_000) == [300_000]


@pytest.mark.parametrize("rest", [0, 10])
@pytest.mark.parametrize(("asked", "slows"), [(20, False), (200, True)])
def test_naks_that_come_when_a_burst_is_over_are_held_against_the_burst(rest, asked, slows):
    """Some losses in its last packets are no source that is too fast; many are."""
    made = Yielding(parameters(**SETTINGS))
    made.review(0)
    made.sent(1000, FASTEST // 10)
    assert not made.review(100 * MS)
    assert not made.review(200 * MS)  # and nothing is sent
    made.sent(rest, 100 * rest)
    made.asked(asked)
    assert made.review(300 * MS) is slows
    assert made.rate == (LEAST if slows else FASTEST)


@pytest.mark.parametrize(("asked", "slows"), [(1, False), (3, False), (4, True)])
def test_a_few_losses_of_the_few_packets_that_a_slow_source_sends_are_chance(asked, slows):
    """One of ten is more than the share, and comes in every tenth interval where a hundredth is lost."""
    made = Yielding(parameters(**SETTINGS))
    made.review(0)
    made.sent(10, 1000)
    made.asked(asked)
    assert made.review(100 * MS) is slows


def test_without_a_least_rate_nobody_slows_a_source_down():
    assert rates([1.0] * 20, txw_min_rte=0) == [FASTEST] * 20


@pytest.mark.parametrize("interval", [0, 99])
def test_an_interval_is_waited_for(interval):
    made = Yielding(parameters(**SETTINGS))
    made.review(0)
    made.sent(1000, FASTEST)
    made.asked(1000)
    assert not made.review(interval * MS)
    assert made.rate == FASTEST
    assert made.review(100 * MS)


def serve(core, since, until, asking):
    """Always something to send, the last packet of each train asked for if `asking`; octets sent and notices."""
    core.submit([payload_of(1, 1000)] * 100)
    now, sent, notices = START + since * SECOND, 0, []
    while now < START + until * SECOND:
        if core.window.unsent_octets < FASTEST // 10:
            core.submit([payload_of(1, 1000)] * 100)
        for effect in core.handle_deadline(now):
            if isinstance(effect, Notice):
                notices.append(effect.code)
            elif effect.is_data:
                sent += len(effect.octets)
                sqn = core.window.lead
                if asking:
                    core.receive(train_of(nak_packet(sqn, source_nla=OWN)), BY_UNICAST, PEER, now)
        now = max(now, core.deadline_ns)
    return sent, notices


def test_a_source_sends_less_while_it_is_asked_for_much_and_as_much_as_before_afterwards():
    core = source(**SETTINGS | {"txw_secs": SECOND})
    before, _ = serve(core, 0, 1, asking=False)
    _, fell = serve(core, 1, 3, asking=True)
    during, _ = serve(core, 3, 4, asking=True)
    _, rose = serve(core, 4, 10, asking=False)
    after, _ = serve(core, 10, 11, asking=False)
    assert before == pytest.approx(FASTEST, rel=0.1)
    assert during < 1.3 * LEAST
    assert after == pytest.approx(FASTEST, rel=0.1)
    assert (fell, rose) == (["slower"], ["as-before"])
    assert core.counters.rate_cuts >= 2


def test_a_rate_that_was_set_is_the_whole_from_then_on():
    """One at which it yields stays, unless it is above; it grows back to what was set."""
    made = Yielding(parameters(**SETTINGS))
    made.limit_to(FASTEST // 2)
    assert made.rate == FASTEST // 2
    made.limit_to(FASTEST)
    assert made.rate == FASTEST
    made.review(0)
    made.sent(1000, FASTEST)
    made.asked(60)
    made.review(100 * MS)
    assert made.rate == 750_000
    made.limit_to(800_000)
    assert made.rate == 750_000
    for number in range(2, 20):
        made.sent(1000, FASTEST)
        made.review(number * 100 * MS)
    assert made.rate == made.most == 800_000
    made.limit_to(FASTEST // 4)
    assert made.rate == FASTEST // 4


def test_a_source_goes_at_the_rate_that_was_set_and_says_when_it_yields():
    core = source(**{**SETTINGS, "txw_burst_ivl": MS})
    assert (core.rate, core.rate_set) == (FASTEST, FASTEST)
    core.set_rate(FASTEST // 2, START)
    assert (core.rate, core.rate_set) == (FASTEST // 2, FASTEST // 2)
    core.submit([payload_of(sqn, 1000) for sqn in range(1200)])
    now = START
    while now < START + SECOND:
        core.handle_deadline(now)
        now = max(now + 1, core.deadline_ns)
    assert 0.45 * FASTEST < core.counters.odata_octets < 0.51 * FASTEST
