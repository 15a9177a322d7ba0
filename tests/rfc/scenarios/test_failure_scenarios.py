"""Failures of multicast and of repairers in the 25 most important tests."""

from __future__ import annotations

import pytest

from pgm.core.receiver.setup import ReceiverSetup
from pgm.units import SECOND
from pgm.wire.control_packets import Nak
from pgm.wire.formats import PacketType
from pgm.wire.options import NbrUnreach, PathNla, find
from tests.rfc.bench import BELOW, LAN, SOURCE, UP, A, B, Bench
from tests.rfc.redirects import (
    DLR_B,
    DLR_UP,
    EVERY,
    PARENT_NLA,
    RPT,
    knows_off_tree,
    off_tree,
    offer,
    sent_naks,
    sent_packets,
)
from tests.unit.core.makers import (
    BY_UNICAST,
    MS,
    SEGMENT,
    data_train,
    evolve,
    nak_packet,
    ncf_packet,
    sent_items,
    spm_packet,
)
from tests.unit.core.reader import Reader

T = PacketType
STRANGER = "10.0.0.66"


def unreachable(*sqns: int, state: str = SOURCE) -> Nak:
    """Return an NCF of a parent whose multicast does not arrive."""
    packet = ncf_packet(*sqns)
    return evolve(packet, options=(*packet.options, NbrUnreach(), PathNla(path_nla=state)))


@pytest.mark.rfc("DLR-11", "DLR-12", "DLR-37", "DLR-38", "DLR-39", "DLR-40")
def test_14_rdata_of_an_off_tree_dlr():
    """Null NAK and RDATA go to the parent alone, which forwards the repair to the segments that asked.

    The null NAK eliminates no real NAK.
    """
    dlr = off_tree()
    dlr.log.clear()
    dlr.nak(LAN, 5, peer=PARENT_NLA)
    dlr.wait(10 * MS)
    assert sent_packets(dlr) == [
        (T.NCF, PARENT_NLA, (5,)),
        (T.NNAK, PARENT_NLA, (5,)),
        (T.RDATA, PARENT_NLA, (5,)),
    ]
    parent = knows_off_tree()
    parent.nak(A, 5)
    parent.log.clear()
    parent.hear(ncf_packet(5), B, DLR_B, is_group=False)
    parent.hear(nak_packet(5, kind=T.NNAK, source_nla=SOURCE, group_nla=B.group), B, DLR_B, is_group=False)
    parent.hear(data_train([5], kind=T.RDATA), B, DLR_B, is_group=False)
    assert [(send.segment, send.to, item.type) for _, send in parent.log for item in sent_items([send])] == [
        (UP, SOURCE, T.NNAK),
        (A, None, T.RDATA),
    ]
    # An unsolicited null NAK goes up too. Its state eliminates no real NAK and adds no segment.
    other = Bench().begin()
    other.hear(nak_packet(7, kind=T.NNAK, source_nla=SOURCE, group_nla=B.group), B, BELOW[B.index], is_group=False)
    other.nak(A, 7)
    assert [len(other.sent(kind)) for kind in (T.NNAK, T.NAK, T.NCF)] == [1, 1, 1]
    other.rdata(7)
    assert other.where(T.RDATA) == [("a", (7,))]


@pytest.mark.rfc("DLR-32", "DLR-34", "DLR-35", "DLR-36")
def test_15_redirect_failure_paths():
    """A silent repairer is dropped and the neighbour asked; a packet it lacks goes up alone.

    Its own losses are never asked of it. An offer confirms no NAK.
    """
    node = knows_off_tree()
    begun = node.now
    node.nak(A, 5)
    node.wait(RPT + EVERY)
    assert [(at - begun, send.to) for at, send, _ in node.sent(T.NAK)] == [
        *((step * EVERY, DLR_B) for step in range(3)),
        (RPT, SOURCE),
        (RPT + EVERY, SOURCE),
    ]
    node.ncf(5)
    node.nak(A, 6)
    assert sent_naks(node)[-1] == ("core", SOURCE, (6,))
    node = knows_off_tree()
    node.nak(A, 5)
    node.hear(ncf_packet(5), B, DLR_B, is_group=False)
    node.nak(B, 5, peer=DLR_B)  # the repairer lacks the packet
    node.nak(A, 6)
    assert sent_naks(node) == [("b", DLR_B, (5,)), ("core", SOURCE, (5,)), ("b", DLR_B, (6,))]
    node = knows_off_tree()
    node.nak(B, 8)  # the repairer's own segment lacks the packet
    node.nak(A, 8)
    assert sent_naks(node) == [("core", SOURCE, (8,))]
    upstream = Bench(honour_redirects=True, ne_nak_rpt_ivl=RPT, ne_nak_rpt_rte=10).begin()
    upstream.nak(A, 5)
    upstream.hear(offer(DLR_UP), UP, DLR_UP)
    upstream.wait(2 * EVERY)
    assert sent_naks(upstream) == [("core", SOURCE, (5,))] * 3  # the offer confirms nothing


@pytest.mark.rfc("IMP-20", "IMP-21", "IMP-23", "IMP-24", "IMP-25", "IMP-26", "IMP-27", "RCV-52", "RCV-53")
def test_24_nbr_unreach():
    """The parent detects the failure and confirms by unicast.

    The receiver informs its subnet once, is silent, and resumes with the next SPM.
    """
    parent = Bench(dup_nak_max=2).begin(5, spm_sqn=5)
    for _ in range(2):
        parent.nak(A, 2)
    parent.log.clear()
    parent.nak(A, 2)
    [(_, send, ncf)] = parent.sent(T.NCF)
    assert isinstance(ncf, Nak)
    assert send.to is not None
    assert find(ncf.options, NbrUnreach)
    # A child of the parent multicasts the unicast NCF once more with a hop limit of 1, and sends no more NAKs.
    reader = Reader(ReceiverSetup(SEGMENT), nak_bo_ivl=10 * MS, reorder_ivl=MS)
    reader.hear(spm_packet(5, 0, -1, path_nla=A.address))
    reader.hear(data_train([0, 2]))
    assert reader.hear(unreachable(1, state=STRANGER), channel=BY_UNICAST) == []
    [copy] = reader.hear(ncf, channel=BY_UNICAST)
    assert (copy.to, copy.hops, bytes(copy.octets)) == (None, 1, ncf.octets)
    assert reader.hear(ncf) == []
    # An SPM with OPT_NBR_UNREACH repeats the last SPM_SQN. Its window edges are ignored, and losses wait.
    reader.hear(spm_packet(5, 900, 1000, NbrUnreach(), path_nla=A.address))
    reader.hear(data_train([4]))
    reader.wait(3 * SECOND)
    assert (reader.naks(), reader.lost(), reader.core.status(reader.now)[0].lead) == ([], {}, 4)
    reader.hear(spm_packet(6, 0, 4, path_nla=A.address))
    reader.wait(20 * MS)
    assert reader.asked() == {1, 3}
    # An element between the two obeys its parent alone. It stops, informs the nodes below, and continues with a regular
    # SPM.
    element = Bench().begin(5, spm_sqn=5)
    element.hear(unreachable(2, state=STRANGER), UP, STRANGER, is_group=False)
    element.nak(A, 1)
    assert len(element.sent(T.NAK)) == 1
    element.log.clear()
    element.hear(unreachable(2), UP, SOURCE, is_group=False)
    told = [item for _, send in element.log for item in sent_items([send]) if item.type is T.SPM]
    assert len(told) == 3
    assert all(find(spm.options, NbrUnreach) and spm.spm_sqn == 5 for spm in told)
    element.nak(A, 3)
    element.wait(SECOND)
    assert element.sent(T.NAK) == []
    element.hear(spm_packet(6, 0, 4), UP, SOURCE)
    element.nak(A, 3)
    assert element.where(T.NAK) == [("core", (3,))]
