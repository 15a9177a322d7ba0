"""A source with parity: groups, what is sent unasked, and what is sent on demand (RFC 11.4)."""

from __future__ import annotations

import numpy as np
import pytest

from pgm.core.window.transmit_window import TransmitWindow
from pgm.errors import PayloadTooLarge, UsageError
from pgm.fec import code, groups
from pgm.units import SECOND
from pgm.wire.formats import PacketType
from pgm.wire.options import Fin, ParityPrm, Syn, find
from pgm.wire.parity import MOST_EXTRA_OCTETS, request_sqn
from tests.reference import DATA_PORT, TSI
from tests.unit.core.makers import MS, deadlines, parameters, payload_of, sent_control, sent_items, sent_sqns
from tests.unit.core.parity.parity_items import kinds_of, offers, parity_of
from tests.unit.core.source.sources import QUIET, START, all_effects, nak, receive, run, source, with_data

T = PacketType
LATER = START + 2 * SECOND


def sent_by(core, until=START + SECOND):
    return all_effects(run(core, until))


def parity_nak(*asked):
    return nak(*(request_sqn(group, count) for group, count in asked), parity=True)


@pytest.mark.rfc("FEC-05", "FEC-06")
def test_proactive_parity_is_odata_and_follows_its_group():
    core = source(fec_group=4, fec_proactive=2, **QUIET)
    core.submit([payload_of(sqn) for sqn in range(8)])
    effects = sent_by(core)
    assert kinds_of(effects) == ["D"] * 8 + ["P"] * 4
    packets = parity_of(effects, T.ODATA, 4)
    assert [(one.group, one.index, one.actual) for one in packets] == [
        (0, 0, None),
        (0, 1, None),
        (4, 0, None),
        (4, 1, None),
    ]
    assert (core.counters.parity_packets, core.window.lead) == (4, 7)


def test_parity_takes_its_part_of_the_rate():
    """Ten octets a millisecond, all together."""
    times = {}
    for proactive in (0, 8):
        core = source(fec_group=8, fec_proactive=proactive, txw_max_rte=100_000, txw_burst_ivl=MS, **QUIET)
        core.submit([payload_of(sqn, 1000) for sqn in range(64)])
        log = run(core, START + 60 * SECOND)
        times[proactive] = max(now for now, effects in log if kinds_of(effects)) - START
    assert times[8] == pytest.approx(2 * times[0], rel=0.05)


@pytest.mark.rfc("FEC-15", "FEC-06", "FEC-08")
def test_a_parity_nak_gets_an_ncf_and_as_many_rdata():
    core = with_data(64, fec_group=32)
    effects = receive(core, parity_nak((0, 3)), LATER)
    [ncf] = sent_control(effects, T.NCF)
    assert (ncf.parity, ncf.sqns) == (True, (2,))
    effects = sent_by(core, LATER + SECOND)
    assert [(one.group, one.index) for one in parity_of(effects, T.RDATA, 32)] == [(0, 0), (0, 1), (0, 2)]
    assert kinds_of(effects) == ["p"] * 3
    assert core.counters.parity_naks_in == 1


def test_a_list_asks_for_several_groups():
    core = with_data(32, fec_group=8)
    receive(core, parity_nak((0, 1), (16, 2)), LATER)
    assert [(one.group, one.index) for one in parity_of(sent_by(core, LATER + SECOND), T.RDATA, 8)] == [
        (0, 0),
        (16, 0),
        (16, 1),
    ]


@pytest.mark.rfc("FEC-01", "FEC-09")
def test_parity_source_sent_packets_rebuild_the_group():
    core = with_data(8, fec_group=8)
    receive(core, parity_nak((0, 8)), LATER)
    parity = parity_of(sent_by(core, LATER + SECOND), T.RDATA, 8)
    found = groups.decode([], parity, 0, 8, 8, groups.OriginalHeader(TSI, DATA_PORT, 0))
    assert [run.payloads[0].tobytes() for run in found] == [payload_of(sqn) for sqn in range(8)]


def test_source_is_not_due_for_a_group_that_it_gave_up():
    """The group that was due first makes room for a newer one; a deadline of its own would make the driver spin."""
    core = with_data(24, fec_group=8, repair_states=2, rdata_hold_ivl=10 * MS)
    receive(core, parity_nak((0, 1)), LATER)
    receive(core, parity_nak((8, 1), (16, 1)), LATER + 5 * MS)
    assert core.counters.states_refused == 1
    core.handle_deadline(LATER + 10 * MS)
    assert core.deadline_ns == LATER + 15 * MS
    assert [one.group for one in parity_of(sent_by(core, LATER + SECOND), T.RDATA, 8)] == [8, 16]


@pytest.mark.rfc("FEC-17")
def test_every_request_gets_new_packets():
    """Proactive ones are not repeated either, and beyond the group's size OPT_PARITY_GRP tells them apart."""
    core = with_data(4, fec_group=4, fec_proactive=3)
    found = []
    for turn in range(3):
        now = LATER + turn * SECOND
        receive(core, parity_nak((0, 2)), now)
        found += [one.index for one in parity_of(sent_by(core, now + SECOND), T.RDATA, 4)]
    assert found == [3, 4, 5, 6, 7, 8]


def test_when_all_numbers_are_used_the_oldest_come_again():
    core = with_data(128, fec_group=128, fec_proactive=100)
    found = []
    for turn in range(3):
        now = LATER + turn * SECOND
        receive(core, parity_nak((0, 20)), now)
        found += [one.index for one in parity_of(sent_by(core, now + SECOND), T.RDATA, 128)]
    assert found == [*range(100, 128), *range(32)]
    # Whoever still lacks something may hold all that is sent now; single packets are new to it for sure.
    receive(core, nak(5), LATER + 4 * SECOND)
    assert kinds_of(sent_by(core, LATER + 5 * SECOND)) == ["d"]


@pytest.mark.rfc("FEC-18")
def test_requests_are_consolidated_by_the_largest():
    core = with_data(32, fec_group=32)
    for count in (2, 5, 3):
        effects = receive(core, parity_nak((0, count)), LATER)
        assert [ncf.sqns for ncf in sent_control(effects, T.NCF)] == [(count - 1,)]
    assert len(parity_of(sent_by(core, LATER + 5 * MS), T.RDATA, 32)) == 5
    # Right after the packets were sent these are echoes, but for what they ask more.
    receive(core, parity_nak((0, 5)), LATER + 6 * MS)
    receive(core, parity_nak((0, 7)), LATER + 6 * MS)
    assert len(parity_of(sent_by(core, LATER + 15 * MS), T.RDATA, 32)) == 2


@pytest.mark.rfc("FEC-16")
def test_a_group_is_completed_before_it_is_repaired():
    """And its scheduled parity goes first."""
    core = with_data(5, fec_group=8, fec_proactive=1, fec_close_ivl=3600 * SECOND)
    effects = receive(core, parity_nak((0, 2)), LATER)
    assert len(sent_control(effects, T.NCF)) == 1
    assert kinds_of(sent_by(core, LATER + SECOND)) == []
    core.submit([payload_of(sqn) for sqn in range(5, 9)])
    effects = sent_by(core, LATER + 2 * SECOND)
    assert kinds_of(effects) == ["D"] * 4 + ["P", "p", "p"]
    assert [one.index for one in parity_of(effects, T.RDATA, 8)] == [1, 2]


@pytest.mark.rfc("FEC-19", "SRC-48")
def test_single_packets_are_sent_for_the_leading_group_only():
    core = with_data(12, fec_group=8, fec_close_ivl=3600 * SECOND)
    receive(core, nak(2, 5, 9), LATER)
    effects = sent_by(core, LATER + SECOND)
    assert sorted(kinds_of(effects)) == ["d", "p", "p"]
    assert 9 in sent_sqns(effects, T.RDATA)


def test_single_packets_are_sent_where_that_is_wanted():
    for more in ({"fec_serves_single": True}, {"fec_on_demand": False, "fec_proactive": 1}):
        core = with_data(12, fec_group=8, **more)
        receive(core, nak(2, 5, 9), LATER)
        assert kinds_of(sent_by(core, LATER + SECOND)) == ["d", "d", "d"]


@pytest.mark.parametrize("more", [{}, {"fec_on_demand": False, "fec_proactive": 1}, {"fec_serves_single": True}])
def test_dlr_parity_short_group_is_told_to_askers(more):
    core = source(fec_group=8, **QUIET | more)
    core.submit([payload_of(sqn) for sqn in range(5)])
    sent_by(core)
    core.submit([payload_of(8)])
    sent_by(core)
    receive(core, nak(6, 7), LATER)
    effects = sent_by(core, LATER + SECOND)
    assert [(one.group, one.actual) for one in parity_of(effects, T.RDATA, 8)] == [(0, 5)]
    assert kinds_of(effects) == ["p"]


@pytest.mark.rfc("FEC-20", "FEC-21", "FEC-22")
def test_an_idle_source_ends_its_group():
    core = source(fec_group=8, fec_proactive=1, **QUIET)
    core.submit([payload_of(sqn) for sqn in range(5)])
    effects = sent_by(core, START + SECOND)
    assert kinds_of(effects) == ["D"] * 5 + ["P"]
    assert [one.actual for one in parity_of(effects, T.ODATA, 8)] == [5]
    offer = ParityPrm(8, proactive=True, on_demand=True)
    assert offers(effects)[-1] == (4, offer, 5)
    # Of the four that are asked for three are the ones which never were.
    receive(core, parity_nak((0, 4)), LATER)
    assert [(one.index, one.actual) for one in parity_of(sent_by(core, LATER + SECOND), T.RDATA, 8)] == [(1, 5)]
    receive(core, parity_nak((0, 3)), LATER + 2 * SECOND)  # whoever has all does not know how short it is
    assert len(parity_of(sent_by(core, LATER + 3 * SECOND), T.RDATA, 8)) == 1
    core.submit([payload_of(sqn) for sqn in range(8, 17)])
    effects = sent_by(core, LATER + 4 * SECOND)
    assert [sqn for sqn in sent_sqns(effects, T.ODATA) if sqn >= 8][:8] == list(range(8, 16))
    assert core.window.lead == 16


@pytest.mark.rfc("FEC-20")
def test_a_stream_that_goes_on_fills_its_group():
    core = source(fec_group=8, fec_close_ivl=50 * MS, **QUIET)
    for at in range(8):
        core.submit([payload_of(at)])
        now = START + at * 40 * MS
        effects = [effect for at in deadlines(core, now, now) for effect in core.handle_deadline(at)]
        assert not any(short for _, _, short in offers(effects))
    assert core.window.lead == 7


@pytest.mark.rfc("FEC-04", "FEC-02")
@pytest.mark.parametrize(("proactive", "on_demand"), [(0, True), (2, False), (2, True)])
def test_spms_say_what_is_offered(proactive, on_demand):
    core = source(fec_group=16, fec_proactive=proactive, fec_on_demand=on_demand)
    effects = sent_by(core, START + SECOND)
    assert {offer for _, offer, _ in offers(effects)} == {ParityPrm(16, proactive=proactive > 0, on_demand=on_demand)}
    assert not any(spm.parity for spm in sent_control(effects, T.SPM))


def test_without_parity_nothing_is_said_and_parity_naks_are_foreign():
    core = with_data(8)
    assert receive(core, parity_nak((0, 1)), LATER) == []
    assert core.counters.nak_packets_foreign == 1
    core = with_data(8, fec_group=8, fec_proactive=1, fec_on_demand=False)
    assert receive(core, parity_nak((0, 1)), LATER) == []
    assert core.counters.nak_packets_late == 1


def test_a_group_that_was_never_sent_or_has_left_is_not_confirmed():
    core = with_data(16, fec_group=8)
    assert receive(core, parity_nak((16, 1)), LATER) == []
    core.advance_trail(3)
    assert receive(core, parity_nak((0, 1)), LATER) == []
    assert receive(core, nak(5), LATER)
    assert sent_sqns(sent_by(core, LATER + SECOND), T.RDATA) == [5]


@pytest.mark.rfc("FEC-03")
def test_a_session_begins_with_a_group():
    core = with_data(8, first=(1 << 32) - 8, fec_group=8)
    assert core.window.lead == (1 << 32) - 1
    core = source(first=5, fec_group=8, **QUIET)
    assert (core.setup.first_sqn, core.window.end) == (8, 8)


def test_no_packet_exceeds_max_tpdu():
    """Neither parity of the largest data packets, nor of short groups of fragments beyond the first numbers."""
    core = source(fec_group=4, fec_proactive=6, max_tpdu=600, mark_ends=True, **QUIET)
    core.submit([bytes(5000), bytes(100)])
    core.close()
    sizes = [
        len(item.octets) // item.count
        for item in sent_items(sent_by(core, START + SECOND))
        if hasattr(item, "octets") and hasattr(item, "count")
    ]
    assert max(sizes) <= 600
    assert core.max_tpdu == 600 - MOST_EXTRA_OCTETS
    with pytest.raises(PayloadTooLarge):
        core.window.append([bytes(1 << 30)])


@pytest.mark.rfc("FEC-13")
def test_parity_of_the_ends_says_so():
    core = source(fec_group=4, fec_proactive=1, mark_ends=True, **QUIET)
    core.submit([payload_of(sqn) for sqn in range(10)])
    core.close()
    marks = [
        [type(one) for one in item.options if isinstance(one, (Syn, Fin))]
        for item in sent_items(sent_by(core))
        if getattr(item, "parity", False) and find(item.options, ParityPrm) is None
    ]
    assert marks == [[Syn], [], [Fin]]


def test_refused_messages_do_not_begin_the_next_group():
    """A message that is too large leaves the window as it was."""
    core = source(fec_group=8, **QUIET)
    core.submit([payload_of(0)])
    sent_by(core, START + SECOND)
    assert core.window.next_sqn == 8
    with pytest.raises(PayloadTooLarge):
        core.submit([bytes(1 << 30)])
    core.submit([])
    core.submit_rows(np.zeros((0, 4), np.uint8))
    assert (core.window.has_unsent, core.window.next_sqn) == (False, 8)
    core.submit_rows(np.zeros((2, 4), np.uint8))
    assert sent_sqns(sent_by(core, START + 2 * SECOND), T.ODATA) == [8, 9]


def test_without_zfec_a_source_with_parity_says_what_to_install(monkeypatch):
    monkeypatch.setattr(code, "zfec", None)
    with pytest.raises(UsageError, match="zfec"):
        source(fec_group=8)
    assert isinstance(source().window, TransmitWindow)
    assert parameters().fec_group == 0
