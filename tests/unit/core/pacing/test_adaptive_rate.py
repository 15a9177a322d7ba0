"""A source that slows down while it is asked for too much, and only if it is told to."""

import itertools

import pytest

from pgm.core.effects import Notice
from pgm.core.pacing.adaptive_rate import AdaptiveRate
from pgm.units import SECOND
from pgm.wire.parity import request_sqn
from tests.memory import kept_by
from tests.unit.core.makers import BY_UNICAST, MS, OWN, PEER, nak_packet, parameters, payload_of, train_of
from tests.unit.core.source.sources import QUIET, START, nak, receive, source

FASTEST, LEAST = 1_000_000, 100_000
SETTINGS = {"txw_max_rte": FASTEST, "txw_min_rte": LEAST, "txw_yield_share": 0.05, "txw_yield_ivl": 100 * MS}


def intervals(made, told):
    """The rate after each interval: a thousand packets sent in it, and what the entry says asked of them, and how old that is in intervals."""
    found, lead = [], -1
    made.review(lead, 0)
    for number, (asked, age) in enumerate(told, 1):
        lead += 1000
        made.sent(1000, FASTEST // 10)
        if asked:
            made.asked(asked, lead - 1000 * age, PEER)
        made.review(lead, number * 100 * MS)
        found.append(made.rate)
    return found


def rates(shares, **changes):
    """The rate after each interval in which so large a share of a thousand packets was asked for."""
    return intervals(AdaptiveRate(parameters(**SETTINGS | changes)), [(round(1000 * share), 0) for share in shares])


def test_adaptive_rate_many_naks_cut_by_quarters_to_the_least():
    found = rates([0.06] * 12)
    assert found[:3] == [750_000, 562_500, 421_875]
    assert found[-1] == LEAST


def test_adaptive_rate_few_naks_grow_it_by_steps_to_the_maximum():
    found = rates([1.0] * 2 + [0.03] * 3 + [0.0125] * 60)
    assert found[:5] == [FASTEST // 8] + [LEAST] * 4
    steps = [after - before for before, after in itertools.pairwise(found[4:])]
    assert steps[0] == FASTEST // 40
    assert found[-1] == FASTEST


def test_adaptive_rate_low_rate_grows_by_a_sixteenth():
    """A step is a fortieth of the whole, but a sixteenth of what the rate is."""
    found = rates([1.0] * 4 + [0.0] * 2, txw_min_rte=1)
    assert found[4] == found[3] + found[3] // 16
    assert found[5] == found[4] + found[4] // 16


def test_adaptive_rate_cut_starts_from_the_sent_rate():
    made = AdaptiveRate(parameters(**SETTINGS))
    made.review(-1, 0)
    made.sent(1000, 40_000)
    made.asked(60, 999, PEER)
    assert made.review(999, 100 * MS)
    assert made.rate == 300_000


def test_adaptive_rate_naks_for_packets_before_a_cut_cut_no_further():
    """Receivers ask for it as long as its repairs take, and a rate that was cut for each interval of that could not repair it."""
    made = AdaptiveRate(parameters(**SETTINGS))
    found = intervals(made, [(0, 0), (600, 0)])
    lead = 1999
    for number in range(3, 10):
        made.repaired(600, 60_000)
        made.asked(600, lead, PEER)
        assert not made.review(lead, number * 100 * MS)
    assert made.rate == found[-1] == 400_000
    made.sent(1000, FASTEST // 10)
    made.asked(60, lead + 1, PEER)
    assert made.review(lead + 1000, 1000 * MS)


@pytest.mark.parametrize("prompt", [0, 3])
@pytest.mark.parametrize(("later", "slows"), [(1, False), (2, True)])
def test_receivers_that_drown_ask_for_little_but_late(prompt, later, slows):
    """Later than the promptest NAKs come, however long the way is; what they ask for counts sixteen times."""
    found = intervals(
        AdaptiveRate(parameters(**SETTINGS)), [(0, 0)] * 4 + [(10, prompt), (10, prompt), (10, prompt + later)]
    )
    assert found[-2] == FASTEST
    assert (found[-1] < FASTEST) is slows


def test_adaptive_rate_naks_of_distant_asker_are_not_late():
    """One asks within an interval, another never before four are over, and loses one percent: that is his way, and no overload."""
    made = AdaptiveRate(parameters(**SETTINGS))
    lead = -1
    made.review(lead, 0)
    for number in range(1, 20):
        lead += 1000
        made.sent(1000, FASTEST // 10)
        made.asked(1, lead, PEER)
        if number > 4:
            made.asked(10, lead - 4000, "10.0.0.99")
        assert not made.review(lead, number * 100 * MS)


def askers_kept_by(rate):
    return sum(str(one).startswith("10.0.0.") for one in kept_by(rate) if isinstance(one, str))


def test_it_is_not_remembered_how_far_away_all_are():
    made = AdaptiveRate(parameters(**SETTINGS, max_children=3))
    for number in range(10):
        made.asked(1, 0, f"10.0.0.{number}")
    assert askers_kept_by(made) == 3
    without = AdaptiveRate(parameters(**SETTINGS | {"txw_min_rte": 0}))
    without.asked(1, 0, PEER)
    assert not askers_kept_by(without)  # nobody asks for it


def test_a_few_that_are_asked_for_late_are_repairs_that_were_lost():
    made = AdaptiveRate(parameters(**SETTINGS))
    intervals(made, [(0, 0)] * 3)
    made.sent(1000, FASTEST // 10)
    made.asked(10, 3999, PEER)
    made.asked(8, 100, PEER)
    assert not made.review(3999, 400 * MS)


@pytest.mark.parametrize(("asked", "slows"), [(3, False), (4, True)])
def test_a_few_losses_are_chance_when_they_are_asked_for_late_too(asked, slows):
    """A repair that was lost once, of a source that sends little: sixteen times it is more than it sent."""
    made = AdaptiveRate(parameters(**SETTINGS))
    intervals(made, [(10, 0)] * 4)
    for number in range(5, 40):
        made.sent(10, FASTEST // 1000)
        made.review(4000 + 10 * number, number * 100 * MS)
    made.sent(10, FASTEST // 1000)
    made.asked(asked, 4300, PEER)
    assert made.review(4400, 4000 * MS) is slows


def test_the_end_of_a_burst_is_not_asked_for_late():
    """What comes behind shows a loss, and nothing did."""
    made = AdaptiveRate(parameters(**SETTINGS))
    intervals(made, [(10, 0)] * 3)
    for number in range(4, 7):
        made.review(2999, number * 100 * MS)
    made.asked(10, 2999, PEER)
    assert not made.review(2999, 700 * MS)


def test_after_a_cut_a_share_is_of_what_is_sent_since():
    """A fourth of little is more than the share, though it is little of what was sent before."""
    made = AdaptiveRate(parameters(**SETTINGS | {"txw_min_rte": 1}))
    intervals(made, [(0, 0), (1000, 0)])
    assert made.rate == FASTEST // 8
    made.sent(125, FASTEST // 80)
    made.asked(31, 2100, PEER)
    assert made.review(2124, 300 * MS)
    assert made.rate == FASTEST // 8 * 3 // 4


def test_a_window_that_had_to_wait_was_too_fast_on_the_whole():
    """What it sent until it went on is what was borne. While it waits nothing grows, and what was usual stays usual."""
    made = AdaptiveRate(parameters(**SETTINGS))
    intervals(made, [(0, 0)] * 5)
    for number in range(6, 10):
        assert not made.review(4999, number * 100 * MS, is_held=True)
    assert made.review(4999, 1000 * MS)
    assert made.rate == FASTEST // 2
    made.sent(500, FASTEST // 20)
    made.asked(60, 4999, PEER)  # sent before: that is the same overload
    assert not made.review(5499, 1100 * MS)


def test_a_source_that_had_nothing_to_send_bore_no_less_for_that():
    made = AdaptiveRate(parameters(**SETTINGS | {"txw_min_rte": 1}))
    intervals(made, [(0, 0)])
    for number in range(2, 50):
        made.review(999, number * 100 * MS)
    made.sent(1000, FASTEST // 10)
    made.review(1999, 5000 * MS)
    made.review(1999, 5100 * MS, is_held=True)
    made.review(1999, 5200 * MS)
    assert made.rate == FASTEST // 2  # two intervals at all of it, and two that waited


def test_a_source_that_waits_for_the_application_is_not_too_fast():
    core = source(**QUIET | SETTINGS | {"txw_adv_mode": "application", "txw_sqns": 10})
    core.submit([payload_of(sqn) for sqn in range(20)])
    for step in range(100):
        core.handle_deadline(START + step * 10 * MS)
    core.advance_trail(5)
    core.handle_deadline(START + SECOND)
    core.handle_deadline(START + SECOND + 100 * MS)
    assert core.window.lead > 9
    assert core.rate == FASTEST


def test_parity_is_not_asked_for_late_since_its_group_began_early():
    """A group of 64 lasts three intervals here, and nobody asks for parity before it is over."""
    core = source(**QUIET | SETTINGS | {"txw_yield_share": 0.5, "fec_group": 64, "fec_on_demand": True})
    for sqn in range(256):
        now = START + sqn * 5 * MS
        core.submit([payload_of(sqn)])
        core.handle_deadline(now)
        core.handle_deadline(now + MS)
        assert core.window.lead == sqn
        if sqn == 50:
            receive(core, nak(sqn), now + MS)
        if sqn % 64 == 63:
            receive(core, nak(request_sqn(sqn - 63, 6), parity=True), now + MS)
    assert core.counters.parity_naks_in == 4
    assert core.rate == FASTEST


@pytest.mark.parametrize("rest", [0, 10])
@pytest.mark.parametrize(("asked", "slows"), [(20, False), (200, True)])
def test_adaptive_rate_naks_after_a_burst_count_against_the_burst(rest, asked, slows):
    """Some losses in its last packets are no source that is too fast; many are."""
    made = AdaptiveRate(parameters(**SETTINGS))
    made.review(-1, 0)
    made.sent(1000, FASTEST // 10)
    assert not made.review(999, 100 * MS)
    assert not made.review(999, 200 * MS)  # and nothing is sent
    made.sent(rest, 100 * rest)
    made.asked(asked, 999, PEER)
    assert made.review(999 + rest, 300 * MS) is slows
    assert (made.rate < FASTEST * 3 // 4) is slows


@pytest.mark.parametrize(("asked", "slows"), [(1, False), (3, False), (4, True)])
def test_adaptive_rate_few_losses_of_slow_source_are_chance(asked, slows):
    """One of ten is more than the share, and comes in every tenth interval where a hundredth is lost."""
    made = AdaptiveRate(parameters(**SETTINGS))
    made.review(-1, 0)
    made.sent(10, 1000)
    made.asked(asked, 9, PEER)
    assert made.review(9, 100 * MS) is slows


def test_without_a_least_rate_nobody_slows_a_source_down():
    assert rates([1.0] * 20, txw_min_rte=0) == [FASTEST] * 20


@pytest.mark.parametrize("interval", [0, 99])
def test_an_interval_is_waited_for(interval):
    made = AdaptiveRate(parameters(**SETTINGS))
    made.review(-1, 0)
    made.sent(1000, FASTEST)
    made.asked(1000, 999, PEER)
    assert not made.review(999, interval * MS)
    assert made.rate == FASTEST
    assert made.review(999, 100 * MS)


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


def test_source_many_naks_lower_its_rate_until_they_end():
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
    made = AdaptiveRate(parameters(**SETTINGS))
    made.limit_to(FASTEST // 2)
    assert made.rate == FASTEST // 2
    made.limit_to(FASTEST)
    assert made.rate == FASTEST
    made.review(-1, 0)
    made.sent(1000, FASTEST)
    made.asked(60, 999, PEER)
    made.review(999, 100 * MS)
    assert made.rate == 750_000
    made.limit_to(800_000)
    assert made.rate == 750_000
    for number in range(2, 20):
        made.sent(1000, FASTEST)
        made.review(999, number * 100 * MS)
    assert made.rate == made.most == 800_000
    made.limit_to(FASTEST // 4)
    assert made.rate == FASTEST // 4


def test_source_set_rate_is_kept_and_cut_gives_notice():
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
