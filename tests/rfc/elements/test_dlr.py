"""Designated local repairers (DLR), and elements that know one (RFC 9.5)."""

from __future__ import annotations

import pytest

from pgm.core.element.setup import ElementSetup
from pgm.core.receiver.setup import ReceiverSetup
from pgm.units import SECOND
from pgm.wire.formats import PacketType
from pgm.wire.options import Fin, Fragment, Join, Syn
from pgm.wire.train import Data
from tests.rfc.bench import BELOW, LAN, SOURCE, UP, A, B, Bench
from tests.unit.core.makers import MS, REPAIRER, SEGMENT, data_train, ncf_packet, payload_of, sent_items, spm_packet
from tests.unit.core.reader import Reader

T = PacketType
LOCAL = "10.1.0.7"  # the repairer of segment A
AGGREGATOR = "10.1.0.1"
RPT, EVERY = 300 * MS, 100 * MS
TIMES = {"ne_nak_rpt_ivl": RPT, "ne_nak_rpt_rte": 10, "nak_elim_ivl": 100 * MS, "ne_nak_rdata_ivl": 2 * SECOND}
# A repairer beside the receivers of segment A, below the aggregator that asks it first.
BESIDE = ElementSetup(LAN, (LAN,), parents=(AGGREGATOR,))
CHILD = "10.0.0.9"


def repairer(**changes):
    """Return a bench of a relaying repairer."""
    return Bench("repairer", ElementSetup(UP, (A, B), parents=(SOURCE,)), **TIMES | changes).begin()


def beside(**changes):
    """Return a bench of a repairer on the segment of its aggregator and of the receivers."""
    node = Bench("repairer", BESIDE, **TIMES | changes)
    node.hear(spm_packet(1, 0, -1), LAN, AGGREGATOR)
    node.hear(data_train(range(20)), LAN, AGGREGATOR)
    node.log.clear()
    return node


def asks_local(**changes):
    """Return a bench of an aggregator that asks the repairer of segment A before the source."""
    setup = ElementSetup(UP, (A, B), parents=(SOURCE,), repairers=((LOCAL,), ()))
    return Bench(setup=setup, **TIMES | changes).begin()


# The repairer


@pytest.mark.rfc("DLR-01")
def test_dlr_recovers_its_losses_without_requests():
    """The repairer NAKs without a request from below, and then serves the recovered packets."""
    node = repairer()
    node.hear(data_train([22]), UP, SOURCE)
    node.wait(MS)
    assert node.where(T.NAK) == [("core", (20, 21))]
    node.ncf(20, 21)
    node.rdata(20, 21)
    node.log.clear()
    node.nak(A, 20)
    node.wait(MS)
    assert node.where(T.RDATA) == [("a", (20,))]
    assert node.sent(T.NAK) == []


@pytest.mark.rfc("DLR-01")
def test_dlr_repairs_carry_the_newest_known_trail():
    node = repairer()
    node.hear(spm_packet(2, 4, 19), UP, SOURCE)
    node.nak(A, 5, 6)
    node.wait(MS)
    [(_, _, item)] = node.sent(T.RDATA)
    assert isinstance(item, Data)
    assert (item.wire_sqn, item.count, item.wire_trail) == (5, 2, 4)


@pytest.mark.rfc("DLR-06")
def test_dlr_answers_a_nak_like_a_source():
    """An NCF goes at once, then the repair.

    Both go to the group of the segment that asked, under the source's TSI.
    """
    node = repairer()
    node.nak(A, 5)
    node.wait(MS)
    sent = [(item.type, send.segment, send.to, item.tsi) for _, send in node.log for item in _items(send)]
    tsi = sent[0][3]
    assert sent == [(T.NCF, A, None, tsi), (T.RDATA, A, None, tsi)]
    [(_, _, item)] = node.sent(T.RDATA)
    assert isinstance(item, Data)
    assert item.run(5).payloads.tobytes() == payload_of(5)


@pytest.mark.rfc("DLR-08")
def test_dlr_missing_packets_are_asked_above_and_confirmed_below():
    """The NAK goes up without a back-off, as an element would send it.

    The repair for the child follows when the packet comes.
    """
    node = repairer(nak_bo_ivl=SECOND)
    node.hear(data_train([21]), UP, SOURCE)
    begun = node.now
    node.nak(A, 20)
    assert node.where(T.NCF) == [("a", (20,))]
    node.wait(MS)
    assert [(at - begun, send.segment, send.to) for at, send, _ in node.sent(T.NAK)] == [(0, UP, SOURCE)]
    node.ncf(20)
    node.rdata(20)
    node.wait(MS)
    assert ("a", (20,)) in node.where(T.ODATA) + node.where(T.RDATA)


@pytest.mark.rfc("DLR-13")
def test_dlr_distinguishes_naks_of_parent_and_child_by_address():
    """The parent has already confirmed its NAK on the segment; a child depends on the repairer's NCF."""
    node = beside()
    node.nak(LAN, 5, peer=AGGREGATOR)
    node.nak(LAN, 6, peer=CHILD)
    assert [(send.to, _sqn(item)) for _, send, item in node.sent(T.NCF)] == [(AGGREGATOR, 5), (None, 6)]


@pytest.mark.rfc("DLR-14")
@pytest.mark.parametrize("is_promised", [False, True])
def test_dlr_asked_by_parent_for_missing_packet_naks_back(is_promised):
    """An NCF goes to the parent at once, then a NAK for the same sqn, so that the parent asks elsewhere.

    The same holds if the parent has confirmed the sqn on the segment, because the parent relies on the repairer then.
    """
    node = beside(nak_bo_ivl=SECOND)
    node.hear(spm_packet(2, 0, 20), LAN, AGGREGATOR)
    if is_promised:
        node.ncf(20, peer=AGGREGATOR)
    begun = node.now
    node.nak(LAN, 20, peer=AGGREGATOR)
    node.wait(MS)
    sent = [(at - begun, item.type, send.to) for at, send in node.log for item in _items(send)]
    assert sent == [(0, T.NCF, AGGREGATOR), (0, T.NAK, AGGREGATOR)]


@pytest.mark.rfc("DLR-15")
@pytest.mark.parametrize("option", [Syn(), Fin(), Join(3), Fragment(5, 0, 12)], ids=lambda option: option.NAME)
def test_dlr_repairs_keep_the_original_options(option):
    node = repairer()
    node.hear(data_train([20], options=(option,)), UP, SOURCE)
    node.log.clear()
    node.nak(A, 20)
    node.wait(MS)
    [(_, _, item)] = node.sent(T.RDATA)
    assert isinstance(item, Data)
    assert item.options == (option,)


@pytest.mark.rfc("DLR-17")
def test_receivers_accept_ncfs_and_repairs_of_repairers():
    reader = Reader(ReceiverSetup(SEGMENT))
    reader.hear(spm_packet(1, 0, -1))
    reader.hear(data_train([0, 1, 4]))
    reader.hear(ncf_packet(2, 3), peer=REPAIRER)
    reader.wait(100 * MS)
    assert reader.naks() == []
    reader.hear(data_train([2, 3], kind=T.RDATA), peer=REPAIRER)
    assert reader.delivered() == [0, 1, 2, 3, 4]


# The element that knows a repairer


@pytest.mark.rfc("DLR-30", "NE-36")
def test_a_known_repairer_is_asked_first():
    """The NAK goes to the repairer of the segment that it came from; NAKs of other segments go up."""
    node = asks_local()
    node.nak(A, 5)
    node.nak(B, 6)
    assert [(send.segment, send.to, _sqn(item)) for _, send, item in node.sent(T.NAK)] == [
        (A, LOCAL, 5),
        (UP, SOURCE, 6),
    ]


@pytest.mark.rfc("DLR-34")
def test_dlr_is_not_asked_for_losses_of_its_whole_segment():
    """The repairer's own NAK reveals the loss; NAKs for other sqns still go to the repairer."""
    node = asks_local()
    node.nak(A, 5, peer=LOCAL)
    assert [(send.segment, send.to) for _, send, _ in node.sent(T.NAK)] == [(UP, SOURCE)]
    node.nak(A, 5, peer=BELOW[A.index])
    assert len(node.sent(T.NAK)) == 1
    node.nak(A, 6)
    assert [(send.segment, send.to) for _, send, _ in node.sent(T.NAK)] == [(UP, SOURCE), (A, LOCAL)]


@pytest.mark.rfc("DLR-35")
def test_a_repairer_that_does_not_confirm_is_passed_over():
    """After NAK_RPT_IVL the source is asked, for a full NAK_RPT_IVL.

    After `parent_patience` such requests in a row, later NAKs skip the repairer of the topology at once.
    """
    node = asks_local(parent_patience=3)
    begun = node.now
    node.nak(A, 5)
    node.wait(RPT + 2 * EVERY)
    assert [(at - begun, send.to) for at, send, _ in node.sent(T.NAK)] == [
        (0, LOCAL),
        (EVERY, LOCAL),
        (2 * EVERY, LOCAL),
        (RPT, SOURCE),
        (RPT + EVERY, SOURCE),
        (RPT + 2 * EVERY, SOURCE),
    ]
    node.ncf(5)
    for sqn, target in [(6, LOCAL), (7, LOCAL), (8, SOURCE)]:
        node.log.clear()
        node.nak(A, sqn)
        assert [send.to for _, send, _ in node.sent(T.NAK)] == [target]
        node.wait(RPT)
        node.ncf(sqn)


@pytest.mark.rfc("DLR-36")
def test_dlr_counter_nak_sends_that_sqn_to_the_neighbour():
    node = asks_local()
    node.nak(A, 5, 6)
    node.ncf(5, 6, peer=LOCAL, on=A)
    node.log.clear()
    node.nak(A, 5, peer=LOCAL, after=MS)
    assert node.where(T.NCF) == [("a", (5,))]
    assert [(send.to, _sqn(item)) for _, send, item in node.sent(T.NAK)] == [(SOURCE, 5)]
    node.nak(A, 7, after=MS)
    assert [(send.to, _sqn(item)) for _, send, item in node.sent(T.NAK)] == [(SOURCE, 5), (LOCAL, 7)]


@pytest.mark.rfc("DLR-30")
def test_dlr_local_repair_stays_on_its_segment():
    node = asks_local()
    node.nak(A, 5)
    node.nak(B, 5)
    node.hear(data_train([5], kind=T.RDATA), A, LOCAL)
    node.log.clear()
    node.rdata(5)
    assert node.where(T.RDATA) == [("b", (5,))]


def _items(send):
    return sent_items([send])


def _sqn(item):
    return item.sqn
