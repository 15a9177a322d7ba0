"""PGMCC's window, election and reports, as the draft and RFC appendix B say (CC rows)."""

import math
import random

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgm.core.congestion.control import CongestionControl
from pgm.core.congestion.link_reports import ALL_LOST
from pgm.core.congestion.reports import Reporter, WorstReport, report_packet
from pgm.core.congestion.window import CongestionWindow, slowness
from pgm.core.recovery.parents import Parents
from pgm.core.session.state import SessionState
from pgm.units import NEVER, SECOND
from pgm.wire.control_packets import decode_control_untrusted
from pgm.wire.formats import PacketType
from pgm.wire.options import Acker, Cr, Crqst, Members, PgmccFeedback, find
from tests.rfc.bench import SOURCE, UP, A, Bench
from tests.unit.core.makers import GROUP, MS, OWN, PEER, SEGMENT, nak_packet, parameters, session_context, spm_packet
from tests.unit.core.source.sources import START, receive, run, source

ALL = 0xFFFFFFFF
OTHER = "10.9.9.9"


def opened(packets):
    """A window after so many packets were acknowledged one by one."""
    window = CongestionWindow()
    for sqn in range(packets):
        window.sent(sqn, sqn + 1, 0)
        window.acked(sqn, ALL, sqn)
    return window


@pytest.mark.rfc("CC-32")
def test_window_and_tokens_begin_at_one_and_sending_costs_one():
    window = CongestionWindow()
    assert (window.window, window.tokens) == (1, 1)
    window.sent(0, 1, 0)
    assert (window.window, window.tokens) == (1, 0)


@pytest.mark.rfc("CC-33")
def test_the_window_doubles_up_to_four_and_grows_by_one_a_round_then():
    assert [opened(count).window for count in range(4)] == [1, 2, 3, 4]
    window = opened(3)
    window.sent(3, 7, 0)
    assert window.acked(6, ALL, 6) == (4, 0)
    assert window.window == 5


@pytest.mark.rfc("CC-33")
def test_window_ack_across_threshold_grows_by_inverse_window():
    window = opened(2)
    window.sent(2, 5, 0)
    window.acked(4, ALL, 4)
    assert window.window == 4 + 2 / 4


@pytest.mark.rfc("CC-34")
def test_three_acks_behind_a_packet_halve_the_window_once_a_round():
    window = opened(200)
    window.sent(200, 210, 0)
    assert window.acked(202, ALL & ~0b100, 209) == (2, 0)  # 200 is missing, and two behind it are not enough
    before = window.window
    assert window.acked(203, ALL & ~0b1000, 209) == (1, 1)
    assert window.window == before / 2
    assert window.acked(209, ALL & ~0b100000, 209) == (5, 1)
    assert window.window == before / 2  # frozen until feedback for 210
    window.sent(210, 211, 0)
    window.acked(210, ALL, 210)
    assert window.window > before / 2


@pytest.mark.rfc("CC-34")
@given(st.lists(st.tuples(st.integers(1, 16), st.integers(0, ALL)), max_size=60))
def test_tokens_never_exceed_the_window_and_are_all_accounted(rounds):
    window, lead = CongestionWindow(), -1
    for count, bitmap in rounds:
        window.sent(lead + 1, lead + 1 + count, 0)
        lead += count
        window.acked(lead, bitmap, lead)
        assert window.tokens <= window.window
        assert window.window >= 1


@pytest.mark.rfc("CC-36")
def test_throughput_is_that_of_the_equation():
    rtt, loss = 0.08, 0.01
    inverse = rtt * math.sqrt(loss) * (1 + 9 * loss * (1 + 32 * loss**2))
    assert slowness(rtt, loss) == pytest.approx(inverse**2)
    assert slowness(rtt, 0) == 0


def controlled():
    core = source(flow="pgmcc", ambient_spm_ivl=3600 * SECOND, ihb_min=3600 * SECOND, ihb_max=3600 * SECOND)
    core.submit([bytes(100)] * 100)
    return core


@pytest.mark.parametrize("mode", ["time", "data", "application"])
def test_source_waiting_for_acks_has_no_deadline(mode):
    core = source(flow="pgmcc", txw_adv_mode=mode, ambient_spm_ivl=3600 * SECOND)
    core.submit([bytes(100)] * 100)
    served, now = 0, START
    while core.deadline_ns <= START + 10 * MS:
        now = max(now, core.deadline_ns)
        core.handle_deadline(now)
        served += 1
        assert served < 100
    assert core.window.has_unsent


def report(core, reporter, loss, *, bitmap=0, now=START, sqn=None):
    state = SessionState(session_context())
    packet = report_packet(state, core.window.lead if sqn is None else sqn, bitmap, loss, reporter)
    return receive(core, decode_control_untrusted(packet), now)


@pytest.mark.rfc("CC-01", "CC-17", "CC-37")
def test_spms_ask_for_reports_and_say_that_there_is_no_acker():
    core = controlled()
    [spm] = [one for _, effects in run(core, START) for one in effects if not one.is_data]
    options = decode_control_untrusted(bytes(spm.octets)).options
    assert find(options, Crqst) == Crqst(wants_ne_wl=True, wants_ne_wp=True, wants_rx_wp=True)
    assert find(options, Acker) == Acker(acker="0.0.0.0")
    assert core.counters.odata_packets == 1


@pytest.mark.rfc("CC-30", "CC-35", "CC-37")
def test_source_first_reporter_is_acker_until_clearly_slower_one():
    core = controlled()
    run(core, START)
    told = report(core, PEER, 0.01, now=START + 100 * MS)
    assert find(decode_control_untrusted(bytes(told[-1].octets)).options, Acker) == Acker(acker=PEER)
    control = core.flow
    for loss, becomes in ((0.01, PEER), (0.012, PEER), (0.03, OTHER)):
        report(core, OTHER, loss, now=START + 100 * MS)
        assert control.acker == becomes


@pytest.mark.rfc("CC-42")
def test_only_the_ackers_acks_open_the_window():
    core = controlled()
    run(core, START)
    report(core, PEER, 0.01, now=START + 10 * MS)
    report(core, OTHER, 0.0, bitmap=1, now=START + 10 * MS)
    assert core.flow.window.window == 1
    report(core, PEER, 0.01, bitmap=1, now=START + 10 * MS)
    assert core.flow.window.window == 2
    run_until(core, START + 11 * MS)
    assert core.counters.odata_packets == 3


def run_until(core, until):
    now = START + 10 * MS
    while (now := max(now, core.deadline_ns)) <= until:
        core.handle_deadline(now)


@pytest.mark.rfc("CC-38")
def test_overdue_acks_begin_anew_and_twice_in_a_row_elect():
    core = controlled()
    run(core, START)
    report(core, PEER, 0.01, bitmap=1, now=START + 10 * MS)
    core.submit([bytes(100)] * 1000)
    while core.window.lead < 200:
        run_until(core, START + 12 * MS)
        report(core, PEER, 0.01, bitmap=ALL, now=START + 12 * MS)
    assert core.flow.window.window > 5
    run_until(core, START + 3 * SECOND)
    assert core.flow.window.window == 1
    assert not core.flow.acker
    assert core.counters.cc_timeouts >= 2


@pytest.mark.rfc("CC-03", "CC-08", "CC-30")
def test_a_nak_tells_of_the_worst_receiver():
    core = controlled()
    run(core, START)
    cr = Cr(lead=0, ne_wl=0, ne_wp=0, rx_wp=ALL_LOST // 2, receiver=OTHER, has_rx_wp=True)
    receive(core, attrs.evolve(nak_packet(0, source_nla=OWN, group_nla=GROUP), options=(cr,)), START + 20 * MS)
    assert core.flow.acker == OTHER
    assert core.flow.loss == pytest.approx(0.5, abs=1e-4)
    assert core.flow.rtt_ns == 20 * MS


def reporter(missing=()):
    context = session_context()
    return Reporter(context, SessionState(context), Parents(context, (PEER,)), SEGMENT, lambda sqn: sqn in missing)


def said(effects):
    return [decode_control_untrusted(bytes(one.octets)) for one in effects]


@pytest.mark.rfc("CC-31", "CC-42")
def test_the_acker_acknowledges_at_once_with_a_map_and_its_loss_rate():
    one = reporter(missing={7})
    one.on_spm(spm_packet(1, 0, 4, Acker(acker=SEGMENT.address), Crqst(wants_rx_wp=True)), 0)
    one.on_data(5, 7, 0)
    [ack] = said(one.on_data(8, 10, 5 * MS))
    assert (ack.rx_max, ack.bitmap) == (9, 0b11011)
    feedback = find(ack.options, PgmccFeedback)
    assert feedback.reporter == SEGMENT.address
    assert feedback.loss_rate == round(one.loss * ALL_LOST) > 0
    one.on_spm(spm_packet(2, 0, 4, Acker(acker=OTHER)), 0)
    assert not one.on_data(10, 11, 6 * MS)


@pytest.mark.rfc("CC-37")
def test_reporter_without_acker_reports_after_random_delay():
    one = reporter()
    one.on_data(5, 7, 0)
    one.on_spm(spm_packet(1, 0, 4, Acker(acker="0.0.0.0")), 0)
    assert 0 <= one.deadline_ns <= parameters().cc_bo_ivl
    [ack] = said(one.handle_deadline(one.deadline_ns))
    assert ack.bitmap == 0
    one.on_spm(spm_packet(2, 0, 4, Acker(acker="0.0.0.0")), 0)
    one.on_spm(spm_packet(3, 0, 4, Acker(acker=OTHER)), 0)
    assert one.deadline_ns == NEVER


@pytest.mark.rfc("CC-42")
def test_a_new_acker_acknowledges_what_it_has_and_waits_for_no_data():
    one = reporter(missing={6})
    one.on_data(5, 8, 0)
    for spm_sqn in (1, 2):
        one.on_spm(spm_packet(spm_sqn, 0, 7, Acker(acker=SEGMENT.address)), 20 * MS)
        acks = said(one.handle_deadline(20 * MS))
        assert [(ack.rx_max, ack.bitmap) for ack in acks] == ([(7, 0b101)] if spm_sqn == 1 else [])


def goodbye(reporter, sqn=0):
    state = SessionState(session_context())
    return decode_control_untrusted(report_packet(state, sqn, 0, 0.01, reporter, leaves=True))


@pytest.mark.rfc("CC-39")
def test_an_acker_that_leaves_says_so_once_and_nobody_else_does():
    one = reporter()
    one.on_data(5, 7, 0)
    assert not one.leave(0)
    one = reporter()
    one.on_data(5, 7, 0)
    one.on_spm(spm_packet(1, 0, 6, Acker(acker=SEGMENT.address)), 0)
    [ack] = said(one.leave(MS))
    assert (ack.rx_max, ack.bitmap, find(ack.options, Members).leaves) == (6, 0, True)
    assert find(ack.options, PgmccFeedback).reporter == SEGMENT.address
    one.on_spm(spm_packet(2, 0, 6, Acker(acker=SEGMENT.address)), 0)
    assert not one.on_data(7, 8, 2 * MS)
    assert not one.leave(2 * MS)


@pytest.mark.rfc("CC-39")
def test_source_goodbye_of_acker_starts_a_new_election():
    core = controlled()
    run(core, START)
    report(core, PEER, 0.01, bitmap=1, now=START + 10 * MS)
    receive(core, goodbye(OTHER), START + 20 * MS)
    assert core.flow.acker == PEER
    [spm] = receive(core, goodbye(PEER), START + 7200 * SECOND)
    assert find(decode_control_untrusted(bytes(spm.octets)).options, Acker) == Acker(acker="0.0.0.0")
    report(core, OTHER, 0.001, now=START + 7200 * SECOND)
    assert core.flow.acker == OTHER


@pytest.mark.rfc("CC-39")
def test_elements_pass_a_goodbye_on_and_forget_what_was_reported():
    bench = Bench().begin()
    bench.hear(spm_packet(2, 0, 19, Acker(acker="10.1.0.9"), Crqst(wants_rx_wp=True)), UP, SOURCE)
    state = SessionState(session_context())
    for packet in (
        decode_control_untrusted(report_packet(state, 19, 1, 0.5, "10.1.0.9")),
        goodbye("10.1.0.9", 19),
        decode_control_untrusted(report_packet(state, 19, 0, 0.1, "10.1.0.8")),  # news, though it was half of that
    ):
        bench.hear(packet, A, "10.1.0.9", is_group=False)
    assert [find(ack.options, PgmccFeedback).reporter for _, _, ack in bench.sent(PacketType.ACK)] == [
        "10.1.0.9",
        "10.1.0.9",
        "10.1.0.8",
    ]


@pytest.mark.rfc("CC-02", "CC-17")
def test_naks_carry_the_loss_rate_if_the_source_wants_it():
    one = reporter()
    assert one.options == ()
    one.on_spm(spm_packet(1, 0, 4, Acker(acker=OTHER), Crqst(wants_rx_wp=True)), 0)
    one.on_data(0, 10, 0)
    one.on_data(110, 120, 0)
    [cr] = one.options
    assert (cr.has_rx_wp, cr.has_ne_wl, cr.has_ne_wp, cr.receiver) == (True, False, False, SEGMENT.address)
    assert cr.rx_wp == pytest.approx(ALL_LOST * (1 - (1 - 500 / 65536) ** 100), rel=0.1)


@pytest.mark.rfc("CC-40")
def test_the_loss_rate_follows_the_losses():
    one, rng = reporter(), random.Random(3)
    for sqn in range(20_000):
        if rng.random() > 0.02:
            one.on_data(sqn, sqn + 1, 0)
    assert one.loss == pytest.approx(0.02, abs=0.015)


@pytest.mark.rfc("CC-04", "CC-05", "CC-08")
def test_an_element_passes_on_the_worst_and_lets_it_age_by_sqns():
    worst = WorstReport()
    assert worst.hear(0.1, PEER, 1000)
    assert not worst.hear(0.05, OTHER, 1000)
    assert (worst.loss, worst.receiver) == (0.1, PEER)
    assert worst.hear(0.05, OTHER, 1010)  # a tenth of what is aged by ten sqns: a change by more than a twentieth
    assert worst.loss == pytest.approx(0.1 * math.exp(-10 * 0.1 / 2))
    assert worst.hear(0.08, OTHER, 1010)
    assert worst.receiver == OTHER


@pytest.mark.rfc("CC-15")
def test_a_change_of_less_than_a_twentieth_is_no_news():
    worst = WorstReport()
    assert worst.hear(0.0, PEER, 0)
    assert not worst.hear(0.0, PEER, 1)
    assert worst.hear(0.001, PEER, 2)
    assert not worst.hear(0.00104, PEER, 2)
    assert worst.hear(0.00106, PEER, 2)


def test_reports_of_what_was_never_sent_are_foreign():
    core = controlled()
    run(core, START)
    report(core, PEER, 0.5, sqn=77)
    assert not core.flow.acker
    assert core.counters.foreign_packets == 1
    assert isinstance(core.flow, CongestionControl)
