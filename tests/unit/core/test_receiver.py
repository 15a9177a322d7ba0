"""The receiver core: joining, order, repair, loss, silence, ends, and the bounds of it all."""

from __future__ import annotations

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgm.core.effects import CloseCause, LossCause, Opened
from pgm.core.session import ReceiverSetup
from pgm.units import KIB, NEVER, SECOND
from pgm.wire.formats import NO_WINDOW_LEAD, NO_WINDOW_TRAIL, PacketType
from pgm.wire.options import Epoch, Fin, Join, Rst
from pgm.wire.packets import Polr
from tests.reference import DATA_PORT, OTHER_TSI, TSI, data_packet
from tests.unit.core.makers import (
    BY_GROUP,
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
    payload_of,
    sent_control,
    spm_packet,
    spmr_packet,
    train_of,
)
from tests.unit.core.reader import Reader

T = PacketType
L = LossCause
RPT, RDATA, BO = 50 * MS, 200 * MS, 10 * MS


def joined(first=1000, trail=100, **changes):
    """A reader in the middle of a stream: SPM known, some packets delivered."""
    reader = Reader(**changes)
    reader.hear(spm_packet(1, trail, first - 1))
    reader.hear(data_train(range(first, first + 10), trail=trail))
    assert reader.delivered() == list(range(first, first + 10))
    return reader


# Joining


@pytest.mark.rfc("RCV-01")
def test_reception_starts_with_the_first_data_packet():
    """An SPM before it does not move the start."""
    reader = Reader()
    reader.hear(spm_packet(1, 100, 990))
    assert reader.marks == []
    reader.hear(data_train([1000, 1001], trail=100))
    assert reader.marks == [Opened(TSI, 1000, SOURCE, DATA_PORT)]
    assert reader.delivered() == [1000, 1001]
    reader.wait(SECOND)
    assert reader.naks() == []


@pytest.mark.rfc("RCV-02")
def test_nothing_before_the_start_is_asked_for_until_the_trail_has_passed_it():
    reader = joined()
    for number, lead in enumerate((1009, 1015), 2):
        reader.hear(spm_packet(number, 100, lead))
        reader.wait(300 * MS)
    assert reader.asked() == set(range(1010, 1016))
    reader.hear(data_train(range(1010, 1016), kind=T.RDATA, trail=1005))
    reader.hear(data_train([1018], trail=1012))
    reader.wait(300 * MS)
    assert min(reader.asked()) >= 1010
    assert reader.lost() == {}


@pytest.mark.rfc("RCV-03")
@pytest.mark.parametrize("where", ["data", "spm before", "spm behind"])
def test_join_option_sets_the_start(where):
    """OPT_JOIN 900 asks for 900 to 999."""
    reader = Reader(nak_max_outstanding=1000)
    join = Join(900)
    if where == "data":
        reader.hear(spm_packet(1, 100, 999))
        reader.hear(data_train([1000], trail=100, options=(join,)))
    elif where == "spm before":
        reader.hear(spm_packet(1, 100, 999, join))
        reader.hear(data_train([1000], trail=100))
    else:
        reader.hear(data_train([1000], trail=100))
        assert reader.marks == []  # held until the SPM says where the stream begins for us
        reader.hear(spm_packet(1, 100, 1000, join))
    assert reader.opened() == [(900, False)]
    reader.wait(300 * MS)
    assert reader.asked() == set(range(900, 1000))
    reader.hear(data_train(range(900, 1000), kind=T.RDATA, trail=100))
    assert reader.delivered() == list(range(900, 1001))


@pytest.mark.rfc("RCV-03")
def test_join_option_is_clamped_to_the_trail_and_to_what_came():
    reader = Reader()
    reader.hear(data_train([1000], trail=950, options=(Join(900),)))
    reader.hear(spm_packet(1, 950, 1000, Join(900)))
    assert reader.opened() == [(950, False)]
    reader = Reader()
    reader.hear(data_train([1000], trail=950))
    reader.hear(spm_packet(1, 950, 1005, Join(1006)))
    assert reader.opened() == [(1000, False)]


@pytest.mark.rfc("RCV-03")
def test_join_option_is_ignored_once_begun():
    reader = joined()
    reader.hear(spm_packet(2, 100, 1009, Join(500)))
    reader.hear(data_train([1010], trail=100, options=(Join(400),)))
    reader.wait(SECOND)
    assert reader.opened() == [(1000, False)]
    assert reader.naks() == []


@pytest.mark.rfc("RCV-01")
def test_data_without_an_spm_is_held_for_a_moment_and_then_delivered():
    """Covers design section 3: nobody waits for ever."""
    reader = Reader(open_hold_ivl=500 * MS)
    reader.hear(data_train(range(10)))
    reader.wait(500 * MS - 1)
    assert reader.delivered() == []
    reader.wait(1)
    assert reader.opened() == [(0, False)]
    assert reader.delivered() == list(range(10))
    reader.hear(data_train(range(10, 12)))
    assert reader.delivered() == list(range(12))


@pytest.mark.rfc("RCV-01")
def test_repairs_of_others_begin_nothing():
    """RDATA may be as old as a cache."""
    reader = Reader()
    reader.hear(spm_packet(1, 100, 999))
    reader.hear(data_train([500], kind=T.RDATA, trail=100))
    reader.wait(SECOND)
    assert reader.marks == []
    assert reader.core.counters.foreign_packets == 1


@pytest.mark.rfc("RCV-01", "RCV-06")
@pytest.mark.parametrize("sqn", [50, 99, 999 - (1 << 31) + 1])
def test_data_outside_the_advertised_window_begins_nothing(sqn):
    """A packet from before the trail is no place to start, nor a loss of all that followed."""
    reader = Reader()
    reader.hear(spm_packet(1, 100, 999))
    reader.hear(data_train([sqn], trail=sqn))
    assert reader.marks == []
    reader.hear(data_train([1000], trail=100))
    assert reader.opened() == [(1000, False)]
    assert reader.lost() == {}


@pytest.mark.rfc("SEC-07", "W-19")
def test_first_data_whose_trail_makes_no_sense():
    """A trail ahead of the packet itself loses nothing that was never sent."""
    reader = Reader(open_hold_ivl=MS)
    reader.hear(data_train([5], trail=5 + (1 << 31) - 1))
    reader.hear(data_train([6], trail=0))
    reader.wait(10 * MS)
    assert reader.delivered() == [5, 6]
    assert reader.lost() == {}


# SPMs and SPMRs


@pytest.mark.rfc("RCV-22")
def test_without_an_spm_nothing_is_asked_for_and_nothing_is_lost():
    """The gap is held, the SPM solicited."""
    reader = Reader(open_hold_ivl=100 * MS, nak_ncf_retries=1, nak_data_retries=1)
    reader.hear(data_train([0, 1, 5]))
    for _ in range(100):  # the source is alive, only its SPMs are lost
        reader.hear(data_train([1]), after=100 * MS)
    assert reader.naks() == []
    assert reader.lost() == {}
    assert reader.delivered() == [0, 1]
    assert len(sent_control([send for _, send in reader.sent], T.SPMR)) >= 10
    reader.hear(spm_packet(0x90000000, 0, 5))
    reader.wait(20 * MS)
    assert reader.asked() == {2, 3, 4}
    reader.hear(data_train([2, 3, 4], kind=T.RDATA))
    assert reader.delivered() == list(range(6))


@pytest.mark.rfc("RCV-22", "RCV-33")
def test_first_spm_does_not_make_everybody_ask_at_once():
    """What waited for the path backs off at random from now on."""
    asked_after = set()
    for seed in range(40):
        reader = Reader(seed=seed, nak_bo_ivl=BO)
        reader.hear(data_train([0, 1, 5]))
        reader.wait(SECOND)
        reader.hear(spm_packet(1, 0, 5))
        begun = reader.now
        reader.wait(BO + 2 * MS)
        asked_after.add(reader.sent[-1][0] - begun)
        assert reader.asked() == {2, 3, 4}
    assert len(asked_after) > 20
    assert min(asked_after) > 0


@pytest.mark.rfc("SPMR-01", "SPMR-02", "SPMR-03", "RCV-50")
def test_spm_request_goes_to_the_group_and_to_the_source_of_the_data():
    reader = Reader(spmr_bo_ivl=250 * MS)
    reader.hear(data_train([0]))
    reader.wait(250 * MS)
    assert [(send.to, send.hops) for _, send in reader.sent] == [(None, 1), (SOURCE, None)]
    assert {spmr.tsi for spmr in sent_control([send for _, send in reader.sent], T.SPMR)} == {TSI}


@pytest.mark.rfc("SPMR-04")
def test_another_receivers_request_is_as_good():
    reader = Reader(spmr_bo_ivl=250 * MS, spmr_spm_ivl=SECOND)
    reader.hear(data_train([0]))
    reader.hear(spmr_packet(), peer=PEER)
    reader.wait(SECOND - 1)
    assert reader.sent == []
    reader.wait(300 * MS)
    assert len(reader.sent) == 2


@pytest.mark.rfc("RCV-30")
def test_spm_lead_reveals_tail_loss():
    reader = joined()
    reader.hear(spm_packet(2, 100, 1013))
    reader.wait(300 * MS)
    assert reader.asked() == {1010, 1011, 1012, 1013}


@pytest.mark.rfc("RCV-20", "RCV-23", "RCV-24", "W-20")
def test_stale_and_windowless_spms_change_nothing():
    reader = joined()
    reader.hear(spm_packet(1, 100, 1013))  # the same SPM_SQN
    reader.hear(spm_packet(0, 1500, 1999))  # an older one
    reader.hear(spm_packet(2, NO_WINDOW_TRAIL, NO_WINDOW_LEAD))
    reader.hear(spm_packet(3, 90, 995))
    reader.wait(300 * MS)
    assert reader.naks() == []
    assert reader.lost() == {}
    assert reader.core.counters.spm_packets_stale == 2


# Order


@pytest.mark.rfc("RCV-05", "RCV-06", "RCV-07", "RCV-32")
def test_data_is_delivered_in_order_whatever_the_order_of_arrival():
    reader = joined()
    for sqns in ([1012, 1013], [1015], [1011], [1010]):
        reader.hear(data_train(sqns))
    assert reader.delivered() == list(range(1000, 1014))
    reader.hear(data_train([1014]))
    assert reader.delivered() == list(range(1000, 1016))
    reader.wait(SECOND)
    assert reader.naks() == []
    assert reader.core.counters.late_sqns == 3


@pytest.mark.rfc("RCV-06")
def test_duplicates_are_delivered_once():
    """Whole trains, parts of them, delivered or held."""
    reader = joined()
    reader.hear(data_train(range(1000, 1010)))
    reader.hear(data_train(range(1005, 1015)))
    reader.hear(data_train(range(1020, 1025)))
    reader.hear(data_train(range(1018, 1027)))
    reader.hear(data_train(range(1018, 1027), kind=T.RDATA))
    assert reader.delivered() == list(range(1000, 1015))
    reader.hear(data_train(range(990, 1030)))
    assert reader.delivered() == list(range(1000, 1030))
    assert reader.core.counters.received_packets == reader.core.counters.delivered_packets == 30
    assert reader.core.counters.received_octets == 30 * 36
    assert reader.core.counters.delivered_octets == 30 * 12
    assert reader.core.counters.duplicate_packets == 10 + 5 + 5 + 9 + (10 + 15 + 9)


def test_octets_of_a_duplicate_need_not_stay():
    """The driver may reuse a read of which nothing was kept: repairs for others are most of what a subnet hears."""
    reader = joined()
    train = data_train(range(1000, 1005), kind=T.RDATA)
    reader.hear(train)
    assert not train.kept


@pytest.mark.rfc("RCV-07")
def test_sessions_do_not_hold_each_other_up():
    """Per TSI."""
    reader = joined()
    reader.hear(spm_packet(1, 0, 0, tsi=OTHER_TSI))
    reader.hear(data_train([1], tsi=OTHER_TSI))
    reader.hear(data_train([1011]))
    reader.hear(data_train([2, 3], tsi=OTHER_TSI))
    assert reader.delivered(OTHER_TSI) == [1, 2, 3]
    assert reader.next_sqn() == 1010


def test_a_mixed_train_is_taken_apart():
    """One read may hold two sessions and control between the data."""
    reader = joined()
    pad = [spm_packet(number, 100, 1009, Join(1010)) for number in (2, 3)]
    size = len(next(iter(train_of(pad[0]).packets())))
    packets = [
        data_packet(1010, payload_of(1010, size - 24)),
        *train_of(*pad).packets(),
        data_packet(1011, payload_of(1011, size - 24)),
    ]
    reader._payload = lambda sqn: payload_of(sqn, size - 24)
    reader.hear(type(train_of(pad[0])).of(b"".join(packets), size))
    assert reader.next_sqn() == 1012
    assert reader.core.counters.spm_packets_in == 3


# Asking


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


# Loss


@pytest.mark.rfc("RCV-05", "RCV-10", "RCV-11", "SRC-15")
def test_what_the_window_has_left_is_lost():
    reader = joined()
    reader.hear(data_train([1013], trail=100))
    reader.hear(data_train([1016], trail=1012))
    assert reader.lost() == {1010: L.WINDOW, 1011: L.WINDOW}
    assert reader.next_sqn() == 1012
    reader.hear(spm_packet(2, 1017, 1016))
    assert reader.lost() == dict.fromkeys((1010, 1011, 1012, 1014, 1015), L.WINDOW)
    assert reader.next_sqn() == 1017
    reader.wait(SECOND)
    assert reader.naks() == []
    assert reader.core.counters.lost_sqns == 5


@pytest.mark.rfc("RCV-04", "RCV-10")
def test_what_nobody_ever_heard_of_is_lost_with_the_window():
    """The trail alone reveals it."""
    reader = joined()
    reader.hear(spm_packet(2, 1020, 1030))
    assert reader.lost() == dict.fromkeys(range(1010, 1020), L.WINDOW)
    reader.wait(300 * MS)
    assert reader.asked() == set(range(1020, 1031))


@pytest.mark.rfc("RCV-10", "RCV-37", "RCV-40")
def test_what_nobody_answers_is_lost():
    """NAKs are counted on the wire."""
    reader = joined(nak_ncf_retries=3, nak_max_ivl=MS)  # an interval that does not grow
    reader.hear(data_train([1012]))
    for number in range(2, 12):
        reader.hear(spm_packet(number, 100, 1012), after=100 * MS)
    assert len(reader.naks()) == 4
    assert reader.lost() == {1010: L.RETRIES, 1011: L.RETRIES}
    assert reader.delivered()[-1] == 1012


@pytest.mark.rfc("RCV-40")
def test_late_data_for_what_was_given_up_is_not_delivered_twice_or_out_of_order():
    reader = joined()
    reader.hear(data_train([1013], trail=100))
    reader.hear(data_train([1014], trail=1011))
    reader.hear(data_train([1010, 1011, 1012], kind=T.RDATA, trail=1011))
    assert reader.lost() == {1010: L.WINDOW}
    assert reader.next_sqn() == 1015


def test_repairs_below_the_trail_are_asked_for_where_somebody_keeps_them():
    """Covers design section 3: a repairer's cache outlives the source's window."""
    reader = joined(setup=ReceiverSetup(SEGMENT, parents=(REPAIRER,), asks_below_trail=True), nak_ncf_retries=2)
    reader.hear(data_train([1013], trail=100))
    reader.hear(data_train([1014], trail=1012))
    assert reader.lost() == {}
    reader.wait(20 * MS)
    assert reader.asked() == {1010, 1011, 1012}
    reader.hear(data_train([1010], kind=T.RDATA, trail=1012))
    assert reader.next_sqn() == 1011
    for number in range(2, 12):
        reader.hear(spm_packet(number, 1012, 1014), after=100 * MS)
    assert reader.lost()[1011] is L.WINDOW
    assert reader.next_sqn() == 1015


def test_repairs_from_below_the_trail_are_waited_for_as_long_as_any_come():
    """Covers design section 3: a cache that serves is not given up on, one that has nothing left is."""
    reader = joined(setup=ReceiverSetup(SEGMENT, parents=(REPAIRER,), asks_below_trail=True), nak_ncf_retries=1000)
    reader.hear(data_train([1040], trail=100))
    reader.hear(spm_packet(2, 1040, 1040))
    for sqn in range(1010, 1030):
        reader.hear(data_train([sqn], kind=T.RDATA, trail=1040), after=100 * MS, peer=REPAIRER)
    assert reader.lost() == {}
    for number in range(3, 13):
        reader.hear(spm_packet(number, 1040, 1040), after=300 * MS)
    assert reader.lost() == dict.fromkeys(range(1030, 1040), L.WINDOW)


@pytest.mark.rfc("RCV-40")
def test_nothing_is_lost_while_the_source_is_silent():
    """Covers design section 1: an outage above is no loss, and uses up no retries."""
    reader = joined(nak_ncf_retries=30, peer_expiry=3600 * SECOND, stall_ivl=SECOND, session_expiry=7200 * SECOND)
    reader.hear(data_train([1013]))
    reader.wait(600 * SECOND)
    assert reader.lost() == {}
    assert len(reader.naks()) > 500
    reader.hear(spm_packet(2, 100, 1013))
    reader.wait(500 * MS)
    assert reader.lost() == {}
    reader.hear(data_train([1010, 1011, 1012], kind=T.RDATA))
    assert reader.next_sqn() == 1014


@pytest.mark.rfc("SEC-07")
def test_a_confirmed_jump_is_followed():
    """What lies between is lost, once."""
    reader = joined(rxw_sqns=1000)
    reader.hear(data_train([5000], trail=4000))
    assert reader.next_sqn() == 1010
    assert reader.core.counters.jumps_rejected == 1
    reader.hear(spm_packet(2, 4000, 5000))
    assert reader.next_sqn() == 1010
    reader.hear(spm_packet(3, 4000, 5002))
    assert reader.lost() == dict.fromkeys(range(1010, 4000), L.JUMP)
    reader.hear(data_train(range(4000, 5003), kind=T.RDATA, trail=4000))
    assert reader.next_sqn() == 5003


@pytest.mark.rfc("SEC-07")
def test_a_jump_whose_window_reaches_back_keeps_what_is_in_it():
    """The trail may lie where we have been; nothing that can be repaired is lost."""
    reader = joined(rxw_sqns=1000)
    reader.hear(data_train([1015]))
    reader.hear(spm_packet(2, 1012, 5000))
    reader.hear(spm_packet(3, 1012, 5000))
    assert reader.lost() == {1010: L.JUMP, 1011: L.JUMP}
    session = next(iter(reader.core.sessions))
    assert session.missing_sqns == 5000 - 1012  # all of the window but the packet that is held


@pytest.mark.rfc("SEC-06")
def test_junk_is_counted():
    reader = joined()
    octets = bytearray(data_packet(1010, b"x"))
    octets[-1] ^= 1
    reader.hear(type(data_train([1])).of(bytes(octets)))
    assert reader.core.counters.rejects == {"checksum": 1}
    assert reader.next_sqn() == 1010


def test_other_streams_and_parity_are_not_taken():
    reader = joined(setup=ReceiverSetup(SEGMENT, data_ports=frozenset({DATA_PORT})))
    reader.hear(data_train([5], tsi=OTHER_TSI, data_port=DATA_PORT + 1))
    reader.hear(spm_packet(1, 0, 5, tsi=OTHER_TSI, data_port=DATA_PORT + 1))
    reader.hear(type(data_train([1])).of(data_packet(1010, b"x", parity=True)))
    assert reader.core.counters.foreign_packets == 3
    assert len(reader.core.sessions) == 1
    assert reader.next_sqn() == 1010


def test_poll_responses_of_a_known_session_mean_nothing_to_a_receiver():
    reader = joined()
    deadline = reader.core.deadline_ns
    reader.hear(Polr(tsi=TSI, data_port=DATA_PORT, poll_sqn=1, poll_round=0))
    assert reader.core.deadline_ns == deadline


@pytest.mark.rfc("SEC-01", "SEC-03")
def test_requests_begin_no_session():
    reader = Reader()
    for packet in (nak_packet(5), ncf_packet(5), spmr_packet(), nak_packet(5, kind=T.NNAK)):
        reader.hear(packet)
    assert len(reader.core.sessions) == 0
    assert reader.core.counters.foreign_packets == 4
    assert reader.core.deadline_ns == NEVER


# An application that does not keep up


def slow_reader(**changes):
    """An application that takes nothing, its queue already full."""
    reader = Reader(takes=False, payload=lambda sqn: payload_of(sqn, 1376), inbox_bytes=64 * KIB, **changes)
    reader.hear(spm_packet(1, 100, 999))
    reader.hear(data_train(range(1000, 1047), size=1376))
    assert reader.untaken >= 64 * KIB
    assert reader.next_sqn() == 1047
    return reader


def test_a_slow_application_loses_nothing_within_the_window():
    """Covers design section 3: NAKs and NCFs are handled all the same."""
    reader = slow_reader()
    reader.hear(data_train(range(1050, 1060), size=1376))
    reader.wait(20 * MS)
    assert reader.asked() == {1047, 1048, 1049}
    reader.hear(data_train(range(1047, 1050), size=1376, kind=T.RDATA))
    assert reader.next_sqn() == 1047
    reader.grant(10 * 1400)
    assert 1047 < reader.next_sqn() <= 1060
    while reader.untaken:
        reader.grant()
    assert reader.next_sqn() == 1060
    assert reader.lost() == {}


def test_a_queue_that_is_exactly_full_goes_on_when_it_is_emptied():
    reader = Reader(takes=False, inbox_bytes=10 * 36)
    reader.hear(spm_packet(1, 100, 999))
    reader.hear(data_train(range(1000, 1030)))
    assert reader.untaken == 360
    for delivered in (20, 30):
        reader.grant()
        assert reader.delivered() == list(range(1000, 1000 + delivered))


@pytest.mark.rfc("SEC-01", "RCV-10")
def test_a_session_that_is_evicted_says_all_it_has():
    """Room or not, for nobody will ask again."""
    reader = slow_reader(max_sessions=1)
    reader.hear(data_train(range(1050, 1060), size=1376))
    reader.hear(spm_packet(1, 0, 5, tsi=OTHER_TSI))
    assert reader.closed() is CloseCause.EVICTED
    assert reader.lost() == dict.fromkeys((1047, 1048, 1049), L.SOURCE_GONE)
    assert reader.delivered()[-10:] == list(range(1050, 1060))


def test_a_session_that_expires_waits_for_the_application():
    """Covers design section 3: the queue is bounded at the end too."""
    reader = slow_reader(peer_expiry=10 * SECOND, session_expiry=60 * SECOND)
    reader.hear(data_train(range(1047, 1060), size=1376))
    full = reader.untaken
    reader.wait(100 * SECOND)
    assert reader.untaken == full
    assert reader.closed() is CloseCause.SILENT
    reader.grant()
    assert reader.closed() is CloseCause.EXPIRED
    assert reader.next_sqn() == 1060


@pytest.mark.rfc("RCV-10")
def test_what_outgrows_the_window_is_an_overrun():
    """Covers design section 3: the oldest goes, and it is said."""
    reader = slow_reader(rxw_bytes=256 * KIB)
    for first in range(1047, 3000, 40):
        reader.hear(data_train(range(first, first + 40), size=1376))
    session = next(iter(reader.core.sessions))
    assert session.window.held_octets <= 256 * KIB
    while reader.untaken:
        reader.grant()
    assert reader.next_sqn() == 3007
    lost = reader.lost()
    assert set(lost.values()) == {L.OVERRUN}
    assert sorted(lost) == list(range(1047, 1047 + len(lost)))
    assert 3007 - 1047 - len(lost) >= 100


def test_a_fast_application_loses_nothing_to_a_small_window():
    """What can be delivered at once does not count against the window, however small that is."""
    reader = Reader(payload=lambda sqn: payload_of(sqn, 1376), rxw_bytes=64 * KIB)
    reader.hear(spm_packet(1, 100, 999))
    for first in range(1000, 2000, 60):
        reader.hear(data_train(range(first, first + 60), size=1376))
    assert reader.lost() == {}
    assert reader.next_sqn() == 2020


def test_a_repaired_gap_lets_all_that_waited_out():
    """The packet that fills the gap may be the one that exceeds the bound."""
    reader = Reader(payload=lambda sqn: payload_of(sqn, 1376), rxw_bytes=256 * KIB, inbox_bytes=64 << 20)
    reader.hear(spm_packet(1, 100, 999))
    reader.hear(data_train([1000], size=1376))
    for first in (1002, 1047, 1092, 1137):
        reader.hear(data_train(range(first, first + 45), size=1376))
    reader.hear(data_train([1001], size=1376, kind=T.RDATA))
    assert reader.lost() == {}
    assert reader.next_sqn() == 1182


@pytest.mark.rfc("SEC-01", "RCV-10")
def test_octets_that_wait_for_a_gap_are_bounded():
    """The gap is given up, and what waited behind it is delivered."""
    reader = Reader(payload=lambda sqn: payload_of(sqn, 1376), rxw_bytes=256 * KIB)
    reader.hear(spm_packet(1, 100, 999))
    reader.hear(data_train([1000], size=1376))
    most = 0
    for first in range(1005, 2000, 40):
        reader.hear(data_train(range(first, first + 40), size=1376))
        most = max(most, next(iter(reader.core.sessions)).window.held_octets)
    assert most <= 256 * KIB
    assert reader.lost() == dict.fromkeys(range(1001, 1005), L.OVERLOAD)
    assert reader.next_sqn() == 2005


@pytest.mark.rfc("SEC-01", "SEC-03")
@pytest.mark.parametrize("how", ["data", "spm", "ncf"])
def test_gaps_are_bounded_however_they_are_revealed(how):
    """The oldest is given up, at once and in order."""
    reader = joined(rxw_gaps=16)
    for number in range(200):
        sqn = 1011 + 2 * number
        if how == "data":
            reader.hear(data_train([sqn]))
        elif how == "spm":
            reader.hear(spm_packet(2 + number, 100, sqn))
        else:
            reader.hear(ncf_packet(sqn))
        assert next(iter(reader.core.sessions)).missing_ranges <= 16
    assert set(reader.lost().values()) == {L.OVERLOAD}
    assert reader.next_sqn() > 1300


@pytest.mark.rfc("SEC-01")
def test_octets_that_wait_for_the_first_spm_are_bounded():
    """Data may come at full rate before anything is known of the path."""
    reader = Reader(payload=lambda sqn: payload_of(sqn, 1376), rxw_bytes=64 * KIB, open_hold_ivl=SECOND)
    for first in range(1000, 1400, 40):
        reader.hear(data_train(range(first + 1, first + 40), size=1376))
        session = next(iter(reader.core.sessions))
        assert session.window.held_octets <= 64 * KIB
    reader.wait(SECOND)
    reader.hear(spm_packet(1, 1400, 1399))
    assert reader.next_sqn() == 1400
    assert reader.delivered()[-39:] == list(range(1361, 1400))
    assert set(reader.lost().values()) <= {L.OVERLOAD, L.OVERRUN, L.WINDOW}


@pytest.mark.rfc("SEC-01")
def test_account_of_a_stalled_application_is_bounded():
    """Losses of all kinds, one after the other, while nothing can be told."""
    reader = slow_reader(rxw_bytes=64 * KIB, rxw_gaps=16)
    for number in range(1000):
        first = 1050 + number * 4
        reader.hear(data_train([first, first + 1], size=1376, trail=first - 1 if number % 3 else 100))
    session = next(iter(reader.core.sessions))
    assert len(session.window._given_up) <= 16 + len(session.window._held)
    end = 1050 + 999 * 4 + 2
    reader.hear(spm_packet(2, end, end - 1))
    while reader.untaken:
        reader.grant()
    assert sorted(reader.fates[TSI]) == list(range(1000, end))


# Silence and ends


def test_silence_is_reported_and_so_is_the_end_of_it():
    """Covers design section 1: visible."""
    reader = joined(peer_expiry=10 * SECOND)
    heard_at = reader.now
    reader.wait(10 * SECOND - 1)
    assert reader.closed() is None
    reader.wait(1)
    assert reader.closed() is CloseCause.SILENT
    assert reader.now == heard_at + 10 * SECOND
    reader.hear(data_train([1010]), after=SECOND)
    assert reader.opened() == [(1000, False), (1010, True)]
    assert reader.next_sqn() == 1011
    reader.wait(10 * SECOND)
    reader.hear(spm_packet(2, 100, 1012))
    assert reader.opened() == [(1000, False), (1010, True), (1011, True)]


@pytest.mark.rfc("RCV-10")
def test_a_session_that_stays_silent_expires():
    """What is missing is lost with it, and said before the end."""
    reader = joined(peer_expiry=10 * SECOND, session_expiry=60 * SECOND, nak_ncf_retries=1000)
    reader.hear(data_train([1012]))
    reader.wait(60 * SECOND)
    assert reader.closed() is CloseCause.EXPIRED
    assert reader.lost() == {1010: L.SOURCE_GONE, 1011: L.SOURCE_GONE}
    assert reader.next_sqn() == 1013
    assert len(reader.core.sessions) == 0
    assert reader.core.deadline_ns == NEVER
    assert reader.core.counters.sessions_expired == 1


def test_a_source_that_comes_back_after_expiry_is_a_new_session():
    reader = joined(peer_expiry=10 * SECOND, session_expiry=60 * SECOND)
    reader.wait(100 * SECOND)
    reader.hear(spm_packet(5, 100, 1100))
    reader.hear(data_train([1101], trail=100))
    assert reader.opened() == [(1000, False), (1101, False)]


@pytest.mark.rfc("RCV-10")
@pytest.mark.parametrize("is_dawdling", [False, True])
def test_a_source_that_comes_back_while_the_application_dawdles_is_followed_again(is_dawdling):
    """An expired session that is still being delivered must not swallow the stream for ever."""
    reader = slow_reader(peer_expiry=10 * SECOND, session_expiry=60 * SECOND)
    reader.hear(data_train(range(1047, 1060), size=1376))
    reader.wait(100 * SECOND)
    for number in range(2, 100):
        reader.hear(spm_packet(number, 100, 1099), after=SECOND)
        if number == (50 if is_dawdling else 2):
            while reader.untaken:
                reader.grant()
    assert reader.closed() is CloseCause.EXPIRED
    reader.takes = True
    reader.hear(data_train(range(1100, 1110), size=1376))
    assert reader.opened()[-1] == (1100, False)
    assert reader.next_sqn() == 1110


@pytest.mark.rfc("RCV-25")
def test_fin_closes_when_all_is_delivered():
    reader = joined()
    reader.hear(spm_packet(2, 100, 1009, Fin()))
    assert reader.closed() is CloseCause.FIN
    assert reader.next_sqn() == 1010


@pytest.mark.rfc("RCV-25", "RCV-30")
def test_fin_reveals_the_tail_and_waits_for_it():
    reader = joined()
    reader.hear(spm_packet(2, 100, 1012, Fin()))
    assert reader.closed() is None
    reader.wait(300 * MS)
    assert reader.asked() == {1010, 1011, 1012}
    reader.hear(data_train([1010, 1012], kind=T.RDATA))
    assert reader.closed() is None
    reader.hear(data_train([1011], kind=T.RDATA))
    assert reader.closed() is CloseCause.FIN


@pytest.mark.rfc("RCV-10", "RCV-25")
def test_fin_whose_tail_is_lost():
    reader = joined(nak_ncf_retries=1)
    for number in range(2, 12):
        reader.hear(spm_packet(number, 100, 1012, Fin()), after=50 * MS)
    assert reader.lost() == dict.fromkeys((1010, 1011, 1012), L.RETRIES)
    assert reader.closed() is CloseCause.FIN


@pytest.mark.rfc("SRC-28")
def test_fin_on_data():
    reader = joined()
    reader.hear(data_train([1011, 1012], options=(Fin(),)))
    assert reader.closed() is None
    reader.hear(data_train([1010]))
    assert reader.closed() is CloseCause.FIN
    assert reader.next_sqn() == 1013


def test_a_closed_session_says_nothing_more():
    reader = joined()
    reader.hear(spm_packet(2, 100, 1009, Fin()))
    marks = list(reader.marks)
    for number in range(3, 20):
        reader.hear(spm_packet(number, 100, 1009, Fin()), after=SECOND)
        reader.hear(data_train([1009], kind=T.RDATA))
    assert reader.marks == marks
    reader.wait(300 * SECOND)
    assert reader.marks == marks
    assert len(reader.core.sessions) == 0


@pytest.mark.rfc("RCV-25")
def test_a_closed_session_is_remembered_while_its_source_is_heard():
    """FIN is said many times, and other sessions go on meanwhile."""
    reader = joined(session_expiry=20 * SECOND)
    reader.hear(spm_packet(2, 100, 1009, Fin()))
    marks = len(reader.marks)
    for number in range(100):
        reader.hear(data_train([5 + 2 * number], tsi=OTHER_TSI), after=SECOND)
        reader.hear(spm_packet(1 + number, 0, 6 + 2 * number, tsi=OTHER_TSI))
        reader.hear(spm_packet(3 + number, 100, 1009, Fin()))
    assert [mark for mark in reader.marks[marks:] if mark.tsi == TSI] == []


def test_a_receiver_that_only_hears_the_fin():
    """It was there, and there was nothing more to hear."""
    reader = Reader()
    reader.hear(spm_packet(9, 100, 199, Join(200), Fin()))
    assert reader.opened() == [(200, False)]
    assert reader.closed() is CloseCause.FIN


@pytest.mark.rfc("RCV-26")
def test_reset_without_naks_gives_up_at_once():
    """With N set nothing more is asked for."""
    reader = joined()
    reader.hear(data_train([1012]))
    reader.hear(spm_packet(2, 100, 1013, Rst(no_naks=True, error=1)))
    assert reader.lost() == dict.fromkeys((1010, 1011, 1013), L.SOURCE_GONE)
    assert reader.closed() is CloseCause.RESET
    reader.wait(SECOND)
    assert reader.naks() == []


@pytest.mark.rfc("RCV-26")
def test_reset_with_naks_recovers_what_it_can():
    reader = joined()
    reader.hear(data_train([1012]))
    reader.hear(spm_packet(2, 100, 1012, Rst()))
    reader.wait(20 * MS)
    assert reader.asked() == {1010, 1011}
    assert reader.closed() is None
    reader.hear(data_train([1010, 1011], kind=T.RDATA))
    assert reader.closed() is CloseCause.RESET


@pytest.mark.rfc("SEC-01")
def test_sessions_are_bounded():
    """The 65th evicts the one that was silent for longest, with all it holds."""
    reader = Reader(max_sessions=64)
    tsis = [bytes([number]) * 8 for number in range(65)]
    for tsi in tsis[:64]:
        reader.hear(data_train([5], tsi=tsi), after=MS)
        reader.hear(spm_packet(1, 0, 5, tsi=tsi))
        reader.hear(data_train([7], tsi=tsi))
    reader.hear(data_train([8], tsi=tsis[0]), after=MS)
    assert reader.marks[-1].tsi == tsis[63]
    reader.hear(data_train([5], tsi=tsis[64]), after=MS)
    assert len(reader.core.sessions) == 64
    assert reader.closed(tsis[1]) is CloseCause.EVICTED
    assert reader.fates[tsis[1]] == {5: payload_of(5), 6: L.SOURCE_GONE, 7: payload_of(7)}
    assert reader.core.counters.sessions_evicted == 1
    assert all(reader.closed(tsi) is None for tsi in (tsis[0], *tsis[2:]))


def test_an_ended_session_goes_before_a_living_one():
    reader = Reader(max_sessions=2)
    reader.hear(spm_packet(1, 0, 5, Join(6)))
    reader.hear(spm_packet(1, 0, 5, Join(6), Fin(), tsi=OTHER_TSI), after=SECOND)
    reader.hear(spm_packet(1, 0, 5, Join(6), tsi=b"3" * 8), after=SECOND)
    assert reader.closed() is None
    assert reader.core.counters.sessions_evicted == 0


# Everywhere the same


@pytest.mark.rfc("W-17", "W-18", "RCV-04")
@pytest.mark.parametrize("first", [(1 << 32) - 20, (1 << 32) - 1, 1 << 32, (9 << 32) - 13])
@pytest.mark.parametrize("begins_with", ["spm", "data"])
def test_a_session_across_the_wrap_is_like_one_at_1000(first, begins_with):

    def session(start):
        def epoch(lead):
            return Epoch(lead + 1 >> 32, 1, 2)

        reader = Reader(payload=lambda sqn: payload_of(sqn % (1 << 32)), seed=5)
        if begins_with == "spm":
            reader.hear(spm_packet((1 << 32) - 2, start - 7, start - 1, epoch(start - 1)))
        trains = {}
        for sqn in range(start, start + 60):
            trains[sqn] = [data_packet(sqn, payload_of(sqn % (1 << 32)), trail=sqn - 7)]
        spm_sqn = (1 << 32) - 1
        for sqn in range(start, start + 60):
            if (sqn - start) % 7 in (2, 3) and sqn - start > 0:
                continue
            reader.hear(type(data_train([0])).of(trains[sqn][0]), after=MS)
            if (sqn - start) % 10 == 9:
                reader.hear(spm_packet(spm_sqn, sqn - 7, sqn, epoch(sqn)))
                spm_sqn += 1
            if (sqn - start) % 7 == 6:
                reader.wait(12 * MS)
                repair = data_packet(sqn - 4, payload_of((sqn - 4) % (1 << 32)), trail=sqn - 7, kind=T.RDATA)
                reader.hear(type(data_train([0])).of(repair))
        reader.hear(spm_packet(spm_sqn + 1, start + 50, start + 62, epoch(start + 62), Fin()), after=MS)
        reader.wait(100 * MS)
        origin = reader.opened()[0][0]
        fates = {sqn - origin: fate if isinstance(fate, L) else "data" for sqn, fate in reader.fates[TSI].items()}
        asked = [
            (at, [sqn - origin for sqn in nak]) for (at, _), nak in zip(reader.sent, reader.naks(origin), strict=False)
        ]
        return fates, asked, attrs.asdict(reader.core.counters), origin

    expected, there = session(1000), session(first)
    assert there[:3] == expected[:3]
    assert len(there[0]) > 40
    if begins_with == "spm":
        assert there[3] == first  # the source's own numbers


@pytest.mark.rfc("SEC-06")
@given(st.binary(max_size=200), st.integers(1, 60), st.booleans())
def test_random_octets_do_no_harm(octets, stride, is_group):
    """Covers the contract of `pgm.core.interface`: nothing a peer sends makes `receive` raise."""
    reader = joined()
    channel = attrs.evolve(BY_GROUP, is_group=is_group)
    reader.hear(type(data_train([1])).of(octets, stride), channel=channel)
    assert reader.next_sqn() == 1010


def test_calling_early_does_nothing():
    """Covers the contract of `pgm.core.interface`."""
    reader = joined()
    reader.hear(data_train([1013]))
    now = reader.now
    for _ in range(500):
        if reader.core.deadline_ns > now:
            deadline = reader.core.deadline_ns
            assert list(reader.core.handle_deadline(now)) == []
            assert reader.core.deadline_ns == deadline
            now += 97_003
        else:
            reader.core.handle_deadline(now)


def test_status_has_a_row_per_session():
    reader = joined()
    reader.hear(data_train([1013]))
    [row] = reader.core.status(reader.now + 5)
    assert (row.state, row.next_sqn, row.missing_sqns, row.lead, row.trail) == ("open", 1010, 3, 1013, 100)
    assert (row.parent, row.silent_ns, row.data_port) == (SOURCE, 5, DATA_PORT)
    assert reader.core.is_missing(TSI, 1011)
    assert not reader.core.is_missing(TSI, 1013)
    assert not reader.core.is_missing(OTHER_TSI, 1011)
