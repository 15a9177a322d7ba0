"""Network elements and repairers in the 25 most important tests."""

from __future__ import annotations

import attrs
import pytest

from pgm.core.element.setup import ElementSetup
from pgm.core.segment import Channel
from pgm.core.source.setup import SourceSetup
from pgm.core.source.source import SourceCore
from pgm.units import SECOND
from pgm.wire import checksum
from pgm.wire.control_packets import Nak, Spm
from pgm.wire.formats import PacketType
from pgm.wire.options import Join, UnknownOption
from pgm.wire.train import Train
from tests.reference import DATA_PORT, TSI
from tests.rfc.bench import BELOW, SOURCE, UP, A, B, Bench, C, as_received
from tests.rfc.test_polls import BO, Child, Floor, poll
from tests.unit.core.makers import (
    MS,
    data_train,
    nak_packet,
    ncf_packet,
    parameters,
    payload_of,
    sent_items,
    sent_sqns,
    spm_packet,
)
from tests.unit.core.reader import Reader

T = PacketType
RPT, EVERY, ELIM, RDATA = 300 * MS, 100 * MS, 100 * MS, 2 * SECOND
TIMES = {"ne_nak_rpt_ivl": RPT, "ne_nak_rpt_rte": 10, "nak_elim_ivl": ELIM, "ne_nak_rdata_ivl": RDATA}
NEIGHBOUR = "10.0.0.2"


def bench(**changes):
    return Bench(**TIMES | changes).begin()


@pytest.mark.rfc("NE-20", "NE-21", "NE-22", "NE-31")
def test_03_ne_elimination_cycle():
    """A NAK goes up and an NCF down; duplicates are confirmed and not forwarded.

    The first duplicate after NAK_ELIM_IVL goes up once, and the state ends after NAK_RDATA_IVL.
    """
    node = bench()
    node.nak(A, 5)
    node.ncf(5, after=10 * MS)
    for _ in range(9):
        node.nak(A, 5, after=10 * MS)
    node.wait(9 * MS)
    node.nak(B, 5)  # 99 ms after the confirmation
    assert len(node.sent(T.NCF)) == 11
    assert len(node.sent(T.NAK)) == 1
    node.nak(A, 5, after=MS)
    node.nak(A, 5, after=MS)  # pending again
    assert len(node.sent(T.NAK)) == 2
    node.ncf(5, after=10 * MS)
    confirmed_at = node.now
    node.wait(99 * MS)
    node.nak(A, 5)
    assert len(node.sent(T.NAK)) == 2
    node.nak(A, 5, after=MS)
    assert len(node.sent(T.NAK)) == 3
    node.ncf(5, after=90 * MS)
    assert node.now == confirmed_at + 190 * MS
    # NAK_RDATA_IVL counts from this confirmation: a moment before its end the repair still goes to both segments.
    node.wait(RDATA - 1)
    again = len(node.sent(T.NAK))
    node.rdata(5)
    assert node.where(T.RDATA) == [("a", (5,)), ("b", (5,))]
    # The state is gone at the end of the interval.
    node.nak(A, 6)
    node.ncf(6)
    node.wait(RDATA)
    node.log.clear()
    node.rdata(6)
    assert (node.log, again) == ([], 3)


@pytest.mark.rfc("NE-09", "NE-24", "NE-30", "NE-32")
def test_04_ne_constrains_rdata():
    """The repair goes once to the segments that asked, pending or eliminated.

    An anticipated state alone sends it nowhere.
    """
    node = bench()
    node.nak(A, 5)
    node.ncf(5)
    node.nak(C, 5, after=MS)
    assert len(node.sent(T.NAK)) == 1
    node.rdata(5)
    assert node.where(T.RDATA) == [("a", (5,)), ("c", (5,))]
    node.rdata(5)
    assert len(node.sent(T.RDATA)) == 2
    node.ncf(6)
    node.rdata(6)
    assert len(node.sent(T.RDATA)) == 2
    assert node.core.counters.rdata_unwanted == 2


@pytest.mark.rfc("NE-15")
def test_05_odata_passing_an_ne_cancels_nothing():
    """ODATA cancels neither a pending NAK nor its repair state."""
    node = bench()
    begun = node.now
    node.nak(A, 5)
    node.hear(data_train([5], kind=T.ODATA), UP, SOURCE, after=MS)
    node.wait(250 * MS)
    assert [at - begun for at in node.times(T.NAK)] == [0, EVERY, 2 * EVERY]
    node.ncf(5)
    node.hear(data_train([5]), UP, SOURCE, after=MS)
    node.nak(B, 5, after=MS)
    assert len(node.sent(T.NAK)) == 3
    node.rdata(5)
    assert node.where(T.RDATA) == [("a", (5,)), ("b", (5,))]


@pytest.mark.rfc("NE-05", "NE-06", "NE-07")
def test_06_ne_confirms_on_the_arrival_interface():
    """Duplicates and eliminated NAKs are confirmed, also without an answer from above.

    A multicast NAK is not confirmed, and an NCF goes no further.
    """
    node = bench()
    for segment, after in ((A, 0), (A, MS), (B, MS), (C, 150 * MS)):
        node.nak(segment, 5, after=after)
    assert node.where(T.NCF) == [(name, (5,)) for name in "aabc"]
    node.ncf(5)
    node.log.clear()
    node.nak(A, 5, after=MS)
    node.nak(C, 5, after=MS)
    assert node.where(T.NCF) == [("a", (5,)), ("c", (5,))]
    node.log.clear()
    assert node.ncf(7) == []
    assert node.ncf(8, on=A, peer=BELOW[A.index]) == []
    node.hear(nak_packet(9, source_nla=SOURCE, group_nla=B.group), B, BELOW[B.index], is_group=True)
    assert node.log == []


@pytest.mark.rfc("NE-11", "NE-12")
def test_07_ne_gives_up_after_nak_rpt_ivl():
    """NAKs repeat at NAK_RPT_RTE for NAK_RPT_IVL in all; a later NAK starts a new interval."""
    node = bench()
    for _ in range(3):
        begun = node.now
        node.log.clear()
        node.nak(A, 5)
        node.wait(5 * SECOND)
        assert [at - begun for at in node.times(T.NAK)] == [0, EVERY, 2 * EVERY]
    node.rdata(5)
    assert node.sent(T.RDATA) == []


@pytest.mark.rfc("NE-01", "NE-02", "NE-10", "W-28")
def test_08_spm_forwarding():
    """The path is the element's own on every segment, and all else stays.

    Then NAKs go to the element, and from there to the neighbour.
    """
    node = Bench(setup=ElementSetup(UP, (A, B, C)), **TIMES)
    spm = as_received(spm_packet(7, 0, -1, Join(0), UnknownOption(number=0x44, value=b"kept"), path_nla=NEIGHBOUR))
    node.hear(Train.of(spm.octets), UP, NEIGHBOUR)
    sent = [(send.segment, item) for _, send, item in node.sent(T.SPM)]
    assert [segment for segment, _ in sent] == [A, B, C]
    for segment, item in sent:
        assert isinstance(item, Spm)
        assert checksum.is_valid(item.octets)
        assert attrs.evolve(item, path_nla=NEIGHBOUR) == spm
        assert item.path_nla == segment.address
    node.log.clear()
    assert node.hear(spm_packet(7, 3, 19, path_nla=SOURCE), UP, SOURCE) == []
    # For a receiver below, the element is the neighbour.
    reader = Reader()
    reader.hear(sent[0][1], peer=A.address)
    reader.hear(data_train([0, 1, 4]))
    reader.wait(20 * MS)
    assert {send.to for _, send in reader.sent} == {A.address}
    node.hear(data_train(range(5)), UP, NEIGHBOUR)
    node.log.clear()
    node.nak(A, 2, 3)
    [(_, send, nak)] = node.sent(T.NAK)
    assert isinstance(nak, Nak)
    assert (send.segment.address, send.to, nak.sqns) == (UP.address, NEIGHBOUR, (2, 3))


@pytest.mark.rfc("NE-28", "SRC-44", "RCV-48")
def test_13_nak_list_in_an_ne():
    """A list with a new sqn is forwarded intact with an identical NCF; a list without one is eliminated.

    The source answers each sqn. A list in an NCF suspends all its sqns at every receiver.
    """
    node = bench()
    node.nak(A, 3, 4)
    node.ncf(3, 4)
    node.log.clear()
    node.nak(B, 3, 4, 9, 12, after=MS)
    assert node.where(T.NCF) == [("b", (3, 4, 9, 12))]
    [(_, send, forwarded)] = node.sent(T.NAK)
    assert isinstance(forwarded, Nak)
    assert forwarded.sqns == (3, 4, 9, 12)
    node.ncf(3, 4, 9, 12)
    node.nak(C, 9, 3, after=MS)
    assert len(node.sent(T.NAK)) == 1
    setup = SourceSetup(TSI, attrs.evolve(UP, address=SOURCE, downstream=True), DATA_PORT)
    source = SourceCore(setup, parameters(rdata_hold_ivl=0), node.now)
    source.submit([payload_of(sqn) for sqn in range(20)])
    while source.window.has_unsent:
        source.handle_deadline(max(node.now, source.deadline_ns))
    answer = source.receive(Train.of(bytes(send.octets)), Channel(setup.segment, False), UP.address, node.now + SECOND)
    assert [item.sqns for item in sent_items(answer) if isinstance(item, Nak)] == [(3, 4, 9, 12)]
    repairs = [source.handle_deadline(node.now + SECOND + step * MS) for step in range(10)]
    assert sent_sqns([effect for effects in repairs for effect in effects], T.RDATA) == [3, 4, 9, 12]
    reader = Reader(nak_bo_ivl=1)
    reader.hear(spm_packet(1, 0, -1))
    reader.hear(data_train([0, 1, 2, 5, 6, 7, 8, 10, 11, 13]))
    reader.hear(ncf_packet(3, 4, 9, 12))
    reader.wait(150 * MS)
    assert reader.naks() == []


@pytest.mark.rfc("POLL-02", "POLL-08", "POLL-09", "POLL-11", "POLL-12", "POLL-13")
def test_21_poll_rounds():
    """The mask draws children by chance, and round 0 fixes the population.

    A child answers once in time, another poll cancels the answer, and the estimate is M / P.
    """
    drawn = [Child(seed).hear(poll(1, rand=0x5A5A5A5A, mask=0xFF)).wait() for seed in range(4096)]
    assert sum(bool(child.said) for child in drawn) == pytest.approx(16, abs=12)
    child = Child()
    other = ~child.node_id.draw() & 0xFFFFFFFF
    child.hear(poll(1, 0, rand=other, mask=0xFFFFFFFF)).wait()  # heard, not drawn
    late = Child(2).hear(poll(1, 1)).wait()  # joined after round 0
    child.hear(poll(1, 1)).wait()
    assert (child.replies, late.replies) == ([(1, 1)], [])
    [(at, to, *_)] = child.said
    assert 0 <= at - (child.now - 2 * BO) <= BO
    assert to == SOURCE
    child.said.clear()
    child.hear(poll(2), poll(3, rand=other, mask=0xFFFFFFFF)).wait()
    assert child.replies == []
    child.hear(poll(4), poll(9, state=NEIGHBOUR), poll(9, 0, state=NEIGHBOUR)).wait()
    assert sorted(child.replies) == [(4, 0), (9, 0)]
    floor = Floor(poll_history=4).join(500).begin().run(120 * SECOND)
    assert floor.parent.population == pytest.approx(500, rel=0.4)
