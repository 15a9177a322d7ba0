"""Repairers that offer themselves, and elements that know repairers (RFC 9.5)."""

from __future__ import annotations

from pgm.core.element.setup import ElementSetup
from pgm.units import MICROSECOND, SECOND
from pgm.wire.control_packets import Poll, Polr
from pgm.wire.formats import Nla, PacketType
from pgm.wire.options import Redirect
from pgm.wire.train import Data
from tests.reference import DATA_PORT, TSI
from tests.rfc.bench import LAN, SOURCE, UP, A, B, Bench
from tests.unit.core.makers import GROUP, MS, nak_packet, sent_items, spm_packet

T = PacketType
# Nodes on the segment LAN: the repairer's parent, which is the source, and another node.
PARENT_NLA, CHILD = "10.0.0.1", "10.0.0.9"
RPT, EVERY = 300 * MS, 100 * MS
TIMES = {"ne_nak_rpt_ivl": RPT, "ne_nak_rpt_rte": 10, "nak_elim_ivl": 100 * MS, "ne_nak_rdata_ivl": 2 * SECOND}
DLR_UP, DLR_B = "10.0.0.77", "10.2.0.7"  # repairers beside the parent of the aggregator, and on its segment b


def offer(nla: Nla, sqn=0, number=0):
    options = (Redirect(dlr_nla=nla),)
    return Polr(tsi=TSI, data_port=DATA_PORT, poll_sqn=sqn, poll_round=number, options=options)


def search(sqn=1, state=PARENT_NLA):
    return Poll(
        tsi=TSI,
        data_port=DATA_PORT,
        poll_sqn=sqn,
        poll_round=0,
        sub_type=1,
        path_nla=state,
        bo_ivl_us=100 * MS // MICROSECOND,
        rand=0,
        mask=0,
    )


def sent_packets(node):
    """Return type, destination and sqns of every packet sent, in order."""
    found = []
    for _, send in node.log:
        for item in sent_items([send]):
            sqns = tuple(range(item.wire_sqn, item.wire_sqn + item.count)) if isinstance(item, Data) else item.sqns
            found.append((item.type, send.to, sqns))
    return found


def beside(mode, *, options=(), **changes):
    """Return a repairer on the segment of its parent, the source, whose SPMs have these options."""
    node = Bench("repairer", ElementSetup(LAN, (LAN,), parents=(PARENT_NLA,)), dlr_mode=mode, **changes)
    return node.begin(options=options)


def off_tree(**changes):
    """Return a repairer that has answered its parent's DLR poll."""
    node = beside("off-tree", **{"rdata_hold_ivl": 2 * MS} | changes)
    node.hear(search(), LAN, PARENT_NLA)
    node.wait(100 * MS)
    return node


def null_nak(*sqns, group=GROUP):
    return nak_packet(*sqns, kind=T.NNAK, source_nla=SOURCE, group_nla=group)


def element(**changes):
    setup = ElementSetup(UP, (A, B), parents=(SOURCE,))
    return Bench(setup=setup, **TIMES | {"honour_redirects": True} | changes).begin()


def knows_off_tree(**changes):
    """Return an aggregator that has found a repairer on segment b."""
    node = element(**{"poll_dlr_ivl": 10 * SECOND, "poll_bo_ivl": 100 * MS} | changes)
    while not (polls := [item for _, send, item in node.sent(T.POLL) if send.segment is B]):
        node.wait(100 * MS)
    assert polls[0].sub_type == 1
    assert polls[0].mask == 0
    node.hear(offer(DLR_B, polls[0].poll_sqn), B, DLR_B, is_group=False)
    assert node.core.counters.redirects_taken == 1
    node.hear(spm_packet(2, 0, 19), UP, SOURCE)
    node.wait(200 * MS)
    node.log.clear()
    return node


def sent_naks(node):
    return [(send.segment.name, send.to, item.sqns) for _, send, item in node.sent(T.NAK)]
