"""The 25 tests that matter most: where multicast or a repairer fails."""

from __future__ import annotations

import pytest

from pgm.core.session import ReceiverSetup
from pgm.units import SECOND
from pgm.wire.formats import PacketType
from pgm.wire.options import NbrUnreach, PathNla, find
from pgm.wire.packets import Nak
from tests.rfc.bench import SOURCE, UP, A, Bench
from tests.unit.core.makers import BY_UNICAST, MS, SEGMENT, data_train, evolve, ncf_packet, sent_items, spm_packet
from tests.unit.core.reader import Reader

T = PacketType
STRANGER = "10.0.0.66"


def unreachable(*sqns: int, path: str = SOURCE) -> Nak:
    """An NCF of somebody who cannot be heard by multicast."""
    packet = ncf_packet(*sqns)
    return evolve(packet, options=(*packet.options, NbrUnreach(), PathNla(path_nla=path)))


@pytest.mark.rfc("IMP-20", "IMP-21", "IMP-23", "IMP-24", "IMP-25", "IMP-26", "IMP-27", "RCV-52", "RCV-53")
def test_24_nbr_unreach():
    """The parent finds out, confirms by unicast; the receiver tells its subnet once, is silent, and resumes with the next SPM."""
    parent = Bench(dup_nak_max=2).begin(5, spm_sqn=5)
    for _ in range(2):
        parent.nak(A, 2)
    parent.log.clear()
    parent.nak(A, 2)
    [(_, send, ncf)] = parent.sent(T.NCF)
    assert isinstance(ncf, Nak)
    assert send.to is not None
    assert find(ncf.options, NbrUnreach)
    # Its child: the same packet by unicast is multicast once more, with a hop limit of 1; asking stops.
    reader = Reader(ReceiverSetup(SEGMENT), nak_bo_ivl=10 * MS, reorder_ivl=MS)
    reader.hear(spm_packet(5, 0, -1, path_nla=A.address))
    reader.hear(data_train([0, 2]))
    assert reader.hear(unreachable(1, path=STRANGER), channel=BY_UNICAST) == []
    [copy] = reader.hear(ncf, channel=BY_UNICAST)
    assert (copy.to, copy.hops, bytes(copy.octets)) == (None, 1, ncf.octets)
    assert reader.hear(ncf) == []
    # An SPM that says so has the last SPM_SQN; its window is none; losses wait.
    reader.hear(spm_packet(5, 900, 1000, NbrUnreach(), path_nla=A.address))
    reader.hear(data_train([4]))
    reader.wait(3 * SECOND)
    assert (reader.naks(), reader.lost(), reader.core.status(reader.now)[0].lead) == ([], {}, 4)
    reader.hear(spm_packet(6, 0, 4, path_nla=A.address))
    reader.wait(20 * MS)
    assert reader.asked() == {1, 3}
    # An element between the two: told by its parent alone, it stops, tells those below, and goes on with a regular SPM.
    element = Bench().begin(5, spm_sqn=5)
    element.hear(unreachable(2, path=STRANGER), UP, STRANGER, is_group=False)
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
