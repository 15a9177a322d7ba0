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
    made = Bench("repairer", BESIDE, **TIMES | changes)
    made.hear(spm_packet(1, 0, -1), LAN, AGGREGATOR)
    made.hear(data_train(range(20)), LAN, AGGREGATOR)
    made.log.clear()
    return made


def asks_local():
    """Return a bench of an aggregator that asks the repairer of segment A before the source."""
    setup = ElementSetup(UP, (A, B), parents=(SOURCE,), repairers=((LOCAL,), ()))
    return Bench(setup=setup, **TIMES).begin()


# The repairer


@pytest.mark.rfc("DLR-01")
def test_dlr_recovers_its_losses_without_requests():
    """The repairer NAKs without a request from below, and then serves the recovered packets."""
    made = repairer()
    made.hear(data_train([22]), UP, SOURCE)
    made.wait(MS)
    assert made.where(T.NAK) == [("core", (20, 21))]
    made.ncf(20, 21)
    made.rdata(20, 21)
    made.log.clear()
    made.nak(A, 20)
    made.wait(MS)
    assert made.where(T.RDATA) == [("a", (20,))]
    assert made.sent(T.NAK) == []


@pytest.mark.rfc("DLR-01")
def test_dlr_repairs_carry_the_newest_known_trail():
    made = repairer()
    made.hear(spm_packet(2, 4, 19), UP, SOURCE)
    made.nak(A, 5, 6)
    made.wait(MS)
    [(_, _, item)] = made.sent(T.RDATA)
    assert isinstance(item, Data)
    assert (item.wire_sqn, item.count, item.wire_trail) == (5, 2, 4)


@pytest.mark.rfc("DLR-06")
def test_dlr_answers_a_nak_like_a_source():
    """An NCF goes at once, then the repair.

    Both go to the group of the segment that asked, under the source's TSI.
    """
    made = repairer()
    made.nak(A, 5)
    made.wait(MS)
    sent = [(item.type, send.segment, send.to, item.tsi) for _, send in made.log for item in _items(send)]
    tsi = sent[0][3]
    assert sent == [(T.NCF, A, None, tsi), (T.RDATA, A, None, tsi)]
    [(_, _, item)] = made.sent(T.RDATA)
    assert isinstance(item, Data)
    assert item.run(5).payloads.tobytes() == payload_of(5)


@pytest.mark.rfc("DLR-08")
def test_dlr_missing_packets_are_asked_above_and_confirmed_below():
    """The NAK goes up without a back-off, as an element would send it.

    The repair for the child follows when the packet comes.
    """
    made = repairer(nak_bo_ivl=SECOND)
    made.hear(data_train([21]), UP, SOURCE)
    begun = made.now
    made.nak(A, 20)
    assert made.where(T.NCF) == [("a", (20,))]
    made.wait(MS)
    assert [(at - begun, send.segment, send.to) for at, send, _ in made.sent(T.NAK)] == [(0, UP, SOURCE)]
    made.ncf(20)
    made.rdata(20)
    made.wait(MS)
    assert ("a", (20,)) in made.where(T.ODATA) + made.where(T.RDATA)


@pytest.mark.rfc("DLR-13")
def test_dlr_distinguishes_naks_of_parent_and_child_by_address():
    """The parent has already confirmed its NAK on the segment; a child depends on the repairer's NCF."""
    made = beside()
    made.nak(LAN, 5, peer=AGGREGATOR)
    made.nak(LAN, 6, peer=CHILD)
    assert [(send.to, _sqn(item)) for _, send, item in made.sent(T.NCF)] == [(AGGREGATOR, 5), (None, 6)]


@pytest.mark.rfc("DLR-14")
@pytest.mark.parametrize("is_promised", [False, True])
def test_dlr_asked_by_parent_for_missing_packet_naks_back(is_promised):
    """An NCF goes to the parent at once, then a NAK for the same sqn, so that the parent asks elsewhere.

    The same holds if the parent has confirmed the sqn on the segment, because the parent relies on the repairer then.
    """
    made = beside(nak_bo_ivl=SECOND)
    made.hear(spm_packet(2, 0, 20), LAN, AGGREGATOR)
    if is_promised:
        made.ncf(20, peer=AGGREGATOR)
    begun = made.now
    made.nak(LAN, 20, peer=AGGREGATOR)
    made.wait(MS)
    sent = [(at - begun, item.type, send.to) for at, send in made.log for item in _items(send)]
    assert sent == [(0, T.NCF, AGGREGATOR), (0, T.NAK, AGGREGATOR)]


@pytest.mark.rfc("DLR-15")
@pytest.mark.parametrize("option", [Syn(), Fin(), Join(3), Fragment(5, 0, 12)], ids=lambda option: option.NAME)
def test_dlr_repairs_keep_the_original_options(option):
    made = repairer()
    made.hear(data_train([20], options=(option,)), UP, SOURCE)
    made.log.clear()
    made.nak(A, 20)
    made.wait(MS)
    [(_, _, item)] = made.sent(T.RDATA)
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
    made = asks_local()
    made.nak(A, 5)
    made.nak(B, 6)
    assert [(send.segment, send.to, _sqn(item)) for _, send, item in made.sent(T.NAK)] == [
        (A, LOCAL, 5),
        (UP, SOURCE, 6),
    ]


@pytest.mark.rfc("DLR-34")
def test_dlr_is_not_asked_for_losses_of_its_whole_segment():
    """The repairer's own NAK reveals the loss; NAKs for other sqns still go to the repairer."""
    made = asks_local()
    made.nak(A, 5, peer=LOCAL)
    assert [(send.segment, send.to) for _, send, _ in made.sent(T.NAK)] == [(UP, SOURCE)]
    made.nak(A, 5, peer=BELOW[A.index])
    assert len(made.sent(T.NAK)) == 1
    made.nak(A, 6)
    assert [(send.segment, send.to) for _, send, _ in made.sent(T.NAK)] == [(UP, SOURCE), (A, LOCAL)]


@pytest.mark.rfc("DLR-35")
def test_a_repairer_that_does_not_confirm_is_passed_over():
    """After NAK_RPT_IVL the source is asked, for a full NAK_RPT_IVL.

    Later NAKs skip the repairer too.
    """
    made = asks_local()
    begun = made.now
    made.nak(A, 5)
    made.wait(RPT + 2 * EVERY)
    assert [(at - begun, send.to) for at, send, _ in made.sent(T.NAK)] == [
        (0, LOCAL),
        (EVERY, LOCAL),
        (2 * EVERY, LOCAL),
        (RPT, SOURCE),
        (RPT + EVERY, SOURCE),
        (RPT + 2 * EVERY, SOURCE),
    ]
    made.ncf(5)
    made.log.clear()
    made.nak(A, 6)
    assert [send.to for _, send, _ in made.sent(T.NAK)] == [SOURCE]


@pytest.mark.rfc("DLR-36")
def test_dlr_counter_nak_sends_that_sqn_to_the_neighbour():
    made = asks_local()
    made.nak(A, 5, 6)
    made.ncf(5, 6, peer=LOCAL, on=A)
    made.log.clear()
    made.nak(A, 5, peer=LOCAL, after=MS)
    assert made.where(T.NCF) == [("a", (5,))]
    assert [(send.to, _sqn(item)) for _, send, item in made.sent(T.NAK)] == [(SOURCE, 5)]
    made.nak(A, 7, after=MS)
    assert [(send.to, _sqn(item)) for _, send, item in made.sent(T.NAK)] == [(SOURCE, 5), (LOCAL, 7)]


@pytest.mark.rfc("DLR-30")
def test_dlr_local_repair_stays_on_its_segment():
    made = asks_local()
    made.nak(A, 5)
    made.nak(B, 5)
    made.hear(data_train([5], kind=T.RDATA), A, LOCAL)
    made.log.clear()
    made.rdata(5)
    assert made.where(T.RDATA) == [("b", (5,))]


def _items(send):
    return sent_items([send])


def _sqn(item):
    return item.sqn
