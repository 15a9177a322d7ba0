"""Repairers that offer themselves, upstream and off-tree, and their null NAKs (RFC 9.5). Checklist 14."""

from __future__ import annotations

import pytest

from pgm.core.repair.responder import Responder
from pgm.units import SECOND
from pgm.wire.control_packets import encode
from pgm.wire.formats import OPTIONS_PARITY, PacketType
from pgm.wire.options import Redirect, find
from tests.memory import kept_by
from tests.reference import DATA_PORT, TSI
from tests.rfc.bench import LAN, SOURCE
from tests.rfc.redirects import CHILD, PARENT_NLA, beside, null_nak, off_tree, search, sent_packets
from tests.unit.core.makers import MS, data_train, nak_packet, parameters, spm_packet

T = PacketType


# The repairer upstream


@pytest.mark.rfc("DLR-02", "DLR-05", "W-14")
def test_redirect_offer_follows_the_parents_confirmation():
    """The POLR goes to the group in an upstream packet under the source's TSI.

    It is not repeated for each NCF.
    """
    node = beside("upstream", redirect_ivl=SECOND, assist_on_ncf=False)
    node.ncf(5)
    [(_, send, polr)] = node.sent(T.POLR)
    assert (send.segment, send.to, send.hops) == (LAN, None, None)
    assert (polr.tsi, polr.poll_sqn, polr.poll_round) == (TSI, 0, 0)
    assert find(polr.options, Redirect) == Redirect(dlr_nla=LAN.address)
    octets = encode(polr)
    assert octets[:4] == DATA_PORT.to_bytes(2, "big") + TSI[6:]
    assert not octets[5] & OPTIONS_PARITY
    for sqn in range(6, 16):
        node.ncf(sqn, after=50 * MS)
    assert len(node.sent(T.POLR)) == 1
    node.ncf(16, after=SECOND)
    assert len(node.sent(T.POLR)) == 2


@pytest.mark.rfc("DLR-04")
@pytest.mark.parametrize("confirmed", [(20,), (21,), (5, 20), (19, 20, 21, 22)])
def test_redirect_offer_is_not_sent_for_own_naks(confirmed):
    """An NCF with a list that contains one of its own sqns triggers no offer either."""
    node = beside("upstream", assist_on_ncf=False)
    node.hear(data_train([22]), LAN, SOURCE)
    node.wait(MS)
    assert sent_packets(node) == [(T.NAK, PARENT_NLA, (20, 21))]
    node.ncf(*confirmed)
    assert node.sent(T.POLR) == []


@pytest.mark.rfc("DLR-05")
@pytest.mark.parametrize(
    ("mode", "peer", "is_group"),
    [("off", SOURCE, True), ("off-tree", SOURCE, True), ("upstream", CHILD, True), ("upstream", SOURCE, False)],
    ids=["off", "off the tree only", "not of the parent", "by unicast"],
)
def test_redirect_offer_needs_mode_parent_and_multicast(mode, peer, is_group):
    node = beside(mode, assist_on_ncf=False)
    packet = nak_packet(5, kind=T.NCF, source_nla=SOURCE, group_nla=LAN.group)
    node.hear(packet, LAN, peer, is_group=is_group)
    assert node.sent(T.POLR) == []
    assert parameters().dlr_mode == "off"


@pytest.mark.rfc("DLR-06", "DLR-07")
def test_redirect_offer_repairer_answers_and_sends_null_naks():
    """NCF and RDATA go to the group.

    A null NAK with the NAK's fields goes to the parent, once, and not for repeated NAKs.
    """
    node = beside("upstream", assist_on_ncf=False, rdata_ignore_ivl=20 * MS)
    node.ncf(5)
    node.log.clear()
    node.nak(LAN, 6, 8, peer=CHILD)
    node.wait(MS)
    node.nak(LAN, 6, 8, peer=CHILD)
    node.wait(MS)
    assert [one for one in sent_packets(node) if one[0] is not T.RDATA] == [
        (T.NCF, None, (6, 8)),
        (T.NNAK, PARENT_NLA, (6, 8)),
        (T.NCF, None, (6, 8)),
    ]
    assert sorted(sqn for kind, to, sqns in sent_packets(node) if (kind, to) == (T.RDATA, None) for sqn in sqns) == [
        6,
        8,
    ]
    [(_, _, null)] = node.sent(T.NNAK)
    assert (null.tsi, null.source_nla, null.group_nla) == (TSI, SOURCE, LAN.group)


@pytest.mark.rfc("DLR-07")
@pytest.mark.parametrize(("null_naks", "expected"), [(False, 0), (True, 1)])
def test_redirect_offer_off_sends_null_naks_only_if_set(null_naks, expected):
    """The topology sent the child here without a redirect, so the source is informed only on request."""
    node = beside("off", null_naks=null_naks)
    node.nak(LAN, 6, peer=CHILD)
    assert len(node.sent(T.NNAK)) == expected


@pytest.mark.rfc("DLR-07", "DLR-08")
def test_redirect_offer_missing_packets_send_no_null_nak():
    node = beside("upstream", assist_on_ncf=False, null_naks=True, nak_bo_ivl=SECOND)
    node.hear(data_train([21]), LAN, SOURCE)
    node.nak(LAN, 5, 20, peer=CHILD)
    node.wait(MS)
    assert (T.NNAK, PARENT_NLA, (5,)) in sent_packets(node)
    assert (T.NAK, PARENT_NLA, (20,)) in sent_packets(node)


# The off-tree repairer


@pytest.mark.rfc("DLR-02", "DLR-09", "DLR-10", "POLL-18", "POLL-10")
def test_an_off_tree_repairer_answers_its_parents_search_by_unicast():
    node = off_tree()
    [(_, send, polr)] = node.sent(T.POLR)
    assert (send.segment, send.to) == (LAN, PARENT_NLA)
    assert (polr.poll_sqn, polr.poll_round) == (1, 0)
    assert find(polr.options, Redirect) == Redirect(dlr_nla=LAN.address)
    for mode in ("off", "upstream"):
        other = beside(mode)
        other.hear(search(), LAN, PARENT_NLA)
        other.wait(SECOND)
        assert other.sent(T.POLR) == []


@pytest.mark.rfc("DLR-11", "DLR-12")
def test_off_tree_repairer_answers_parent_by_unicast_nnak_first():
    """NCF, NNAK and RDATA go to the parent in this order.

    A child's NAK in between is answered to the segment.
    """
    node = off_tree()
    node.log.clear()
    node.nak(LAN, 5, 6, peer=PARENT_NLA)
    node.nak(LAN, 9, peer=CHILD)
    node.wait(10 * MS)
    to_parent = [(kind, sqns) for kind, to, sqns in sent_packets(node) if to == PARENT_NLA]
    assert to_parent == [(T.NCF, (5, 6)), (T.NNAK, (5, 6)), (T.NNAK, (9,)), (T.RDATA, (5, 6))]
    to_all = [(kind, sqns) for kind, to, sqns in sent_packets(node) if to is None]
    assert to_all == [(T.NCF, (9,)), (T.RDATA, (9,))]
    for _, send, item in node.sent(T.RDATA):
        assert item.tsi == TSI
        assert send.is_data


@pytest.mark.rfc("DLR-13")
def test_off_tree_repairer_without_search_repairs_to_the_group():
    node = beside("off-tree")
    node.nak(LAN, 5, peer=PARENT_NLA)
    node.wait(MS)
    assert [(kind, to) for kind, to, _ in sent_packets(node)] == [(T.NCF, PARENT_NLA), (T.RDATA, None)]


@pytest.mark.rfc("DLR-14")
def test_redirect_offer_missing_packets_are_refused_at_once():
    """The NCF goes first, and the missing packet gets a NAK and no null NAK.

    The other packet of the list is repaired.
    """
    node = off_tree(nak_bo_ivl=SECOND)
    node.hear(data_train([21]), LAN, SOURCE)
    node.log.clear()
    node.nak(LAN, 5, 20, peer=PARENT_NLA)
    assert sent_packets(node) == [
        (T.NCF, PARENT_NLA, (5, 20)),
        (T.NNAK, PARENT_NLA, (5,)),
        (T.NAK, PARENT_NLA, (20,)),
    ]
    node.wait(10 * MS)
    assert sent_packets(node)[3:] == [(T.RDATA, PARENT_NLA, (5,))]


@pytest.mark.rfc("DLR-38", "DLR-39", "DLR-40")
def test_a_repairer_passes_the_null_naks_of_others_up_once():
    node = beside("off", nak_elim_ivl=100 * MS)
    for _ in range(3):
        node.hear(null_nak(5, group=LAN.group), LAN, CHILD, is_group=False)
    assert sent_packets(node) == [(T.NNAK, PARENT_NLA, (5,))]
    node.hear(null_nak(5, group=LAN.group), LAN, CHILD, is_group=False, after=100 * MS)
    assert len(node.sent(T.NNAK)) == 2


def test_repairer_null_naks_for_unsent_packets_are_dropped():
    node = beside("off")
    node.hear(null_nak(5, 1000, group=LAN.group), LAN, CHILD, is_group=False)
    assert sent_packets(node) == []
    assert node.core.counters.nak_packets_foreign == 1


def test_off_tree_repairer_outlets_of_former_parents_are_bounded():
    """Each new parent claims the path by an SPM, polls and sends a NAK.

    Each gets an outlet of its own, and the number of outlets is bounded.
    """
    node = off_tree()
    for number in range(100):
        state = f"10.0.0.{number + 100}"
        node.hear(spm_packet(2 + number, 0, 19, path_nla=state), LAN, state)
        node.hear(search(1 + number, state), LAN, state)
        node.wait(100 * MS)
        node.log.clear()
        node.nak(LAN, 5, peer=state)
        node.wait(10 * MS)
        assert (T.RDATA, state, (5,)) in sent_packets(node)
    session = node.core.sessions.get(TSI)
    assert sum(isinstance(one, Responder) for one in kept_by(session)) <= 17
