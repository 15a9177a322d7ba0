"""Carrying a session down, and standing in for one another."""

from __future__ import annotations

import attrs
import pytest

from pgm.core.counters import Counters
from pgm.core.effects import Notice
from pgm.core.element.children import ElementChildren
from pgm.core.element.relay import Relay
from pgm.core.element.setup import ElementSetup
from pgm.core.segment import Segment
from pgm.units import NEVER, SECOND
from pgm.wire.control_packets import decode_control_untrusted, encode
from pgm.wire.formats import PacketType
from pgm.wire.options import Join, StateOffer, UnknownOption
from pgm.wire.train import Data
from tests.unit.core.makers import MS, data_train, parameters, sends, sent_control, session_context, spm_packet

T = PacketType
UP = Segment(0, "core", "10.0.0.5", "239.0.0.1", upstream=True, downstream=False)
DOWN_A = Segment(1, "floor-a", "10.1.0.1", "239.1.0.1", upstream=False, downstream=True)
DOWN_B = Segment(2, "floor-b", "fe80::1", "ff02::b", upstream=False, downstream=True)
PARTNER = "10.1.0.2"
TAKEOVER, LISTEN = 5 * SECOND, 300 * MS
SETTINGS = parameters(relay_takeover_ivl=TAKEOVER, relay_listen_ivl=LISTEN)


def relay(**changes):
    setup = ElementSetup(**{"up": UP, "downs": (DOWN_A, DOWN_B)} | changes)
    counters = Counters()
    context = session_context(SETTINGS, counters=counters)
    return Relay(context, setup, ElementChildren(context, setup, lasts_ns=0).back_offs), counters


def received(spm_sqn, *options):
    """An SPM as it comes from above, octets and all."""
    return decode_control_untrusted(encode(spm_packet(spm_sqn, 5, 9, *options)))


def notices(effects):
    return [effect.code for effect in effects if isinstance(effect, Notice)]


def run(made, until):
    """Serve deadlines up to an instant; when something left, and what."""
    log = []
    while made.deadline_ns <= until:
        now = made.deadline_ns
        effects = made.handle_deadline(now)
        assert effects or made.deadline_ns > now
        if effects:
            log.append((now, effects))
    return log


@pytest.mark.rfc("NE-02")
def test_a_relay_without_a_partner_speaks_from_the_start():
    """The path of each segment, all else octet for octet."""
    made, counters = relay()
    assert made.is_active
    spm = received(7, Join(10), UnknownOption(number=0x44, octet2=0xFF, value=b"as it was"))
    effects = made.on_spm(spm, SECOND)
    assert [(send.segment, send.to, send.hops) for send in sends(effects)] == [
        (DOWN_A, None, None),
        (DOWN_B, None, None),
    ]
    found = sent_control(effects, T.SPM)
    assert [one.path_nla for one in found] == [DOWN_A.address, DOWN_B.address]
    for one in found:
        assert attrs.evolve(one, path_nla=spm.path_nla) == spm
    assert counters.spm_packets == 2
    assert made.deadline_ns == NEVER


@pytest.mark.rfc("NE-04")
def test_odata_goes_down_as_it_came():
    made, counters = relay()
    train = data_train(range(5), trail=3)
    [data] = train.parse_untrusted()[0]
    assert isinstance(data, Data)
    effects = sends(made.on_data(data))
    assert [(send.segment, send.is_data, send.stride) for send in effects] == [(DOWN_A, True, 36), (DOWN_B, True, 36)]
    assert all(send.octets.tobytes() == train.buffer.tobytes() for send in effects)
    assert (counters.odata_packets, counters.odata_octets) == (10, 360)


@pytest.mark.rfc("NE-39")
def test_spmrs_are_answered_with_the_newest_spm():
    """On the segment that asked, with its path."""
    made, _ = relay()
    assert list(made.answer_spmr(DOWN_A)) == []
    made.on_spm(received(7), SECOND)
    made.on_spm(received(8), SECOND)
    effects = made.answer_spmr(DOWN_B)
    [spm] = sent_control(effects, T.SPM)
    assert (spm.spm_sqn, spm.path_nla, sends(effects)[0].segment) == (8, DOWN_B.address, DOWN_B)


def test_an_element_on_one_segment_never_speaks():
    """Covers design section 4: two SPM speakers on a LAN make NAK paths flap."""
    made, _ = relay(up=DOWN_A, downs=(DOWN_A,))
    assert not made.is_active
    assert list(made.on_spm(received(7), SECOND)) == []
    assert list(made.answer_spmr(DOWN_A)) == []
    [data] = data_train(range(5)).parse_untrusted()[0]
    assert list(made.on_data(data)) == []
    assert made.deadline_ns == NEVER


def test_a_relay_with_a_partner_asks_before_it_speaks():
    """A restarted one must not interrupt."""
    made, counters = relay(partners=frozenset({PARTNER}))
    assert not made.is_active
    assert made.deadline_ns == NEVER
    assert list(made.on_spm(received(7), SECOND)) == []
    log = run(made, SECOND + 2 * LISTEN)
    questions = [(now, [(s.segment, s.hops) for s in sends(effects)]) for now, effects in log[:3]]
    assert questions == [(SECOND + step * LISTEN // 3, [(DOWN_A, 1), (DOWN_B, 1)]) for step in range(3)]
    assert all(len(sent_control(effects, T.SPMR)) == 2 for _, effects in log[:3])
    spoke_at, effects = log[3]
    assert spoke_at == SECOND + LISTEN
    assert notices(effects) == ["relay-speaking"]
    assert len(sent_control(effects, T.SPM)) == 2
    assert made.is_active
    assert counters.takeovers == 0


def test_a_relay_whose_partner_answers_stays_silent():
    made, _ = relay(partners=frozenset({PARTNER}))
    made.on_spm(received(7), SECOND)
    made.handle_deadline(SECOND)
    assert notices(made.on_partner_spm(received(7), SECOND + MS)) == ["relay-silent"]
    assert run(made, SECOND + TAKEOVER - 1) == []
    assert not made.is_active


def test_a_standby_that_hears_its_partner_first():
    """The partner may be nearer to the source."""
    made, counters = relay(partners=frozenset({PARTNER}), is_standby=True)
    made.on_partner_spm(received(1), SECOND)
    assert run(made, SECOND + 2 * TAKEOVER) == []
    made.on_partner_spm(received(3), 20 * SECOND)
    made.on_spm(received(2), 20 * SECOND + MS)
    assert run(made, 100 * SECOND) == []
    assert counters.takeovers == 0


def test_a_standby_takes_over_when_its_partner_falls_silent():
    made, counters = relay(partners=frozenset({PARTNER}), is_standby=True)
    now = SECOND
    for spm_sqn in range(5):
        assert list(made.on_spm(received(spm_sqn), now)) == []
        made.on_partner_spm(received(spm_sqn), now + MS)
        assert run(made, now + SECOND - 1) == []
        now += SECOND
    dead_since = now - SECOND + MS
    for spm_sqn in range(5, 20):
        effects = made.on_spm(received(spm_sqn), now)
        log = run(made, now + SECOND - 1)
        if log:
            spoke_at, effects = log[0]
            assert spoke_at == dead_since + TAKEOVER
            assert notices(effects) == ["relay-speaking"]
            assert {spm.spm_sqn for spm in sent_control(effects, T.SPM)} == {spm_sqn}
            break
        now += SECOND
    assert made.is_active
    assert counters.takeovers == 1


def test_stale_spms_of_a_dead_partner_delay_no_takeover():
    made, counters = relay(partners=frozenset({PARTNER}), is_standby=True)
    for spm_sqn in (1, 2, 3):
        made.on_spm(received(spm_sqn), SECOND)
        made.on_partner_spm(received(spm_sqn), SECOND)
    log = []
    for step in range(1, 10):
        now = SECOND + step * TAKEOVER // 2
        made.on_spm(received(3 + step), now)
        log += run(made, now)
        assert list(made.on_partner_spm(received(1 + step % 3), now)) == []
    assert [at for at, _ in log] == [SECOND + TAKEOVER]
    assert (made.is_active, counters.takeovers) == (True, 1)


def test_a_standby_does_not_take_over_when_the_source_is_slow():
    made, counters = relay(partners=frozenset({PARTNER}), is_standby=True)
    made.on_spm(received(1), SECOND)
    made.on_partner_spm(received(1), SECOND + MS)
    assert run(made, 1000 * SECOND) == []
    assert made.deadline_ns == NEVER
    # The next SPM comes from above, and a moment later from the partner.
    made.on_spm(received(2), 1000 * SECOND)
    assert run(made, 1000 * SECOND + LISTEN // 2) == []
    made.on_partner_spm(received(2), 1000 * SECOND + LISTEN // 2)
    assert run(made, 1004 * SECOND) == []
    assert counters.takeovers == 0


def test_standby_with_fresh_upstream_spm_waits_for_partner():
    made, counters = relay(partners=frozenset({PARTNER}), is_standby=True)
    made.on_spm(received(1), SECOND)
    made.on_partner_spm(received(1), SECOND + MS)
    just_before = SECOND + MS + TAKEOVER - 1
    made.on_spm(received(2), just_before)
    assert run(made, just_before + LISTEN - 1) == []
    made.on_partner_spm(received(2), just_before + LISTEN - 1)
    assert run(made, just_before + LISTEN + SECOND) == []
    assert counters.takeovers == 0


def test_of_two_that_speak_the_standby_yields():
    """After a partition."""
    standby, counters = relay(partners=frozenset({PARTNER}), is_standby=True)
    standby.on_spm(received(1), SECOND)
    run(standby, 10 * SECOND)
    assert standby.is_active
    assert notices(standby.on_partner_spm(received(2), 11 * SECOND)) == ["relay-silent"]
    assert not standby.is_active
    first, _ = relay(partners=frozenset({PARTNER}))
    first.on_spm(received(1), SECOND)
    run(first, 10 * SECOND)
    assert first.is_active
    assert list(first.on_partner_spm(received(2), 11 * SECOND)) == []
    assert first.is_active
    assert counters.other_speakers == 1


def test_calling_early_does_nothing():
    """Covers the contract of `pgm.core.interface`."""
    made, _ = relay(partners=frozenset({PARTNER}), is_standby=True)
    made.on_spm(received(1), SECOND)
    deadline = made.deadline_ns
    assert list(made.handle_deadline(deadline - 1)) == []
    assert made.deadline_ns == deadline


@pytest.mark.parametrize(("first", "second", "passes"), [(7, 7, False), (7, 3, False), (7, 9, True)])
def test_relay_passes_up_no_request_that_a_young_one_covers(first, second, passes):
    made, _ = relay()
    made.on_spm(received(7), SECOND)
    assert len(sends(made.pass_up(StateOffer(first), SECOND))) == 1
    assert len(sends(made.pass_up(StateOffer(second), SECOND + MS))) == passes


@pytest.mark.parametrize(("second", "passes"), [(64, False), (32, True), (96, True)])
def test_relay_passes_up_details_of_each_block_once(second, passes):
    made, _ = relay()
    made.on_spm(received(7), SECOND)
    [request] = sent_control(made.pass_up(StateOffer(64, details=True), SECOND), T.SPMR)
    assert request.options == (StateOffer(64, details=True),)
    assert len(sends(made.pass_up(StateOffer(second, details=True), SECOND + MS))) == passes
    assert len(sends(made.pass_up(StateOffer(64, details=True), 2 * SECOND))) == 1
