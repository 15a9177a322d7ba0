"""Repairers that offer themselves, upstream and off-tree, and their null NAKs (RFC 9.5). Checklist 14."""

from __future__ import annotations

import pytest

from pgm.units import SECOND
from pgm.wire.control_packets import encode
from pgm.wire.formats import OPTIONS_PARITY, PacketType
from pgm.wire.options import Redirect, find
from tests.reference import DATA_PORT, TSI
from tests.rfc.bench import LAN, SOURCE
from tests.rfc.redirects import CHILD, PARENT_NLA, beside, null_nak, off_tree, said, search
from tests.unit.core.makers import MS, data_train, nak_packet, parameters, spm_packet

T = PacketType


# The repairer upstream


@pytest.mark.rfc("DLR-02", "DLR-05", "W-14")
def test_redirect_offer_follows_the_parents_confirmation():
    """The POLR goes to the group in an upstream packet under the source's TSI.

    It is not repeated for each NCF.
    """
    made = beside("upstream", redirect_ivl=SECOND, assist_on_ncf=False)
    made.ncf(5)
    [(_, send, polr)] = made.sent(T.POLR)
    assert (send.segment, send.to, send.hops) == (LAN, None, None)
    assert (polr.tsi, polr.poll_sqn, polr.poll_round) == (TSI, 0, 0)
    assert find(polr.options, Redirect) == Redirect(dlr_nla=LAN.address)
    octets = encode(polr)
    assert octets[:4] == DATA_PORT.to_bytes(2, "big") + TSI[6:]
    assert not octets[5] & OPTIONS_PARITY
    for sqn in range(6, 16):
        made.ncf(sqn, after=50 * MS)
    assert len(made.sent(T.POLR)) == 1
    made.ncf(16, after=SECOND)
    assert len(made.sent(T.POLR)) == 2


@pytest.mark.rfc("DLR-04")
@pytest.mark.parametrize("confirmed", [(20,), (21,), (5, 20), (19, 20, 21, 22)])
def test_redirect_offer_is_not_sent_for_own_naks(confirmed):
    """An NCF with a list that contains one of its own sqns triggers no offer either."""
    made = beside("upstream", assist_on_ncf=False)
    made.hear(data_train([22]), LAN, SOURCE)
    made.wait(MS)
    assert said(made) == [(T.NAK, PARENT_NLA, (20, 21))]
    made.ncf(*confirmed)
    assert made.sent(T.POLR) == []


@pytest.mark.rfc("DLR-05")
@pytest.mark.parametrize(
    ("mode", "peer", "is_group"),
    [("off", SOURCE, True), ("off-tree", SOURCE, True), ("upstream", CHILD, True), ("upstream", SOURCE, False)],
    ids=["off", "off the tree only", "not of the parent", "by unicast"],
)
def test_redirect_offer_needs_mode_parent_and_multicast(mode, peer, is_group):
    made = beside(mode, assist_on_ncf=False)
    packet = nak_packet(5, kind=T.NCF, source_nla=SOURCE, group_nla=LAN.group)
    made.hear(packet, LAN, peer, is_group=is_group)
    assert made.sent(T.POLR) == []
    assert parameters().dlr_mode == "off"


@pytest.mark.rfc("DLR-06", "DLR-07")
def test_redirect_offer_repairer_answers_and_sends_null_naks():
    """NCF and RDATA go to the group.

    A null NAK with the NAK's fields goes to the parent, once, and not for repeated NAKs.
    """
    made = beside("upstream", assist_on_ncf=False, rdata_ignore_ivl=20 * MS)
    made.ncf(5)
    made.log.clear()
    made.nak(LAN, 6, 8, peer=CHILD)
    made.wait(MS)
    made.nak(LAN, 6, 8, peer=CHILD)
    made.wait(MS)
    assert [one for one in said(made) if one[0] is not T.RDATA] == [
        (T.NCF, None, (6, 8)),
        (T.NNAK, PARENT_NLA, (6, 8)),
        (T.NCF, None, (6, 8)),
    ]
    assert sorted(sqn for kind, to, sqns in said(made) if (kind, to) == (T.RDATA, None) for sqn in sqns) == [6, 8]
    [(_, _, null)] = made.sent(T.NNAK)
    assert (null.tsi, null.source_nla, null.group_nla) == (TSI, SOURCE, LAN.group)


@pytest.mark.rfc("DLR-07")
@pytest.mark.parametrize(("null_naks", "expected"), [(False, 0), (True, 1)])
def test_redirect_offer_off_sends_null_naks_only_if_set(null_naks, expected):
    """The topology sent the child here without a redirect, so the source is informed only on request."""
    made = beside("off", null_naks=null_naks)
    made.nak(LAN, 6, peer=CHILD)
    assert len(made.sent(T.NNAK)) == expected


@pytest.mark.rfc("DLR-07", "DLR-08")
def test_redirect_offer_missing_packets_send_no_null_nak():
    made = beside("upstream", assist_on_ncf=False, null_naks=True, nak_bo_ivl=SECOND)
    made.hear(data_train([21]), LAN, SOURCE)
    made.nak(LAN, 5, 20, peer=CHILD)
    made.wait(MS)
    assert (T.NNAK, PARENT_NLA, (5,)) in said(made)
    assert (T.NAK, PARENT_NLA, (20,)) in said(made)


# The off-tree repairer


@pytest.mark.rfc("DLR-02", "DLR-09", "DLR-10", "POLL-18", "POLL-10")
def test_an_off_tree_repairer_answers_its_parents_search_by_unicast():
    made = off_tree()
    [(_, send, polr)] = made.sent(T.POLR)
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
    made = off_tree()
    made.log.clear()
    made.nak(LAN, 5, 6, peer=PARENT_NLA)
    made.nak(LAN, 9, peer=CHILD)
    made.wait(10 * MS)
    to_parent = [(kind, sqns) for kind, to, sqns in said(made) if to == PARENT_NLA]
    assert to_parent == [(T.NCF, (5, 6)), (T.NNAK, (5, 6)), (T.NNAK, (9,)), (T.RDATA, (5, 6))]
    to_all = [(kind, sqns) for kind, to, sqns in said(made) if to is None]
    assert to_all == [(T.NCF, (9,)), (T.RDATA, (9,))]
    for _, send, item in made.sent(T.RDATA):
        assert item.tsi == TSI
        assert send.is_data


@pytest.mark.rfc("DLR-13")
def test_off_tree_repairer_without_search_repairs_to_the_group():
    made = beside("off-tree")
    made.nak(LAN, 5, peer=PARENT_NLA)
    made.wait(MS)
    assert [(kind, to) for kind, to, _ in said(made)] == [(T.NCF, PARENT_NLA), (T.RDATA, None)]


@pytest.mark.rfc("DLR-14")
def test_redirect_offer_missing_packets_are_refused_at_once():
    """The NCF goes first, and the missing packet gets a NAK and no null NAK.

    The other packet of the list is repaired.
    """
    made = off_tree(nak_bo_ivl=SECOND)
    made.hear(data_train([21]), LAN, SOURCE)
    made.log.clear()
    made.nak(LAN, 5, 20, peer=PARENT_NLA)
    assert said(made) == [
        (T.NCF, PARENT_NLA, (5, 20)),
        (T.NNAK, PARENT_NLA, (5,)),
        (T.NAK, PARENT_NLA, (20,)),
    ]
    made.wait(10 * MS)
    assert said(made)[3:] == [(T.RDATA, PARENT_NLA, (5,))]


@pytest.mark.rfc("DLR-38", "DLR-39", "DLR-40")
def test_a_repairer_passes_the_null_naks_of_others_up_once():
    made = beside("off", nak_elim_ivl=100 * MS)
    for _ in range(3):
        made.hear(null_nak(5, group=LAN.group), LAN, CHILD, is_group=False)
    assert said(made) == [(T.NNAK, PARENT_NLA, (5,))]
    made.hear(null_nak(5, group=LAN.group), LAN, CHILD, is_group=False, after=100 * MS)
    assert len(made.sent(T.NNAK)) == 2


def test_repairer_null_naks_for_unsent_packets_are_dropped():
    made = beside("off")
    made.hear(null_nak(5, 1000, group=LAN.group), LAN, CHILD, is_group=False)
    assert said(made) == []
    assert made.core.counters.nak_packets_foreign == 1


def test_off_tree_repairer_outlets_of_former_parents_are_bounded():
    """Each new parent claims the path by an SPM, polls and sends a NAK.

    Each gets an outlet of its own, and the number of outlets is bounded.
    """
    made = off_tree()
    for number in range(100):
        state = f"10.0.0.{number + 100}"
        made.hear(spm_packet(2 + number, 0, 19, path_nla=state), LAN, state)
        made.hear(search(1 + number, state), LAN, state)
        made.wait(100 * MS)
        made.log.clear()
        made.nak(LAN, 5, peer=state)
        made.wait(10 * MS)
        assert (T.RDATA, state, (5,)) in said(made)
    session = made.core.sessions.get(TSI)
    assert len(session._outlets) <= 17
