"""A receiver of a stream with parity: when it asks, for how much, and what it rebuilds (RFC 11.5)."""

from __future__ import annotations

import attrs
import pytest

from pgm.core.counters import Counters
from pgm.core.effects import CloseCause, Deliver, LossCause, Lost, Notice
from pgm.core.parity.store import PACKET_OCTETS, ParityStore
from pgm.fec import code, groups
from pgm.units import KIB, SECOND
from pgm.wire.formats import PacketType
from pgm.wire.options import CurrTgsize, Fin, ParityPrm
from pgm.wire.parity import ParityPacket, build_parity, request_sqn, requested
from pgm.wire.train import Train
from tests.reference import DATA_PORT, TSI
from tests.unit.core.makers import MS, data_train, nak_packet, ncf_packet, payload_of, run_of, sent_control, spm_packet
from tests.unit.core.reader import Reader

T = PacketType
SIZE = 8
BOTH = ParityPrm(SIZE, proactive=True, on_demand=True)
DEMAND = ParityPrm(SIZE, on_demand=True)
PATIENT = {"fec_hold_ivl": SECOND, "nak_bo_ivl": 8 * MS, "reorder_ivl": MS}


def parity(group, *indexes, actual=SIZE, kind=T.RDATA, marks=(), size=12):
    """Parity packets of a group of the packets of every test."""
    made = groups.encode([run_of(group, actual, size)], group, SIZE, indexes, actual)
    octets = [build_parity(kind, one, tsi=TSI, data_port=DATA_PORT, size=SIZE, trail=0, marks=marks) for one in made]
    return [Train.of(one) for one in octets]


def reader_of(offer=DEMAND, first=0, **changes):
    """A reader that has heard of parity and stands at the start of a group."""
    reader = Reader(**PATIENT | changes)
    reader.hear(spm_packet(1, first, first - 1, offer))
    reader.hear(data_train([first]))
    assert reader.next_sqn() == first + 1
    return reader


def asked(reader):
    """Every parity NAK so far as groups and counts, and every other as sqns."""
    naks = sent_control([send for _, send in reader.sent], T.NAK)
    return [[requested(sqn, SIZE) for sqn in nak.sqns] if nak.parity else list(nak.sqns) for nak in naks]


@pytest.mark.rfc("FEC-24", "FEC-25", "FEC-08")
def test_a_loss_is_asked_for_by_count_at_the_end_of_its_group():
    reader = reader_of()
    reader.hear(data_train([3, 4, 6]))
    reader.wait(500 * MS)
    assert asked(reader) == []
    reader.hear(data_train([7]))
    reader.wait(20 * MS)
    assert asked(reader) == [[(0, 3)]]
    assert (reader.core.counters.parity_naks, reader.core.counters.nak_sqns) == (1, 3)


@pytest.mark.rfc("FEC-25")
@pytest.mark.parametrize("sign", ["later data", "parity", "parity of a later group", "lead"])
def test_the_end_of_a_group_shows_in_many_ways(sign):
    reader = reader_of()
    reader.hear(data_train([3, 4]))
    shown = {
        "later data": [data_train([SIZE])],
        "parity": parity(0, 0),
        "parity of a later group": parity(SIZE, 0),
        "lead": [spm_packet(2, 0, SIZE - 1, DEMAND)],
    }
    for one in shown[sign]:
        reader.hear(one)
    reader.wait(20 * MS)
    missing = 5 - (sign == "parity")
    assert (0, missing) in asked(reader)[0]


@pytest.mark.rfc("FEC-25", "FEC-29")
def test_parity_losses_of_several_groups_are_one_nak():
    reader = reader_of()
    reader.hear(data_train([3 * SIZE]))
    reader.wait(20 * MS)
    assert asked(reader) == [[(0, 7), (SIZE, SIZE), (2 * SIZE, SIZE)]]


def test_parity_recovery_with_a_small_store_asks_for_few_groups():
    """The next group is asked for at once when one is rebuilt, and what others ask for has no room here, either."""
    most, many = 4, 40
    reader = reader_of(fec_groups=most)
    reader.hear(data_train(range(1, SIZE)))
    reader.hear(data_train([many * SIZE]))
    reader.wait(20 * MS)
    assert asked(reader) == [[(group * SIZE, SIZE) for group in range(1, 1 + most)]]
    reader.hear(ncf_packet(request_sqn(30 * SIZE, SIZE), parity=True))
    for group in range(2, many):  # not in order: the first group is late
        before = reader.now
        for one in parity(group * SIZE, *range(SIZE)):
            reader.hear(one)
        reader.wait(0)
        following = group + most - 1
        if following < many:
            assert asked(reader)[-1] == [(following * SIZE, SIZE)]
        assert reader.now == before
    for one in parity(SIZE, *range(SIZE)):
        reader.hear(one)
    assert reader.delivered() == list(range(many * SIZE + 1))
    assert reader.core.counters.parity_packets_unused == 0
    assert reader.core.deadline_ns > reader.now + SECOND


def test_parity_of_many_groups_keeps_ranges_within_limit():
    """A gap stays one range, whatever groups parity comes of: nothing is given up for that."""
    many = 40
    reader = reader_of(rxw_gaps=16)
    reader.hear(data_train([many * SIZE]))
    for group in range(0, many * SIZE, SIZE):
        for one in parity(group, 0):
            reader.hear(one)
    [session] = reader.core.sessions
    assert len(session.recovery.missing) <= 16
    for group in range(0, many * SIZE, SIZE):
        reader.hear(data_train(range(group + 1, group + SIZE), kind=T.RDATA))
    assert reader.delivered() == list(range(many * SIZE + 1))


def test_parity_full_table_of_ranges_is_not_cut_at_open_group():
    """What would be given up for that is the oldest of them."""
    reader = reader_of(rxw_gaps=16)
    for sqn in (*range(2, 32, 2), 43):
        reader.hear(data_train([sqn]))
    [session] = reader.core.sessions
    assert len(session.recovery.missing) == 16
    reader.hear(spm_packet(2, 0, 43, DEMAND))
    reader.wait(100 * MS)
    assert reader.lost() == {}
    groups_asked = [one[0] for nak in asked(reader) for one in nak if isinstance(one, tuple)]
    assert set(groups_asked) >= set(range(0, 40, SIZE))


def test_a_short_group_inside_a_gap_makes_no_range_too_many():
    reader = reader_of(rxw_gaps=16)
    for sqn in (*range(2, 32, 2), 43):
        reader.hear(data_train([sqn]))
    reader.hear(spm_packet(2, 0, 33, DEMAND, CurrTgsize(2)))  # 34 to 39 never were, and 31 to 42 are missing
    [session] = reader.core.sessions
    assert len(session.recovery.missing) == 16
    assert reader.core.counters.skipped_sqns == 6


@pytest.mark.rfc("FEC-23", "FEC-29")
def test_any_packets_make_up_for_any_losses():
    reader = reader_of()
    reader.hear(data_train([2, 3, 5, 6, 7]))
    first, second, third = parity(0, 1, 9, 4)
    reader.hear(first)
    reader.hear(first)  # twice the same is one
    assert reader.next_sqn() == 1
    assert reader.core.counters.parity_packets_unused == 1
    reader.hear(second)
    assert reader.delivered() == list(range(SIZE))
    assert (reader.core.counters.parity_sqns, reader.core.counters.repaired_sqns) == (2, 2)
    reader.hear(third)
    assert reader.core.counters.parity_packets_unused == 2


@pytest.mark.rfc("FEC-05", "FEC-29")
def test_indexes_beyond_the_group_are_told_apart_by_their_group():
    """1 and 9 have the same sqn."""
    reader = reader_of()
    reader.hear(data_train([2, 3, 5, 6, 7]))
    for one in parity(0, 1, 9):
        reader.hear(one)
    assert reader.delivered() == list(range(SIZE))


def test_a_late_packet_completes_what_parity_nearly_did():
    reader = reader_of()
    reader.hear(data_train([2, 3, 5, 6, 7]))
    reader.hear(parity(0, 0)[0])
    reader.hear(data_train([4]))
    assert reader.delivered() == list(range(SIZE))


@pytest.mark.rfc("FEC-10")
def test_packets_of_several_sizes():
    sizes = [12, 9, 40, 12, 0, 12, 12, 8]
    reader = reader_of()
    reader._payload = lambda sqn: payload_of(sqn, sizes[sqn])
    runs = [run_of(sqn, 1, sizes[sqn]) for sqn in range(SIZE)]
    made = groups.encode(runs, 0, SIZE, range(3), SIZE)
    for sqn in (1, 3, 6, 7):
        reader.hear(data_train([sqn], size=sizes[sqn]))
    for one in made:
        reader.hear(Train.of(build_parity(T.RDATA, one, tsi=TSI, data_port=DATA_PORT, size=SIZE, trail=0)))
    assert reader.delivered() == list(range(SIZE))


@pytest.mark.rfc("FEC-26")
def test_an_ncf_confirms_only_what_is_asked_or_more():
    for count, is_confirmed in ((1, False), (2, True), (5, True)):
        reader = reader_of()
        reader.hear(data_train([1, 2, 5, 6, 7]))
        reader.wait(20 * MS)
        assert asked(reader) == [[(0, 2)]]
        reader.hear(ncf_packet(request_sqn(0, count), parity=True))
        reader.wait(90 * MS)  # nak_rpt_ivl is over, nak_rdata_ivl is not
        assert (len(asked(reader)) == 1) == is_confirmed


@pytest.mark.rfc("FEC-26")
def test_anothers_request_silences_only_smaller_ones():
    for count, is_silent in ((1, False), (2, True)):
        for kind in (T.NAK, T.NCF):
            reader = reader_of(nak_bo_ivl=20 * MS)
            reader.hear(data_train([1, 2, 5, 6, 7]))
            reader.hear(nak_packet(request_sqn(0, count), parity=True, kind=kind))
            reader.wait(25 * MS)
            assert (asked(reader) == []) == is_silent


@pytest.mark.rfc("FEC-27")
def test_parity_more_losses_shorten_the_back_off():
    waits = {}
    for missing in (1, 7):
        reader = reader_of(nak_bo_ivl=SECOND)
        reader.hear(data_train(range(1 + missing, SIZE + 1)))
        before = reader.now
        reader.wait(2 * SECOND)
        waits[missing] = (
            reader.sent[-1][0] - before
            if len(asked(reader)) == 1
            else next(at for at, _ in reader.sent if at > before) - before
        )
    assert (waits[1] - MS) // 7 == pytest.approx(waits[7] - MS, abs=10)


@pytest.mark.rfc("FEC-28")
def test_the_wait_for_data_lasts_until_all_has_come():
    reader = reader_of()
    reader.hear(data_train([1, 2, 6, 7]))
    reader.wait(20 * MS)
    reader.hear(ncf_packet(request_sqn(0, 3), parity=True))
    reader.hear(parity(0, 0)[0])
    reader.wait(400 * MS)
    assert asked(reader)[:2] == [[(0, 3)], [(0, 2)]]
    for one in parity(0, 1, 2):
        reader.hear(one)
    naks = len(asked(reader))
    reader.wait(SECOND)
    assert len(asked(reader)) == naks
    assert reader.delivered() == list(range(SIZE))


@pytest.mark.rfc("FEC-31", "FEC-30", "FEC-21")
@pytest.mark.parametrize("sign", ["data", "parity", "spm"])
def test_parity_end_of_short_group_skips_unused_sqns(sign):
    reader = reader_of()
    reader.hear(data_train([1, 3]))
    shown = {
        "data": data_train([4], options=(CurrTgsize(5),)),
        "parity": parity(0, 0, actual=5)[0],
        "spm": spm_packet(2, 0, 4, DEMAND, CurrTgsize(5)),
    }
    reader.hear(shown[sign])
    reader.wait(20 * MS)
    lacking = {"data": 4, "parity": 4, "spm": 5}[sign]  # relative to a full group
    assert asked(reader) == [[(0, lacking)]]
    for one in parity(0, 1, 2, actual=5):
        reader.hear(one)
    assert reader.delivered() == list(range(5))
    reader._next[TSI] = SIZE  # the application is told nothing: there was nothing
    reader.hear(data_train([SIZE, SIZE + 1]))
    assert reader.delivered() == [*range(5), SIZE, SIZE + 1]
    assert reader.core.counters.skipped_sqns == 3
    assert reader.core.counters.lost_sqns == 0


@pytest.mark.rfc("FEC-31")
def test_a_short_group_that_nobody_told_of_is_learnt_by_asking():
    """The first packet of the next group shows that this one has ended; the parity that comes says how short it was."""
    reader = reader_of()
    reader.hear(data_train([1, 2, 3, 4]))
    reader.hear(data_train([SIZE]))
    reader.wait(20 * MS)
    assert asked(reader) == [[(0, 3)]]
    reader._next[TSI] = SIZE
    reader.hear(parity(0, 0, actual=5)[0])
    assert reader.delivered() == [*range(5), SIZE]
    assert reader.lost() == {}


PLAIN = ()  # options of an SPM of a stream without parity


def loses_a_group(*offers):
    """A reader that lacks 8 to 11 of 16 packets, behind SPMs with these options."""
    reader = Reader(**PATIENT)
    for number, options in enumerate(offers):
        reader.hear(spm_packet(number + 1, 0, -1, *options))
    reader.hear(data_train(range(SIZE)))
    reader.hear(data_train(range(12, 16)))
    return reader


FOUR = ParityPrm(4, on_demand=True)


@pytest.mark.rfc("FEC-02", "FEC-23")
@pytest.mark.parametrize("carrier", ["data", "parity", "spm"])
def test_parity_does_not_begin_by_an_spm_that_disagrees(carrier):
    """The stream never offered any; one SPM does, and a packet says that a group is short."""
    reader = loses_a_group(PLAIN, (FOUR,))
    shown = {
        "data": data_train([8], options=(CurrTgsize(1),), kind=T.RDATA),
        "parity": parity(8, 0, actual=1)[0],
        "spm": spm_packet(3, 0, 8, FOUR, CurrTgsize(1)),
    }
    reader.hear(shown[carrier])
    reader.hear(data_train(range(8, 12), kind=T.RDATA))
    assert reader.delivered() == list(range(16))
    assert reader.core.counters.skipped_sqns == 0


@pytest.mark.rfc("FEC-02")
@pytest.mark.parametrize("other", [PLAIN, (DEMAND,)])
def test_no_group_is_short_while_spms_disagree(other):
    """One of both SPMs is forged: what may have been sent is asked for until they agree again."""
    reader = loses_a_group((FOUR,), other)
    reader.hear(data_train([8], options=(CurrTgsize(1),), kind=T.RDATA))
    assert (reader.next_sqn(), reader.core.counters.skipped_sqns) == (9, 0)
    reader._next[TSI] = 12
    reader.hear(spm_packet(3, 0, 15, FOUR))
    assert reader.core.counters.skipped_sqns == 3
    assert reader.delivered() == [*range(9), *range(12, 16)]


@pytest.mark.parametrize("sign", ["data", "parity"])
def test_a_group_that_goes_on_behind_its_end_is_recovered(sign):
    """What was skipped waits behind an earlier loss, so nobody was told of it yet."""
    reader = reader_of()
    reader.hear(data_train([3], options=(CurrTgsize(4),)))
    assert reader.core.counters.skipped_sqns == 0
    reader.hear(spm_packet(2, 0, 2 * SIZE - 1, DEMAND))
    assert reader.core.counters.skipped_sqns == 4
    reader.hear(data_train([6]) if sign == "data" else parity(0, 0)[0])
    assert reader.core.counters.short_groups_denied == 1
    reader.hear(data_train(range(1, SIZE), kind=T.RDATA))
    assert reader.delivered() == list(range(SIZE))


def test_a_lead_behind_the_end_of_a_group_denies_the_end():
    reader = reader_of()
    reader.hear(data_train([3], options=(CurrTgsize(4),)))
    reader.hear(spm_packet(2, 0, 5, DEMAND))
    reader.hear(data_train([1, 2, 4, 5, 6, 7], kind=T.RDATA))
    assert reader.delivered() == list(range(SIZE))
    assert reader.core.counters.short_groups_denied == 1


def test_a_skip_that_was_told_and_proves_false_is_reported_lost():
    reader = reader_of()
    reader.hear(data_train([1, 2]))
    reader.hear(data_train([3], options=(CurrTgsize(4),)))
    reader._next[TSI] = SIZE
    reader.hear(data_train([SIZE]))
    assert reader.delivered() == [*range(4), SIZE]
    [told] = reader.hear(data_train([5], kind=T.RDATA))
    assert isinstance(told, Notice)
    assert (told.code, "sqns 4 to 7" in told.text) == ("lost-skipped", True)
    assert (reader.core.counters.lost_sqns, reader.core.counters.skipped_sqns) == (4, 4)
    assert reader.hear(data_train([5], kind=T.RDATA)) == []


def test_nobody_says_that_what_came_never_was():
    reader = reader_of()
    reader.hear(data_train([1, 2, 3, 5, 6, 7]))
    reader.hear(parity(0, 0, actual=3)[0])
    reader.hear(data_train([4]))
    assert reader.delivered() == list(range(SIZE))


@pytest.mark.rfc("FEC-24")
def test_parity_group_without_end_requests_single_packets():
    reader = reader_of(fec_hold_ivl=200 * MS)
    reader.hear(data_train([3]))
    reader.wait(199 * MS)
    assert asked(reader) == []
    reader.wait(10 * MS)
    assert asked(reader) == [[1, 2]]


@pytest.mark.rfc("FEC-24")
def test_parity_source_that_closes_groups_gets_no_single_request():
    reader = reader_of(fec_hold_ivl=200 * MS)
    reader.hear(data_train([1, 2, 3, 4], options=()))
    reader.hear(spm_packet(2, 0, 4, DEMAND, CurrTgsize(5)))
    reader._next[TSI] = SIZE
    reader.hear(data_train([SIZE, SIZE + 3]))
    for at in range(10):
        reader.wait(300 * MS)
        reader.hear(spm_packet(3 + at, 0, SIZE + 3, DEMAND))
    assert asked(reader) == []


def test_where_parity_comes_unasked_its_rest_is_waited_for():
    reader = reader_of(BOTH)
    reader.hear(data_train(range(1, SIZE)))
    for one in parity(0, 0, 1, kind=T.ODATA):
        reader.hear(one)  # so two are usual
    reader.hear(data_train([SIZE, *range(SIZE + 2, 2 * SIZE)]))
    reader.wait(100 * MS)
    assert asked(reader) == []
    reader.hear(parity(SIZE, 0, kind=T.ODATA)[0])
    assert reader.delivered() == list(range(2 * SIZE))
    reader.hear(data_train([2 * SIZE, *range(2 * SIZE + 3, 3 * SIZE + 1)]))  # the next group has begun: no more comes
    reader.wait(20 * MS)
    assert asked(reader) == [[(2 * SIZE, 2)]]


def test_parity_not_on_demand_requests_single_packets():
    reader = reader_of(ParityPrm(SIZE, proactive=True))
    reader.hear(data_train([1, 2, 5, 6, 7, 8]))
    reader.wait(20 * MS)
    assert asked(reader) == [[3, 4]]


@pytest.mark.rfc("FEC-31")
def test_parity_recovery_of_short_groups_asks_for_last_sqns_first():
    """The source ends groups early. Three groups lack their ends: one of a packet, one of two, and a full one."""
    reader = reader_of(ParityPrm(SIZE, proactive=True))
    reader.hear(data_train([1], options=(CurrTgsize(2),)))
    reader._next[TSI] = SIZE
    reader.hear(data_train([SIZE]))
    reader.hear(data_train([4 * SIZE]))
    reader.wait(20 * MS)
    assert asked(reader) == [[2 * SIZE - 1, 3 * SIZE - 1, 4 * SIZE - 1]]
    before = reader.now
    reader.hear(parity(SIZE, 0, actual=1)[0])
    reader.hear(parity(2 * SIZE, 0, actual=2)[0])
    reader.wait(0)
    assert asked(reader)[1:] == [[2 * SIZE, 2 * SIZE + 1]]
    reader.hear(data_train([4 * SIZE - 1], kind=T.RDATA))
    reader.wait(0)
    assert asked(reader)[2:] == [list(range(3 * SIZE, 4 * SIZE - 1))]
    assert reader.now == before
    reader._next[TSI] = 2 * SIZE
    reader.hear(data_train([2 * SIZE + 1], kind=T.RDATA))
    reader._next[TSI] = 3 * SIZE
    reader.hear(data_train(range(3 * SIZE, 4 * SIZE - 1), kind=T.RDATA))
    assert reader.next_sqn() == 4 * SIZE + 1
    assert reader.core.counters.lost_sqns == 0
    reader.wait(100 * MS)
    assert reader.core.deadline_ns > reader.now + SECOND


@pytest.mark.rfc("FEC-31")
def test_parity_recovery_whose_probe_is_in_vain_asks_for_the_rest():
    reader = reader_of(ParityPrm(SIZE, proactive=True), nak_ncf_retries=3)
    reader.hear(data_train([1], options=(CurrTgsize(2),)))
    reader._next[TSI] = SIZE
    reader.hear(data_train([SIZE]))
    reader.hear(data_train([2 * SIZE]))
    for at in range(12):
        reader.wait(300 * MS)
        reader.hear(spm_packet(2 + at, 0, 2 * SIZE, ParityPrm(SIZE, proactive=True)))
    probe, rest = [2 * SIZE - 1], list(range(SIZE + 1, 2 * SIZE - 1))
    found = asked(reader)
    tries = found.count(probe)
    assert 1 < tries < len(found)
    assert found == [probe] * tries + [rest] * (len(found) - tries)
    assert set(reader.lost()) == {*probe, *rest}


def test_parity_group_gone_or_unanswered_requests_single_packets():
    reader = reader_of()
    reader.hear(data_train([1, 2, 5, 6, 7, 8], trail=2))
    reader.wait(20 * MS)
    assert asked(reader) == [[3, 4]]
    reader = reader_of(fec_retries=2)
    reader.hear(data_train([1, 2, 5, 6, 7, 8]))
    reader.wait(400 * MS)
    assert asked(reader)[:3] == [[(0, 2)], [(0, 2)], [3, 4]]


def test_losses_that_nobody_repairs_are_reported():
    reader = reader_of(nak_ncf_retries=3)
    reader.hear(data_train([1, 2, 5, 6, 7, 8]))
    for at in range(30):
        reader.wait(300 * MS)
        reader.hear(spm_packet(2 + at, 0, SIZE, DEMAND))
    assert reader.lost() == {3: LossCause.RETRIES, 4: LossCause.RETRIES}
    assert reader.next_sqn() == SIZE + 1


@pytest.mark.rfc("FEC-12")
def test_parity_corrupt_packets_counted_and_single_packets_requested():
    reader = reader_of()
    reader.hear(data_train([1, 2, 5, 6, 7, 8], size=12))
    [good] = groups.encode([run_of(0, SIZE)], 0, SIZE, [0], SIZE)
    for at in range(2):
        bad = attrs.evolve(good, index=at, payload=b"\xff" * 14, is_variable=True)
        reader.hear(Train.of(build_parity(T.RDATA, bad, tsi=TSI, data_port=DATA_PORT, size=SIZE, trail=0)))
    assert reader.core.counters.parity_corrupt == 1
    reader.wait(20 * MS)
    assert asked(reader) == [[3, 4]]
    reader.hear(data_train([3, 4], kind=T.RDATA))
    assert reader.next_sqn() == SIZE + 1


@pytest.mark.rfc("FEC-23")
def test_parity_is_of_no_use_before_an_spm_has_told_of_it():
    reader = Reader(**PATIENT)
    reader.hear(spm_packet(1, 0, -1))
    reader.hear(data_train([0, 1, 2]))
    reader.hear(data_train([4, 5, 6, 7]))
    reader.hear(parity(0, 0)[0])
    assert reader.core.counters.parity_packets_unused == 1
    assert reader.next_sqn() == 3
    reader.hear(spm_packet(2, 0, SIZE - 1, DEMAND))
    reader.hear(data_train([3]))
    assert reader.next_sqn() == SIZE


@pytest.mark.rfc("FEC-02")
def test_another_group_size_later_changes_nothing():
    reader = reader_of()
    reader.hear(spm_packet(2, 0, 0, ParityPrm(64, on_demand=True)))
    reader.hear(data_train([1, 2, 5, 6, 7]))
    reader.wait(20 * MS)
    assert asked(reader) == [[(0, 2)]]


def test_parity_unusable_offer_requests_single_packets(monkeypatch):
    reader = reader_of(ParityPrm(256, on_demand=True))
    reader.hear(data_train([3]))
    reader.wait(20 * MS)
    assert asked(reader) == [[1, 2]]
    monkeypatch.setattr(code, "zfec", None)
    reader = reader_of()
    reader.hear(data_train([3]))
    reader.wait(20 * MS)
    assert asked(reader) == [[1, 2]]


@pytest.mark.rfc("FEC-13")
def test_a_stream_ends_with_its_parity():
    reader = reader_of()
    reader.hear(data_train([1, 2]))
    reader.hear(parity(0, 0, actual=4, marks=(Fin(),))[0])
    assert reader.delivered() == [0, 1, 2, 3]
    reader.wait(SECOND)
    assert reader.closed() is CloseCause.FIN


def test_parity_kept_packets_are_bounded():
    reader = reader_of(fec_groups=4)
    for group in range(SIZE, 40 * SIZE, SIZE):
        reader.hear(data_train(range(group + 2, group + SIZE)))
        reader.hear(parity(group, 0)[0])
    session = next(iter(reader.core.sessions))
    assert len(session.data_path.parity._recovery._stock) == 4
    for group in range(0, 40 * SIZE, SIZE):
        for one in parity(group, *range(2, SIZE + 1)):
            reader.hear(one)
    assert reader.delivered() == list(range(40 * SIZE))
    reader.hear(data_train([40 * SIZE]))
    assert session.window.kept.packets <= SIZE
    assert len(session.data_path.parity._recovery._stock) == 0


def test_a_hole_is_never_reported_and_never_hides_a_loss():
    """Even where neighbours of different causes must be joined to keep the bound."""
    reader = reader_of(takes=False, rxw_gaps=16, nak_ncf_retries=1)
    window = next(iter(reader.core.sessions)).window
    window.give_up([(20, 24)], LossCause.RETRIES)
    window.skip([(24, 32)])
    window.give_up([(32, 33)], LossCause.WINDOW)
    window.next_sqn = 20
    told = window.advance(is_last=True)
    assert told == [Lost(TSI, 20, 4, LossCause.RETRIES), Lost(TSI, 32, 1, LossCause.WINDOW)]
    assert not any(isinstance(one, Deliver) for one in told)


@pytest.mark.parametrize("changes", [{"rxw_bytes": 64 * KIB}, {"rxw_bytes": 64 * KIB, "fec_groups": 8}])
def test_parity_store_bounded_in_octets_keeps_oldest_groups(changes):
    """Seven of eight packets for each of a hundred groups: a tenth of that finds room, and the stream goes on."""
    count, size = 100, 1000
    reader = reader_of(payload=lambda sqn: payload_of(sqn, size if sqn >= SIZE else 12), **changes)
    reader.hear(spm_packet(2, 0, count * SIZE - 1, DEMAND))
    stock = next(iter(reader.core.sessions)).data_path.parity._recovery._stock
    for group in range((count - 1) * SIZE, 0, -SIZE):  # the newest first: they give way
        for one in parity(group, *range(SIZE - 1), size=size):
            reader.hear(one)
            assert stock.octets <= 64 * KIB
    assert reader.core.counters.parity_packets_dropped > count * (SIZE - 1) * 0.8
    assert stock.octets > 48 * KIB
    reader.hear(data_train(range(1, SIZE)))
    for one in parity(SIZE, SIZE - 1, size=size):
        reader.hear(one)
    assert reader.next_sqn() == 2 * SIZE
    for group in range(2 * SIZE, count * SIZE, SIZE):
        reader.hear(data_train(range(group, group + SIZE), size=size, kind=T.RDATA))
    assert reader.next_sqn() == count * SIZE
    assert (stock.octets, len(stock)) == (0, 0)


def test_no_more_parity_of_a_group_is_kept_than_makes_it_whole():
    stock = ParityStore(SIZE, 4, Counters())
    packets = [ParityPacket(SIZE, index, bytes(1000), is_variable=False) for index in range(40)]
    assert [stock.add(one, 64 * KIB) for one in packets] == [True] * SIZE + [False] * (40 - SIZE)
    assert not stock.add(packets[0], 64 * KIB)
    stock.drop_before(SIZE)
    assert stock.octets == SIZE * (1000 + PACKET_OCTETS)
    stock.drop_before(SIZE + 1)
    assert (stock.octets, len(stock)) == (0, 0)


def test_oldest_group_has_room_beside_a_full_window():
    """Data behind a loss fills all memory, which only the repair of that loss frees."""
    stock = ParityStore(SIZE, 4, Counters())
    old, new = (
        [ParityPacket(group, index, bytes(1000), is_variable=False) for index in range(SIZE)] for group in (0, SIZE)
    )
    assert stock.add(new[0], 0)
    assert [stock.add(one, 0) for one in old] == [True] * SIZE
    assert not stock.add(new[1], 0)
    assert (len(stock), stock.count(0)) == (1, SIZE)


def test_full_window_is_freed_by_parity_of_its_oldest_loss():
    size = 1000
    reader = reader_of(payload=lambda sqn: payload_of(sqn, size if sqn >= SIZE else 12), rxw_bytes=64 * KIB)
    reader.hear(data_train(range(1, SIZE)))
    session = next(iter(reader.core.sessions))
    sqn = SIZE + 1
    while session.window.held_octets < 63 * KIB:
        reader.hear(data_train([sqn], size=size))
        sqn += 1
    [one] = parity(SIZE, 0, size=size)
    reader.hear(one)
    assert reader.next_sqn() == sqn
