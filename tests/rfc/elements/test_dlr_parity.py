"""Repairers and parity (RFC 11.7).

Repairers recover by parity, make parity from kept packets, and announce parity in their offers.
"""

from __future__ import annotations

import attrs
import pytest

from pgm.core.receiver.setup import ReceiverSetup
from pgm.fec import groups
from pgm.units import SECOND
from pgm.wire.control_packets import Polr, encode
from pgm.wire.formats import OPTIONS_PARITY, PacketType
from pgm.wire.options import CurrTgsize, ParityPrm, Redirect
from pgm.wire.parity import build_parity, read_parity, request_sqn, requested
from pgm.wire.train import Data, Train
from tests.reference import DATA_PORT, TSI
from tests.rfc.bench import LAN, SOURCE, UP, A, Bench
from tests.rfc.redirects import CHILD, beside
from tests.unit.core.makers import (
    MS,
    PARENT,
    SEGMENT,
    data_train,
    nak_packet,
    payload_of,
    run_of,
    sent_items,
    spm_packet,
)
from tests.unit.core.reader import Reader

T = PacketType
SIZE = 8
OFFER = ParityPrm(SIZE, on_demand=True)
FAR = "10.9.0.7"


def parity(group, *indexes, actual=SIZE, kind=T.RDATA):
    node = groups.encode([run_of(group, actual)], group, SIZE, indexes, actual)
    return [Train.of(build_parity(kind, one, tsi=TSI, data_port=DATA_PORT, size=SIZE, trail=0)) for one in node]


def relay_of(lost=(), *, sqns=3 * SIZE, **changes):
    """Return a bench of a relaying repairer with three groups of packets except those in `lost`."""
    bench = Bench("repairer", **changes)
    bench.hear(spm_packet(1, 0, -1, OFFER), UP, SOURCE)
    bench.hear(data_train([0]), UP, SOURCE)
    for sqn in range(1, sqns):
        if sqn not in lost:
            bench.hear(data_train([sqn]), UP, SOURCE)
    bench.log = [one for one in bench.log if sent_items([one[1]])[0].type is T.NAK]
    return bench


def ask(bench, group, count, on=A, peer=None, kind=T.NAK):
    bench.nak(on, request_sqn(group, count), parity=True, peer=peer, kind=kind)


def packets(bench):
    """Return segment and packet of each parity packet that went out."""
    return [
        (send.segment.name, packet)
        for _, send, item in bench.sent(T.RDATA)
        if isinstance(item, Data) and item.parity
        for packet in read_parity(item, item.wire_sqn, SIZE)
    ]


def naks(bench):
    return [
        [requested(sqn, SIZE) for sqn in nak.sqns] if nak.parity else list(nak.sqns) for _, _, nak in bench.sent(T.NAK)
    ]


@pytest.mark.rfc("DLR-03", "FEC-15")
def test_dlr_parity_is_made_from_kept_packets():
    bench = relay_of()
    ask(bench, 8, 3)
    assert [(send.segment.name, nak.parity, nak.sqns) for _, send, nak in bench.sent(T.NCF)] == [("a", True, (10,))]
    bench.wait(50 * MS)
    assert [(where, one.group) for where, one in packets(bench)] == [("a", 8)] * 3
    held = [run_of(sqn, 1) for sqn in range(8, 13)]
    found = groups.decode(
        held, [one for _, one in packets(bench)], 8, SIZE, SIZE, groups.OriginalHeader(TSI, DATA_PORT, 0)
    )
    assert [run.payloads[0].tobytes() for run in found] == [payload_of(sqn) for sqn in (13, 14, 15)]
    assert bench.sent(T.NAK) == []


def test_dlr_parity_numbers_are_distinct_from_the_sources():
    bench = relay_of()
    for _ in range(4):
        ask(bench, 8, 8)
        bench.wait(50 * MS)
    numbers = [one.index for _, one in packets(bench)]
    assert len(set(numbers)) == 32
    assert min(numbers) >= SIZE


def test_dlr_parity_missing_packets_are_recovered_first():
    """The repairer recovers by parity itself; then it makes parity of the whole group."""
    bench = relay_of(lost=(9, 12))
    bench.wait(20 * MS)
    assert naks(bench) == [[(8, 2)]]
    ask(bench, 8, 5)
    bench.wait(20 * MS)
    assert packets(bench) == []
    for one in parity(8, 0, 1):
        bench.hear(one, UP, SOURCE)
    assert bench.where(T.ODATA) == [(segment, (sqn,)) for sqn in (9, 12) for segment in "abc"]  # new to all nodes below
    bench.wait(20 * MS)
    assert [(where, one.group) for where, one in packets(bench)] == [("a", 8)] * 5
    assert bench.core.counters.parity_sqns == 2


def test_dlr_parity_incomplete_group_is_awaited():
    bench = relay_of(sqns=12)
    ask(bench, 8, 2)
    bench.wait(50 * MS)
    assert (packets(bench), naks(bench)) == ([], [])
    bench.hear(data_train(range(12, 17)), UP, SOURCE)
    bench.wait(50 * MS)
    assert len(packets(bench)) == 2


@pytest.mark.rfc("FEC-22")
def test_short_groups_are_repaired_too():
    bench = relay_of(sqns=13)
    bench.hear(spm_packet(2, 0, 12, OFFER, CurrTgsize(5)), UP, SOURCE)
    bench.log.clear()
    ask(bench, 8, 5)
    bench.wait(50 * MS)
    assert [one.actual for _, one in packets(bench)] == [5, 5]
    bench.hear(data_train([16]), UP, SOURCE)
    bench.wait(SECOND)
    assert naks(bench) == []  # the sqns in between were never sent


def test_dlr_parity_short_group_is_told_to_askers():
    bench = relay_of(sqns=13)
    bench.hear(spm_packet(2, 0, 12, OFFER, CurrTgsize(5)), UP, SOURCE)
    bench.hear(data_train([16]), UP, SOURCE)
    bench.log.clear()
    bench.nak(A, 10, 14, 15)
    bench.wait(50 * MS)
    assert [nak.sqns for _, _, nak in bench.sent(T.NCF)] == [(10, 14, 15), (10,)]
    assert [(one.group, one.actual) for _, one in packets(bench)] == [(8, 5)]
    assert 10 in [item.wire_sqn for _, _, item in bench.sent(T.RDATA) if not item.parity]
    bench.wait(SECOND)
    assert naks(bench) == []


def test_dlr_parity_of_lacking_short_group_is_made_once_whole():
    """A restarted repairer learns the size of a group that it has no packet of."""
    bench = Bench("repairer")
    bench.hear(spm_packet(1, 0, 15, OFFER), UP, SOURCE)
    bench.hear(data_train([16]), UP, SOURCE)
    for one in parity(8, 0, actual=5):
        bench.hear(one, UP, SOURCE)
    bench.log.clear()
    bench.nak(A, 15)
    assert [nak.sqns for _, _, nak in bench.sent(T.NCF)] == [(15,)]
    bench.wait(10 * MS)
    assert naks(bench)[0] == [(8, SIZE)]
    bench.rdata(*range(8, 13))
    bench.wait(10 * MS)
    assert [(where, one.group, one.actual) for where, one in packets(bench)] == [("a", 8, 5)]


def test_dlr_parity_size_learnt_from_above_is_told_to_askers():
    """A repairer that knew no size requests the unused sqn, and passes on the size that answers."""
    bench = relay_of(sqns=13)
    bench.hear(data_train([16]), UP, SOURCE)
    bench.log.clear()
    bench.nak(A, 14)
    bench.wait(10 * MS)
    assert packets(bench) == []
    for one in parity(8, 0, actual=5):
        bench.hear(one, UP, SOURCE)
    bench.wait(50 * MS)
    assert [(where, one.group, one.actual) for where, one in packets(bench)] == [("a", 8, 5)]


@pytest.mark.rfc("FEC-48")
def test_dlr_parity_unrequested_parity_is_forwarded_and_used():
    bench = relay_of(lost=(9,))
    [one] = parity(8, 0, kind=T.ODATA)
    bench.hear(one, UP, SOURCE)
    sent = [(send.segment.name, item.parity) for _, send, item in bench.sent(T.ODATA)]
    assert sent[:3] == [("a", True), ("b", True), ("c", True)]
    assert bench.core.counters.parity_sqns == 1


def test_dlr_parity_of_another_repairer_reduces_the_debt():
    node = beside("off", options=(OFFER,), assist_on_ncf=False, rdata_hold_ivl=10 * MS)
    node.hear(data_train(range(20, 32)), LAN, SOURCE)
    node.log.clear()
    ask(node, 16, 2, on=LAN, peer=CHILD)
    node.hear(parity(16, 0)[0], LAN, "10.0.0.6")
    node.wait(50 * MS)
    assert len(packets(node)) == 1
    assert node.core.counters.repairs_cancelled == 1


@pytest.mark.rfc("FEC-46", "FEC-26")
def test_dlr_parity_ncf_with_smaller_count_does_not_confirm():
    for count, is_enough in ((1, False), (2, True)):
        bench = relay_of(lost=(9, 12), nak_max_ivl=SECOND)
        bench.wait(20 * MS)
        packet = nak_packet(request_sqn(8, count), kind=T.NCF, source_nla=SOURCE, group_nla=UP.group, parity=True)
        bench.hear(packet, UP, SOURCE)
        bench.wait(120 * MS)
        assert (len(naks(bench)) == 1) == is_enough


def test_dlr_parity_ncf_of_the_parent_triggers_parity():
    node = beside("off", options=(OFFER,), rdata_hold_ivl=MS)
    node.hear(data_train(range(20, 32)), LAN, SOURCE)
    node.log.clear()
    packet = nak_packet(request_sqn(16, 2), kind=T.NCF, source_nla=SOURCE, group_nla=LAN.group, parity=True)
    node.hear(packet, LAN, SOURCE)
    node.wait(10 * MS)
    assert len(packets(node)) == 2


@pytest.mark.rfc("DLR-03")
def test_dlr_parity_offer_announces_parity():
    for options, says in (((), False), ((OFFER,), True)):
        node = beside("upstream", options=options, assist_on_ncf=False)
        node.ncf(5)
        [(_, _, polr)] = node.sent(T.POLR)
        assert polr.parity == bool(encode(polr)[5] & OPTIONS_PARITY) == says


@pytest.mark.rfc("DLR-33")
@pytest.mark.parametrize("has_parity", [False, True])
def test_parity_is_asked_only_of_a_repairer_that_offered_it(has_parity):
    reader = Reader(
        ReceiverSetup(attrs.evolve(SEGMENT, subnet="10.0.0.0/24"), parents=(PARENT,)),
        reorder_ivl=0,
        honour_redirects=True,
    )
    reader.hear(spm_packet(1, 0, -1, OFFER, path_nla=PARENT), peer=PARENT)
    reader.hear(data_train([0]))
    polr = Polr(
        tsi=TSI, data_port=DATA_PORT, poll_sqn=0, poll_round=0, parity=has_parity, options=(Redirect(dlr_nla=FAR),)
    )
    reader.hear(polr, peer=FAR)
    reader.hear(data_train(range(3, 9)))
    reader.wait(15 * MS)
    assert [send.to for _, send in reader.sent] == [FAR if has_parity else PARENT]


def test_null_naks_for_parity_are_passed_on():
    bench = relay_of()
    ask(bench, 8, 2, kind=T.NNAK)
    assert [(send.to, nak.parity, nak.sqns) for _, send, nak in bench.sent(T.NNAK)] == [(SOURCE, True, (9,))]


def test_dlr_parity_meaningless_requests_are_foreign():
    bench = relay_of()
    ask(bench, 5 * SIZE, 1)
    ask(bench, 5 * SIZE, 1, kind=T.NNAK)
    plain = Bench("repairer").begin()
    ask(plain, 8, 1)
    assert bench.core.counters.nak_packets_foreign == 2
    assert plain.core.counters.nak_packets_foreign == 1
    assert bench.log == plain.log == []


def test_dlr_parity_pending_requests_are_bounded():
    bench = relay_of(lost=range(8, 40 * SIZE), sqns=40 * SIZE + 1, repair_states=16)
    for group in range(SIZE, 40 * SIZE, SIZE):
        ask(bench, group, 1)
    assert bench.core.counters.states_refused == 39 - 16
