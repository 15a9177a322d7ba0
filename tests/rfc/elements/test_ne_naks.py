"""Network elements: NAKs confirmed, forwarded, eliminated, anticipated (RFC 7.2 - 7.5)."""

from __future__ import annotations

import pytest

from pgm.core.element.setup import ElementSetup
from pgm.units import SECOND
from pgm.wire.control_packets import Nak
from pgm.wire.formats import PacketType
from tests.reference import OTHER_TSI
from tests.rfc.bench import BELOW, SOURCE, UP, A, B, Bench, C
from tests.unit.core.makers import MS, data_train, nak_packet, spm_packet

T = PacketType
RPT, EVERY, ELIM, RDATA = 300 * MS, 100 * MS, 100 * MS, 2 * SECOND
TIMES = {"ne_nak_rpt_ivl": RPT, "ne_nak_rpt_rte": 10, "nak_elim_ivl": ELIM, "ne_nak_rdata_ivl": RDATA}
OTHER_CHILD = "10.1.0.8"


def bench(**changes):
    return Bench(**TIMES | changes).begin()


# Confirming


@pytest.mark.rfc("NE-05")
def test_every_unicast_nak_is_confirmed_on_the_segment_it_came_from():
    """First NAKs, duplicates and eliminated NAKs are confirmed, also without an answer from above."""
    node = bench()
    node.nak(A, 5)
    node.nak(A, 5, peer=OTHER_CHILD, after=MS)
    node.nak(B, 5, after=MS)
    assert node.where(T.NCF) == [("a", (5,)), ("a", (5,)), ("b", (5,))]
    node.ncf(5)
    node.log.clear()
    node.nak(A, 5, after=MS)  # eliminated
    node.nak(C, 5, after=MS)
    assert node.where(T.NCF) == [("a", (5,)), ("c", (5,))]
    assert node.sent(T.NAK) == []
    assert all(send.to is None for _, send, _ in node.sent(T.NCF))


@pytest.mark.rfc("NE-06")
@pytest.mark.parametrize("kind", ["aggregator", "repairer"])
def test_a_multicast_nak_is_not_confirmed_and_makes_no_state(kind):
    node = Bench(kind, **TIMES).begin()
    packet = nak_packet(5, source_nla=SOURCE, group_nla=A.group)
    assert node.hear(packet, A, BELOW[A.index], is_group=True) == []
    node.wait(SECOND)
    assert node.log == []
    node.rdata(5)
    assert node.sent(T.RDATA) == []


@pytest.mark.rfc("NE-07")
def test_an_ncf_is_the_nak_with_its_ports_turned_round():
    node = bench()
    node.nak(A, 5, 7, 9)
    [(_, send, ncf)] = node.sent(T.NCF)
    assert isinstance(ncf, Nak)
    nak = nak_packet(5, 7, 9, source_nla=SOURCE, group_nla=A.group)
    assert (ncf.tsi, ncf.data_port, ncf.sqns, ncf.options) == (nak.tsi, nak.data_port, nak.sqns, nak.options)
    assert (ncf.source_nla, ncf.group_nla, send.segment, send.to) == (SOURCE, A.group, A, None)
    assert ncf.octets[:2] == nak.tsi[6:]
    assert int.from_bytes(ncf.octets[2:4], "big") == nak.data_port


@pytest.mark.rfc("NE-08")
def test_ne_identical_ncfs_are_spaced_and_all_sent():
    """The first NCF goes at once; later ones are spaced per segment, session and list of sqns."""
    node = bench(ncf_ivl=5 * MS)
    for _ in range(10):
        node.nak(A, 5)
    node.nak(B, 5)
    node.nak(A, 6)
    assert node.where(T.NCF) == [("a", (5,)), ("b", (5,)), ("a", (6,))]
    begun = node.now
    node.wait(5 * MS)
    assert node.where(T.NCF)[3:] == [("a", (5,))]
    assert node.times(T.NCF)[3] == begun + 5 * MS


@pytest.mark.rfc("NE-09")
def test_every_segment_that_asks_gets_the_repair():
    """Segments whose NAKs were eliminated get the repair too, and every segment gets it once."""
    node = bench()
    node.nak(A, 5)
    node.nak(A, 5, peer=OTHER_CHILD)
    node.ncf(5, after=MS)
    node.nak(C, 5, after=MS)
    assert len(node.sent(T.NAK)) == 1
    node.rdata(5, after=MS)
    assert node.where(T.RDATA) == [("a", (5,)), ("c", (5,))]


# Forwarding


@pytest.mark.rfc("NE-10")
def test_ne_new_nak_goes_at_once_to_the_neighbour_alone():
    """The NAK goes without a back-off.

    Its body keeps the source; its group is that of the segment above if that segment has its own.
    """
    node = bench(nak_bo_ivl=10 * MS)
    begun = node.now
    node.nak(A, 5, 7)
    [(at, send, nak)] = node.sent(T.NAK)
    assert isinstance(nak, Nak)
    assert (at, send.segment, send.to, send.is_data) == (begun, UP, SOURCE, False)
    assert (nak.sqns, nak.source_nla, nak.group_nla) == ((5, 7), SOURCE, UP.group)


@pytest.mark.rfc("NE-11", "NE-12")
def test_ne_unconfirmed_nak_is_repeated_then_given_up():
    """NAK_RPT_IVL counts from the first NAK; a later request starts a new interval."""
    node = bench()
    begun = node.now
    node.nak(A, 5)
    node.wait(10 * SECOND)
    assert [at - begun for at in node.times(T.NAK)] == [0, EVERY, 2 * EVERY]
    node.rdata(5)
    assert node.sent(T.RDATA) == []  # the state is gone
    node.log.clear()
    begun = node.now
    node.nak(A, 5)
    node.wait(10 * SECOND)
    assert [at - begun for at in node.times(T.NAK)] == [0, EVERY, 2 * EVERY]


@pytest.mark.rfc("NE-11")
@pytest.mark.parametrize("rate", [2, 10, 100])
def test_repeats_follow_nak_rpt_rte(rate):
    node = bench(ne_nak_rpt_rte=rate, ne_nak_rpt_ivl=SECOND)
    begun = node.now
    node.nak(A, 5)
    node.wait(5 * SECOND)
    assert [at - begun for at in node.times(T.NAK)] == [step * SECOND // rate for step in range(rate)]


@pytest.mark.rfc("NE-13", "NE-14")
def test_a_confirmed_nak_is_not_repeated_and_lives_for_nak_rdata_ivl():
    node = bench()
    node.nak(A, 5)
    node.ncf(5, after=50 * MS)
    confirmed_at = node.now
    node.wait(RDATA - MS)
    assert len(node.sent(T.NAK)) == 1
    node.rdata(5)
    assert node.where(T.RDATA) == [("a", (5,))]
    node.log.clear()
    node.nak(A, 6)
    node.ncf(6)
    node.wait(RDATA)
    node.rdata(6)
    assert node.sent(T.RDATA) == []
    assert node.now - confirmed_at < 3 * RDATA
    assert len(node.core.sessions) == 1


@pytest.mark.rfc("NE-14")
def test_ne_confirmed_nak_without_repair_expires_silently():
    node = bench()
    node.nak(A, 5)
    node.ncf(5)
    node.log.clear()
    node.wait(RDATA + SECOND)
    assert node.log == []


@pytest.mark.rfc("NE-13")
@pytest.mark.parametrize(("sqn", "tsi"), [(6, None), (5, OTHER_TSI)], ids=["another sqn", "another session"])
def test_only_a_matching_ncf_confirms(sqn, tsi):
    node = bench()
    node.hear(spm_packet(1, 0, 19, tsi=OTHER_TSI), UP, SOURCE)
    node.nak(A, 5)
    packet = nak_packet(sqn, kind=T.NCF, source_nla=SOURCE, group_nla=UP.group, **({"tsi": tsi} if tsi else {}))
    node.hear(packet, UP, SOURCE)
    node.wait(SECOND)
    assert len(node.sent(T.NAK)) == 3


@pytest.mark.rfc("NE-15", "NE-04")
@pytest.mark.parametrize("is_confirmed", [False, True])
def test_ne_odata_does_not_end_repair_state(is_confirmed):
    """ODATA for other receivers does not cancel a request."""
    node = bench()
    begun = node.now
    node.nak(A, 5)
    if is_confirmed:
        node.ncf(5)
    node.hear(data_train([5]), UP, SOURCE, after=MS)
    node.wait(250 * MS)
    expected = [0] if is_confirmed else [0, EVERY, 2 * EVERY]
    assert [at - begun for at in node.times(T.NAK)] == expected
    node.rdata(5)
    assert node.where(T.RDATA) == [("a", (5,))]


@pytest.mark.rfc("NE-16")
def test_a_repair_ends_forwarding_even_unconfirmed():
    node = bench()
    node.nak(A, 5)
    node.rdata(5, after=MS)
    assert node.where(T.RDATA) == [("a", (5,))]
    node.wait(SECOND)
    assert len(node.sent(T.NAK)) == 1
    node.rdata(5)
    assert len(node.sent(T.RDATA)) == 1


# Elimination


@pytest.mark.rfc("NE-20")
def test_ne_duplicates_of_a_pending_nak_are_discarded():
    node = bench()
    for step in range(29):
        node.nak((A, B, C)[step % 3], 5, after=10 * MS if step else 0)
    # The three NAKs are the element's own repeats; the duplicates add none.
    assert len(node.sent(T.NAK)) == 3
    assert node.core.counters.nak_packets_eliminated == 28


@pytest.mark.rfc("NE-22")
def test_nak_rdata_ivl_restarts_with_the_ncf_and_not_with_the_nak():
    node = bench()
    node.nak(A, 5)
    node.ncf(5)
    node.nak(A, 5, after=50 * MS)  # eliminated, so no timer changes
    node.wait(RDATA - 50 * MS)
    node.rdata(5)
    assert node.sent(T.RDATA) == []


# Anticipation


@pytest.mark.rfc("NE-24", "NE-27")
def test_an_ncf_from_above_anticipates_naks_from_below():
    """No segment is listed, so the repair goes nowhere until a segment asks.

    The NAK of that segment is confirmed and eliminated.
    """
    node = bench()
    assert node.ncf(5, 6) == []
    node.rdata(5)
    assert node.log == []
    node.nak(B, 6, after=ELIM - MS)
    assert node.where(T.NCF) == [("b", (6,))]
    assert node.sent(T.NAK) == []
    node.rdata(6)
    assert node.where(T.RDATA) == [("b", (6,))]


@pytest.mark.rfc("NE-27")
def test_after_nak_elim_ivl_an_anticipated_nak_is_forwarded():
    node = bench()
    node.ncf(5)
    node.nak(B, 5, after=ELIM)
    assert node.where(T.NAK) == [("core", (5,))]
    node.nak(B, 5, after=MS)
    assert len(node.sent(T.NAK)) == 1


@pytest.mark.rfc("NE-24")
def test_an_anticipated_repair_lives_for_nak_rdata_ivl():
    node = bench()
    node.ncf(5)
    node.nak(A, 5)
    node.wait(RDATA)
    node.rdata(5)
    assert node.sent(T.RDATA) == []


@pytest.mark.rfc("NE-25")
def test_ne_ncf_for_known_state_restarts_both_intervals():
    node = bench()
    node.nak(A, 5)
    node.ncf(5)
    node.ncf(5, after=80 * MS)
    node.nak(A, 5, after=ELIM - MS)
    assert len(node.sent(T.NAK)) == 1
    node.wait(RDATA - ELIM)
    node.rdata(5)
    assert node.where(T.RDATA) == [("a", (5,))]


@pytest.mark.rfc("NE-26", "NE-13")
def test_ne_ncf_on_a_segment_below_is_ignored():
    """If the NCF counted, the element would wait for a repair without any NAK above."""
    node = bench()
    node.nak(A, 5)
    for segment in (A, B):
        assert node.ncf(5, 6, on=segment, peer=BELOW[segment.index]) == []
    node.wait(250 * MS)
    assert len(node.sent(T.NAK)) == 3
    node.nak(B, 6)  # not anticipated
    assert node.where(T.NAK)[3:] == [("core", (6,))]
    assert node.core.counters.ncf_packets_below == 2


@pytest.mark.rfc("NE-28")
def test_a_list_is_forwarded_intact_if_anything_in_it_is_new():
    """The header's sqn counts too; the NCF carries the identical list."""
    node = bench()
    node.nak(A, 5, 6)
    node.ncf(5, 6)
    node.log.clear()
    node.nak(B, 5, 6, 7, after=MS)
    assert node.where(T.NAK) == [("core", (5, 6, 7))]
    assert node.where(T.NCF) == [("b", (5, 6, 7))]
    node.ncf(5, 6, 7)
    node.log.clear()
    node.nak(C, 7, 5, 6, after=MS)
    assert node.where(T.NAK) == []
    assert node.where(T.NCF) == [("c", (7, 5, 6))]
    for sqn, names in ((5, "abc"), (6, "abc"), (7, "bc")):
        node.log.clear()
        node.rdata(sqn)
        assert node.where(T.RDATA) == [(name, (sqn,)) for name in names]


@pytest.mark.rfc("NE-28")
def test_a_list_from_above_anticipates_all_of_it():
    node = bench()
    node.ncf(3, 9, 11)
    for sqn in (3, 9, 11):
        node.nak(A, sqn)
    assert node.sent(T.NAK) == []
    node.nak(A, 3, 9, 10)
    assert node.where(T.NAK) == [("core", (3, 9, 10))]


# Limits


@pytest.mark.rfc("SEC-01")
def test_naks_of_unknown_sessions_are_refused():
    node = bench()
    node.nak(A, 5, tsi=OTHER_TSI)
    assert node.log == []
    assert node.core.counters.foreign_packets == 1


@pytest.mark.rfc("SEC-01")
@pytest.mark.parametrize("sqn", [20, 4000, (1 << 31) - 1])
def test_ne_naks_for_unsent_packets_make_no_state(sqn):
    node = bench()
    node.nak(A, sqn)
    node.wait(SECOND)
    assert node.log == []
    assert node.core.counters.nak_packets_foreign == 1


@pytest.mark.rfc("SEC-01")
def test_ne_naks_behind_the_window_are_confirmed_only():
    """No node above has the packet any more.

    If a node keeps more than the source's window, the NAK is forwarded all the same.
    """
    node = Bench(**TIMES).begin(100)
    node.hear(spm_packet(2, 50, 99), UP, SOURCE)
    node.nak(A, 10)
    node.nak(A, 49, 50)
    assert node.where(T.NCF) == [("a", (10,)), ("a", (49, 50))]
    assert node.where(T.NAK) == [("core", (49, 50))]
    node.rdata(10)
    assert node.sent(T.RDATA) == []
    keeper = Bench(setup=ElementSetup(UP, (A,), parents=(SOURCE,), asks_below_trail=True), **TIMES).begin(100)
    keeper.hear(spm_packet(2, 50, 99), UP, SOURCE)
    keeper.nak(A, 10)
    assert keeper.where(T.NAK) == [("core", (10,))]


@pytest.mark.rfc("SEC-01")
def test_repair_state_is_bounded():
    node = bench(repair_states=16, child_nak_rte=10_000_000)
    node.hear(spm_packet(2, 0, 4000), UP, SOURCE)
    for sqn in range(0, 4000, 2):
        node.nak(A, sqn)
    [session] = node.core.sessions
    assert len(session.elimination.repairs) <= 16
    assert node.core.counters.states_refused > 0
