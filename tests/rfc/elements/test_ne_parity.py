"""Elements and parity: requests are gathered by count, repairs are counted down (RFC 11.6)."""

from __future__ import annotations

import pytest

from pgm.units import MILLISECOND, SECOND
from pgm.wire.formats import PacketType
from pgm.wire.options import CurrTgsize, ParityPrm
from pgm.wire.parity import request_sqn, requested
from pgm.wire.train import Train
from tests.reference import data_packet
from tests.rfc.bench import SOURCE, UP, A, B, Bench
from tests.unit.core.makers import nak_packet, payload_of, spm_packet

MS = MILLISECOND
T = PacketType
SIZE = 8
OFFER = ParityPrm(SIZE, on_demand=True)


def bench_of(**changes):
    """Return a bench of an aggregator that knows parity and has passed down five groups."""
    bench = Bench(**changes).begin(5 * SIZE, options=(OFFER,))
    bench.hear(spm_packet(2, 0, 5 * SIZE - 1, OFFER), UP, SOURCE)
    bench.log.clear()
    return bench


def ask(bench, segment, group, count, *, after=0, kind=T.NAK, peer=None):
    bench.nak(segment, request_sqn(group, count), after=after, parity=True, kind=kind, peer=peer)


def ncf(bench, group, count):
    packet = nak_packet(request_sqn(group, count), kind=T.NCF, source_nla=SOURCE, group_nla=UP.group, parity=True)
    bench.hear(packet, UP, SOURCE)


def parity(bench, group, *indexes, options=(), on=UP, kind=T.RDATA):
    for index in indexes:
        octets = data_packet(group + index, payload_of(index), kind=kind, options=options, parity=True)
        bench.hear(Train.of(octets), on, SOURCE)


def take_requests(bench, kind):
    """Return segment, group and count of each request sent, and clear the log."""
    found = [(send.segment.name, *requested(nak.sqn, SIZE)) for _, send, nak in bench.sent(kind)]
    assert all(nak.parity for _, _, nak in bench.sent(kind))
    return found


def take_parity_segments(bench):
    """Return the segments of the parity that went down."""
    found = [send.segment.name for _, send, _ in bench.sent(T.RDATA)]
    bench.log.clear()
    return found


@pytest.mark.rfc("FEC-40", "FEC-41", "FEC-43", "NE-37")
def test_a_request_is_confirmed_and_forwarded():
    bench = bench_of()
    ask(bench, A, 8, 3)
    assert take_requests(bench, T.NCF) == [("a", 8, 3)]
    assert take_requests(bench, T.NAK) == [("core", 8, 3)]


@pytest.mark.rfc("FEC-41")
def test_the_ncf_names_the_largest_count_of_its_own_segment():
    bench = bench_of()
    ask(bench, A, 8, 3)
    ask(bench, B, 8, 5)
    bench.log.clear()
    ask(bench, A, 8, 1)
    ask(bench, A, 8, 4)
    assert take_requests(bench, T.NCF) == [("a", 8, 3), ("a", 8, 4)]


@pytest.mark.rfc("FEC-42", "FEC-43")
def test_only_larger_counts_are_forwarded():
    bench = bench_of()
    ask(bench, A, 8, 3)
    ncf(bench, 8, 3)
    bench.log.clear()
    for segment, count in ((A, 3), (A, 1), (B, 2), (B, 3)):
        ask(bench, segment, 8, count)
    assert take_requests(bench, T.NAK) == []
    assert bench.core.counters.nak_packets_eliminated == 4
    ask(bench, B, 8, 4)
    assert take_requests(bench, T.NAK) == [("core", 8, 4)]
    bench.log.clear()
    ask(bench, A, 16, 1)  # a request for another group is separate
    assert take_requests(bench, T.NAK) == [("core", 16, 1)]


@pytest.mark.rfc("FEC-43")
def test_ne_parity_largest_count_repeats_after_nak_elim_ivl():
    bench = bench_of(nak_elim_ivl=100 * MS)
    ask(bench, A, 8, 3)
    ncf(bench, 8, 3)
    bench.log.clear()
    ask(bench, B, 8, 2, after=99 * MS)
    assert take_requests(bench, T.NAK) == []
    ask(bench, B, 8, 2, after=2 * MS)
    assert take_requests(bench, T.NAK) == [("core", 8, 3)]


@pytest.mark.rfc("FEC-44", "FEC-40", "NE-37")
def test_parity_counts_down_and_segments_leave_at_zero():
    bench = bench_of()
    ask(bench, A, 8, 1)
    ask(bench, B, 8, 3)
    ask(bench, B, 8, 1)  # of another receiver on that segment
    bench.log.clear()
    for expected in (["a", "b"], ["b"], ["b"], []):
        parity(bench, 8, 0)
        assert take_parity_segments(bench) == expected
    assert bench.core.counters.rdata_unwanted == 1
    parity(bench, 16, 0)
    assert take_parity_segments(bench) == []


@pytest.mark.rfc("FEC-44")
def test_ne_parity_arrived_packets_are_no_longer_asked_for():
    """Two of four have come. A request for two is in flight, a request for three is not."""
    bench = bench_of()
    ask(bench, A, 8, 4)
    ncf(bench, 8, 4)
    parity(bench, 8, 0, 1)
    bench.log.clear()
    ask(bench, B, 8, 2)
    assert take_requests(bench, T.NAK) == []
    ask(bench, B, 8, 3)
    assert take_requests(bench, T.NAK) == [("core", 8, 3)]


@pytest.mark.rfc("FEC-45")
@pytest.mark.parametrize("told_by", ["parity", "spm"])
def test_segments_of_a_short_group_leave_when_only_its_gap_is_left(told_by):
    """The group has five packets, so three of the six requested packets were never sent."""
    bench = bench_of()
    ask(bench, A, 32, 4)
    ask(bench, B, 32, 6)
    bench.log.clear()
    options = (CurrTgsize(5),) if told_by == "parity" else ()
    if told_by == "spm":
        bench.hear(spm_packet(3, 0, 36 + SIZE, OFFER), UP, SOURCE)  # an SPM with another lead
        bench = bench_of()
        bench.hear(spm_packet(3, 0, 44, OFFER, CurrTgsize(5)), UP, SOURCE)
        ask(bench, A, 40, 4)
        ask(bench, B, 40, 6)
        bench.log.clear()
    group = 32 if told_by == "parity" else 40
    for expected in (["a", "b"], ["b"], ["b"], []):
        parity(bench, group, 0, options=options)
        assert take_parity_segments(bench) == expected


@pytest.mark.rfc("FEC-46")
def test_ne_parity_only_an_ncf_of_equal_count_stops_repeats():
    for count, is_enough in ((2, False), (3, True), (4, True)):
        bench = bench_of()
        ask(bench, A, 8, 3)
        bench.log.clear()
        ncf(bench, 8, count)
        bench.wait(250 * MS)
        assert (take_requests(bench, T.NAK) == []) == is_enough


@pytest.mark.rfc("FEC-47")
def test_anticipation_holds_up_to_the_count_of_the_ncf():
    bench = bench_of()
    ncf(bench, 8, 3)
    ask(bench, A, 8, 3)
    assert take_requests(bench, T.NAK) == []
    assert take_requests(bench, T.NCF) == [("a", 8, 3)]
    ncf(bench, 8, 5)  # another receiver needs more
    ask(bench, B, 8, 5)
    assert take_requests(bench, T.NAK) == []
    ask(bench, B, 8, 6)
    assert take_requests(bench, T.NAK) == [("core", 8, 6)]
    bench.log.clear()
    parity(bench, 8, 0)
    assert take_parity_segments(bench) == ["a", "b"]


@pytest.mark.rfc("FEC-47")
def test_ne_parity_without_requests_is_discarded():
    bench = bench_of()
    ncf(bench, 8, 2)
    parity(bench, 8, 0, 1)
    assert take_parity_segments(bench) == []
    ask(bench, A, 8, 2)  # the anticipated repair has ended
    assert take_requests(bench, T.NAK) == [("core", 8, 2)]


@pytest.mark.rfc("FEC-48")
def test_proactive_parity_goes_down_and_changes_nothing():
    bench = bench_of()
    ask(bench, A, 8, 2)
    bench.log.clear()
    parity(bench, 8, 0, kind=T.ODATA)
    assert [send.segment.name for _, send, _ in bench.sent(T.ODATA)] == ["a", "b", "c"]
    bench.log.clear()
    for expected in (["a"], ["a"], []):
        parity(bench, 8, 1)
        assert take_parity_segments(bench) == expected


@pytest.mark.rfc("DLR-41")
def test_a_null_nak_is_eliminated_by_a_larger_request_only():
    for asked, passes in ((1, True), (2, True), (3, False)):
        bench = bench_of()
        ask(bench, A, 8, asked)
        bench.log.clear()
        ask(bench, B, 8, 2, kind=T.NNAK)
        assert (take_requests(bench, T.NNAK) == [("core", 8, 2)]) == passes
        assert bench.core.counters.nnak_packets_eliminated == (not passes)


def test_a_list_is_answered_by_one_list():
    bench = bench_of()
    bench.nak(A, request_sqn(8, 3), request_sqn(16, 1), parity=True)
    assert [nak.sqns for _, _, nak in bench.sent(T.NAK)] == [(10, 16)]
    bench.log.clear()
    bench.nak(A, request_sqn(8, 1), request_sqn(16, 2), parity=True)
    assert [nak.sqns for _, _, nak in bench.sent(T.NCF)] == [(10, 17)]
    assert [nak.sqns for _, _, nak in bench.sent(T.NAK)] == [(17,)]


def test_ne_parity_single_and_parity_requests_are_separate():
    bench = bench_of()
    ask(bench, A, 8, 1)
    bench.nak(B, 8)
    assert [(nak.parity, nak.sqns) for _, _, nak in bench.sent(T.NAK)] == [(True, (8,)), (False, (8,))]
    bench.log.clear()
    bench.rdata(8)
    assert take_parity_segments(bench) == ["b"]
    parity(bench, 8, 0)
    assert take_parity_segments(bench) == ["a"]


def test_repeats_stop_and_states_are_bounded():
    bench = bench_of(repair_states=16)
    for at in range(5):
        ask(bench, A, at * SIZE, 1)
    bench.hear(spm_packet(3, 0, 40 * SIZE, OFFER), UP, SOURCE)
    for at in range(5, 30):
        ask(bench, A, at * SIZE, 1)
    (session,) = bench.core.sessions
    assert len(session.parity.elimination.repairs) == 16
    assert bench.core.counters.states_refused == 14
    bench.wait(10 * SECOND)
    assert len(session.parity.elimination.repairs) == 0


def test_ne_parity_foreign_requests_are_counted():
    bench = Bench().begin()
    ask(bench, A, 8, 1)
    assert bench.core.counters.nak_packets_foreign == 1
    bench = bench_of()
    ask(bench, A, 5 * SIZE, 1)
    assert bench.core.counters.nak_packets_foreign == 1
    assert bench.log == []


def test_ne_parity_relay_does_not_request_its_own_losses():
    """A packet missing at the relay may be absent because its group is short."""
    bench = bench_of()
    bench.hear(Train.of(data_packet(7 * SIZE, payload_of(1))), UP, SOURCE)
    bench.wait(SECOND)
    assert bench.sent(T.NAK) == []


@pytest.mark.rfc("FEC-02")
def test_ne_parity_offer_in_mid_stream_is_ignored():
    """The relay continues to ask for its missing packets."""
    bench = Bench().begin(5 * SIZE)
    bench.hear(spm_packet(2, 0, 5 * SIZE - 1, OFFER), UP, SOURCE)
    bench.hear(Train.of(data_packet(5 * SIZE + 1, payload_of(1))), UP, SOURCE)
    bench.wait(SECOND)
    assert set(bench.where(T.NAK)) == {("core", (5 * SIZE,))}


def test_ne_parity_reaches_askers_of_single_packets():
    """A source may answer single NAKs with parity."""
    bench = bench_of()
    bench.nak(B, 9)
    bench.log.clear()
    parity(bench, 8, 0)
    assert take_parity_segments(bench) == ["b"]
