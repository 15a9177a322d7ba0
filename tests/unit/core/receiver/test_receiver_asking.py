"""The receiver core asks: after which back-off, whom, what suppresses it, and what reveals a loss."""

from __future__ import annotations

import itertools

import pytest

from pgm.core.receiver.setup import ReceiverSetup
from pgm.units import SECOND
from pgm.wire.formats import PacketType
from tests.reference import DATA_PORT, OTHER_TSI, TSI
from tests.unit.core.makers import (
    GROUP,
    MS,
    PARENT,
    PEER,
    REPAIRER,
    SEGMENT,
    SOURCE,
    data_train,
    nak_packet,
    ncf_packet,
    sent_control,
    spm_packet,
)
from tests.unit.core.reader import joined

T = PacketType
RPT, RDATA, BO = 50 * MS, 200 * MS, 10 * MS


@pytest.mark.rfc("RCV-30", "RCV-33", "RCV-36", "RCV-44", "RCV-47", "RCV-50")
def test_a_gap_is_asked_for_after_the_back_off_and_repaired():
    reader = joined()
    reader.hear(data_train([1013], trail=100))
    begun = reader.now
    reader.wait(MS + BO)
    [(asked_at, send)] = reader.sent
    assert MS < asked_at - begun <= MS + BO
    [nak] = sent_control([send], T.NAK)
    assert (send.to, send.is_data, send.hops) == (SOURCE, False, None)
    assert (nak.tsi, nak.data_port, nak.sqns) == (TSI, DATA_PORT, (1010, 1011, 1012))
    assert (nak.source_nla, nak.group_nla) == (SOURCE, GROUP)
    reader.hear(ncf_packet(1010, 1011, 1012))
    reader.hear(data_train([1010, 1011, 1012], kind=T.RDATA, trail=100))
    assert reader.delivered() == list(range(1000, 1014))
    reader.wait(SECOND)
    counters = reader.core.counters
    assert (counters.nak_packets, counters.nak_sqns, counters.missing_sqns, counters.repaired_sqns) == (1, 3, 3, 3)


@pytest.mark.rfc("RCV-21", "RCV-44")
def test_naks_go_to_the_parents_of_the_topology_first():
    """The path of the SPM comes behind them."""
    reader = joined(setup=ReceiverSetup(SEGMENT, parents=(REPAIRER,)), parent_patience=2)
    reader.hear(data_train([1013]))
    reader.wait(300 * MS)
    asked = [send.to for _, send in reader.sent]
    assert asked[:2] == [REPAIRER, REPAIRER]
    assert asked[2] == SOURCE


def test_one_lost_nak_does_not_change_the_parent():
    """A NAK that lists many gaps is one NAK."""
    reader = joined(setup=ReceiverSetup(SEGMENT, parents=(REPAIRER, PARENT)), parent_patience=3)
    reader.hear(data_train(range(1011, 1100, 2)))
    reader.wait(MS + BO + RPT + BO + MS)
    assert reader.naks() == [list(range(1010, 1100, 2))] * 2
    assert [send.to for _, send in reader.sent] == [REPAIRER] * 2
    assert reader.core.counters.parent_changes == 0


def test_the_preferred_parent_is_tried_again():
    """The second one answers, so only time brings us back to the first."""
    reader = joined(
        setup=ReceiverSetup(SEGMENT, parents=(REPAIRER, PARENT)),
        parent_patience=2,
        parent_retry_ivl=SECOND,
        nak_max_ivl=MS,  # intervals that do not grow
    )
    reader.hear(data_train([1013]))
    answered = 0
    for _ in range(150):
        reader.wait(10 * MS)
        if len(reader.sent) > answered and reader.sent[-1][1].to == PARENT:
            reader.hear(ncf_packet(1010, 1011, 1012), peer=PARENT)
        answered = len(reader.sent)
    asked = [(at, send.to) for at, send in reader.sent]
    left_at = next(at for at, to in asked if to == PARENT)
    back_at = next(at for at, to in asked if to == REPAIRER and at > left_at)
    assert SECOND - BO - MS <= back_at - left_at <= SECOND + RDATA + 2 * BO


@pytest.mark.rfc("RCV-21")
def test_dead_parents_delay_new_losses_no_longer_than_repeats():
    """Two of three parents are dead while the stream goes on: each loss reaches the living one within its first tries."""
    setup = ReceiverSetup(SEGMENT, parents=(REPAIRER, PARENT, SOURCE))
    reader = joined(setup=setup, nak_bo_ivl=1, nak_rpt_ivl=50 * MS, nak_max_ivl=SECOND)
    waits, spms = [], itertools.count(1010)
    for lost in range(1010, 1040, 3):
        reader.hear(data_train([lost + 1, lost + 2]))
        began, at = reader.now, len(reader.sent)
        while not any(send.to == SOURCE for _, send in reader.sent[at:]):
            reader.hear(spm_packet(next(spms), 1000, lost + 2), after=10 * MS)
            assert reader.now < began + 5 * SECOND
        waits.append(reader.now - began)
        reader.hear(ncf_packet(lost))
        reader.hear(data_train([lost], kind=PacketType.RDATA))
    assert max(waits) <= 500 * MS


def test_path_of_the_newest_spm_is_where_naks_go():
    reader = joined()
    reader.hear(spm_packet(2, 100, 1009, path_nla=PARENT))
    reader.hear(data_train([1013]))
    reader.wait(20 * MS)
    assert [send.to for _, send in reader.sent] == [PARENT]


@pytest.mark.rfc("RCV-45")
def test_naks_may_be_multicast_too():
    """With a hop limit of one."""
    reader = joined(nak_group_copy=True)
    reader.hear(data_train([1013]))
    reader.wait(20 * MS)
    assert [(send.to, send.hops) for _, send in reader.sent] == [(SOURCE, None), (None, 1)]
    assert reader.core.counters.nak_packets == 1


@pytest.mark.rfc("RCV-34", "RCV-43")
def test_an_ncf_suppresses_whoever_sent_the_nak():
    """TSI and SQN match, nothing else, whoever sent it."""
    reader = joined()
    reader.hear(data_train([1013]))
    reader.hear(ncf_packet(1010, 1011, 1012, source_nla="10.9.9.9", group_nla="239.9.9.9"), peer=PEER)
    reader.wait(RDATA - MS)
    assert reader.naks() == []
    reader.wait(BO + 2 * MS)
    assert reader.asked() == {1010, 1011, 1012}


@pytest.mark.rfc("RCV-35", "RCV-48")
def test_a_multicast_nak_suppresses_for_the_repeat_interval():
    """Covers E-08."""
    reader = joined()
    reader.hear(data_train([1013]))
    reader.hear(nak_packet(1010, 1011, 1012), peer=PEER)
    reader.wait(RPT - MS)
    assert reader.naks() == []
    reader.wait(BO + 2 * MS)
    assert reader.asked() == {1010, 1011, 1012}


@pytest.mark.rfc("RCV-43", "RCV-46")
def test_ncfs_and_naks_of_other_sessions_suppress_nothing():
    reader = joined()
    reader.hear(data_train([1013]))
    reader.hear(ncf_packet(1010, 1011, 1012, tsi=OTHER_TSI))
    reader.hear(ncf_packet(1005, 900))
    reader.wait(20 * MS)
    assert reader.asked() == {1010, 1011, 1012}


@pytest.mark.rfc("RCV-31")
def test_an_ncf_reveals_a_loss():
    reader = joined()
    reader.hear(ncf_packet(1012))
    reader.wait(20 * MS)
    assert reader.asked() == {1010, 1011}  # 1012 is promised already
    reader.hear(data_train([1010, 1011, 1012], kind=T.RDATA))
    assert reader.next_sqn() == 1013


@pytest.mark.rfc("RCV-31", "SEC-03")
@pytest.mark.parametrize("ahead", [4097, 1 << 20, (1 << 31) - 1])
def test_an_ncf_far_ahead_reveals_nothing(ahead):
    reader = joined(ncf_lead_sqns=4096)
    reader.hear(ncf_packet(1009 + ahead))
    reader.wait(300 * MS)
    assert reader.naks() == []
    reader.hear(data_train([1010]))
    assert reader.next_sqn() == 1011


@pytest.mark.rfc("RCV-06")
def test_data_ahead_of_the_lead_is_data():
    """RDATA beyond the lead is valid."""
    reader = joined()
    reader.hear(data_train([1010], kind=T.RDATA))
    assert reader.next_sqn() == 1011


def test_local_repairs_are_told_apart():
    reader = joined(setup=ReceiverSetup(SEGMENT, local_repairers=frozenset({REPAIRER})))
    reader.hear(data_train([1013]))
    reader.hear(data_train([1010], kind=T.RDATA), peer=REPAIRER)
    reader.hear(data_train([1011], kind=T.RDATA), peer=SOURCE)
    reader.hear(data_train([1012]))
    counters = reader.core.counters
    assert (counters.repaired_sqns, counters.repaired_locally, counters.late_sqns) == (2, 1, 1)


def test_waiting_naks_follow_the_last_repair_of_a_read():
    reader = joined(nak_max_outstanding=4)
    reader.hear(data_train(range(1011, 1041, 2), trail=100))
    reader.wait(20 * MS)
    [asked] = reader.naks(1000)
    assert asked == [1010, 1012, 1014, 1016]
    reader.hear(data_train(asked, kind=PacketType.RDATA, trail=100))
    assert reader.naks(1000)[1:] == [[1018, 1020, 1022, 1024]]
