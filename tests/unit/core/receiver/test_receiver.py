"""The receiver core: joining, SPMs, order, and what is not for it."""

from __future__ import annotations

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgm.core.effects import LossCause, Opened
from pgm.core.receiver.setup import ReceiverSetup
from pgm.units import NEVER, SECOND
from pgm.wire.control_packets import Polr
from pgm.wire.formats import NO_WINDOW_LEAD, NO_WINDOW_TRAIL, PacketType
from pgm.wire.options import Epoch, Fin, Join
from tests.reference import DATA_PORT, OTHER_TSI, TSI, data_packet
from tests.unit.core.makers import (
    BY_GROUP,
    MS,
    PEER,
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
from tests.unit.core.reader import Reader, joined

T = PacketType
L = LossCause
BO = 10 * MS


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
def test_sqns_before_start_are_not_requested_until_trail_passes():
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
@pytest.mark.parametrize("where", ["data", "spm before", "spm behind"])
def test_join_option_reaches_no_further_back_than_a_window_can(where):
    """Whatever trail comes with it: what cannot exist is neither asked for nor reported lost."""
    reader = Reader(rxw_sqns=64, nak_max_outstanding=1000)
    join, newest, trail = Join(1000), 1 << 30, 1000
    if where == "data":
        reader.hear(data_train([newest], trail=trail, options=(join,)))
        reader.hear(spm_packet(1, newest - 10, newest))
    elif where == "spm before":
        reader.hear(spm_packet(1, trail, newest - 1, join))
        reader.hear(data_train([newest], trail=trail))
    else:
        reader.hear(data_train([newest], trail=trail))
        reader.hear(spm_packet(1, trail, newest, join))
    begun = reader.opened()[0][0]
    assert begun == newest + 1 - 64 - (where == "spm before")
    reader.wait(300 * MS)
    asked = reader.asked()
    assert min(asked) >= begun
    assert max(asked) == newest - 1
    reader.hear(data_train(range(newest + 1, newest + 11), trail=newest))
    assert min(reader.lost()) >= begun


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


def test_every_packet_of_another_stream_is_counted():
    """Whatever of a read is one item."""
    reader = Reader(ReceiverSetup(SEGMENT, data_ports=frozenset({DATA_PORT + 1})))
    reader.hear(data_train(range(5)))
    reader.hear(data_train([5, 6, 8, 10, 11]))
    assert reader.core.counters.foreign_packets == 10
    reader = Reader()
    reader.hear(train_of(*(ncf_packet(sqn, sqn + 1) for sqn in (1, 3, 5))))
    assert reader.core.counters.foreign_packets == 3


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
    pad = [spm_packet(number, 100, 1009, Join(1010)) for number in (2, 3)]
    size = len(next(iter(train_of(pad[0]).packets())))
    reader = joined(payload=lambda sqn: payload_of(sqn, 12 if sqn < 1010 else size - 24))
    packets = [
        data_packet(1010, payload_of(1010, size - 24)),
        *train_of(*pad).packets(),
        data_packet(1011, payload_of(1011, size - 24)),
    ]
    reader.hear(type(train_of(pad[0])).of(b"".join(packets), size))
    assert reader.next_sqn() == 1012
    assert reader.core.counters.spm_packets_in == 3


# Loss


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
    reader.hear(type(data_train([1])).of(data_packet(1010, b"x", parity=True, tsi=OTHER_TSI)))
    assert reader.core.counters.foreign_packets == 3
    assert reader.core.counters.parity_packets_unused == 1
    assert len(reader.core.sessions) == 1
    assert reader.next_sqn() == 1010


def test_receiver_with_poll_response_of_known_session_ignores_it():
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
