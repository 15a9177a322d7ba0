"""NAK_BO_IVL: tuned by parents, advertised on SPMs, NCFs and POLLs, learnt by children (RFC 15.2)."""

from __future__ import annotations

import pytest

from pgm.core.element.setup import ElementSetup
from pgm.core.polling.back_off import AdvertisedBackOff, LearntBackOff
from pgm.core.polling.children import Children
from pgm.core.polling.nak_counts import NakCounts, NakTally
from pgm.sim.trees import TreeBuilder
from pgm.units import MICROSECOND, SECOND
from pgm.wire.control_packets import Poll
from pgm.wire.formats import PacketType
from pgm.wire.options import NakBoIvl, NakBoRng, find
from tests.memory import kept_by
from tests.reference import DATA_PORT, TSI
from tests.rfc.bench import LAN, SOURCE, UP, A, B, Bench
from tests.sim.support.worlds import Tap, finish, is_a, lossy, make_world, streams, traffic
from tests.sim.support.worlds import parameters as lan_parameters
from tests.unit.core.makers import (
    BY_UNICAST,
    GROUP,
    MS,
    OWN,
    PEER,
    SEGMENT,
    data_train,
    evolve,
    nak_packet,
    ncf_packet,
    parameters,
    payload_of,
    sent_control,
    session_context,
    spm_packet,
    train_of,
)
from tests.unit.core.reader import Reader
from tests.unit.core.source import sources
from tests.unit.core.source.sources import START, all_effects, receive, run

T = PacketType
DEFAULT, LOW, HIGH = 16 * MS, 2 * MS, 128 * MS
TUNED = {
    "nak_bo_tuning": "duplicates",
    "nak_bo_ivl_default": DEFAULT,
    "nak_bo_ivl_min": LOW,
    "nak_bo_ivl_max": HIGH,
    "nak_probe_num": 4,
}
CLEAN, DUPLICATE, FURTHER = NakTally(True, False, 0), NakTally(False, True, 1), NakTally(False, False, 2)


def intervals_in(effects, kind):
    """Return the OPT_NAK_BO_IVL of each packet of a type."""
    return [find(item.options, NakBoIvl) for item in sent_control(effects, kind)]


# Counting


@pytest.mark.rfc("IMP-02")
def test_naks_are_counted_while_their_repair_state_lives():
    counts = NakCounts(SECOND, 100)
    assert counts.note([(5, 8)], 0) == NakTally(True, False, 0)
    assert counts.note([(6, 7)], 1) == NakTally(False, True, 1)
    assert counts.note([(6, 8)], 2) == NakTally(False, True, 2)  # a first NAK for 7, and a duplicate for 6
    assert counts.note([(6, 7)], 3) == NakTally(False, False, 3)
    counts.discard(6, 7)
    assert counts.note([(6, 7)], 4) == NakTally(True, False, 0)
    assert counts.note([(5, 6)], SECOND) == NakTally(True, False, 0)  # the state has expired
    assert counts.note([(7, 9)], SECOND - 1 + 4) == NakTally(True, False, 0)


@pytest.mark.rfc("SEC-01")
def test_counts_take_bounded_memory():
    counts = NakCounts(3600 * SECOND, 64)
    for sqn in range(0, 10_000, 2):
        counts.note([(sqn, sqn + 1)], sqn)
    assert len(kept_by(counts)) < 1500


# Tuning


@pytest.mark.rfc("IMP-03", "IMP-05")
def test_the_first_duplicate_doubles_and_further_ones_do_not():
    back_off = AdvertisedBackOff(parameters(**TUNED))
    assert back_off.ivl_ns == DEFAULT
    back_off.note(CLEAN)
    back_off.note(DUPLICATE)
    assert back_off.ivl_ns == 2 * DEFAULT
    for _ in range(10):
        back_off.note(FURTHER)
    assert back_off.ivl_ns == 2 * DEFAULT
    for _ in range(10):
        back_off.note(DUPLICATE)
    assert back_off.ivl_ns == HIGH


@pytest.mark.rfc("IMP-04", "IMP-05")
def test_back_off_halves_after_repairs_without_duplicates():
    """The count restarts with each change and with each duplicate."""
    back_off = AdvertisedBackOff(parameters(**TUNED))
    values = []
    for _ in range(20):
        back_off.note(CLEAN)
        values.append(back_off.ivl_ns)
    assert values == [DEFAULT] * 3 + [DEFAULT // 2] * 4 + [DEFAULT // 4] * 4 + [LOW] * 9
    back_off = AdvertisedBackOff(parameters(**TUNED))
    for _ in range(10):
        for tally in (CLEAN, CLEAN, CLEAN, DUPLICATE):
            back_off.note(tally)
    assert back_off.ivl_ns == HIGH


@pytest.mark.rfc("IMP-10")
@pytest.mark.parametrize(("grown", "is_asked", "expected"), [(25, False, 2), (15, False, 1), (25, True, 1)])
def test_back_off_doubles_with_the_polled_population(grown, is_asked, expected):
    """Duplicates would reveal the growth too late, because all children would ask at once."""
    back_off = AdvertisedBackOff(parameters(**TUNED))
    back_off.counted(10, 1)
    if is_asked:
        back_off.note(CLEAN)
    back_off.counted(grown, 2)
    assert back_off.ivl_ns == expected * DEFAULT
    assert back_off.options == (NakBoIvl(ivl_us=expected * DEFAULT // MICROSECOND, ivl_sqn=0),)


@pytest.mark.rfc("POLL-17")
def test_back_off_from_polls_follows_count_and_names_the_poll():
    back_off = AdvertisedBackOff(parameters(**TUNED | {"nak_bo_tuning": "polls"}))
    assert back_off.options == ()  # no poll has ended yet
    back_off.counted(20, 7)
    assert back_off.options == (NakBoIvl(ivl_us=20 * LOW // MICROSECOND, ivl_sqn=7),)
    back_off.note(DUPLICATE)
    assert back_off.ivl_ns == 20 * LOW
    back_off.counted(10_000, 8)
    assert back_off.options == (NakBoIvl(ivl_us=HIGH // MICROSECOND, ivl_sqn=8),)
    back_off.counted(0, 9)
    assert back_off.ivl_ns == LOW


@pytest.mark.rfc("IMP-06")
def test_back_off_untuned_is_not_advertised():
    """By default the interval of the topology holds, so foreign receivers get no unexpected option."""
    back_off = AdvertisedBackOff(parameters())
    back_off.note(DUPLICATE)
    back_off.counted(100, 3)
    assert back_off.options == back_off.range_options == ()


# Sources


def source(**changes):
    core = sources.source(**TUNED | changes)
    core.submit([payload_of(sqn) for sqn in range(50)])
    run(core, START + 200 * MS)
    return core


@pytest.mark.rfc("IMP-01", "IMP-02", "IMP-03", "IMP-06", "IMP-08")
def test_a_source_advertises_on_ncfs_and_spms_and_its_bounds_on_spms():
    core = source(rdata_hold_ivl=20 * MS, ncf_ivl=0)
    now = START + 300 * MS

    def nak(sqn):
        return receive(core, sources.nak(sqn), now)

    assert intervals_in(nak(5), T.NCF) == [NakBoIvl(DEFAULT // MICROSECOND, 0)]
    assert intervals_in(nak(5), T.NCF) == [NakBoIvl(2 * DEFAULT // MICROSECOND, 0)]
    assert intervals_in(nak(5), T.NCF) == [NakBoIvl(2 * DEFAULT // MICROSECOND, 0)]
    spms = sent_control(all_effects(run(core, now + SECOND)), T.SPM)
    assert {find(spm.options, NakBoIvl) for spm in spms} == {NakBoIvl(2 * DEFAULT // MICROSECOND, 0)}
    [bounds] = {find(spm.options, NakBoRng) for spm in spms}
    assert (bounds.max_us, bounds.min_us) == (HIGH // MICROSECOND, LOW // MICROSECOND)


@pytest.mark.rfc("IMP-06", "W-33", "SRC-44")
def test_an_ncf_keeps_its_list_beside_the_option():
    core = source(ncf_ivl=0)
    effects = core.receive(
        train_of(nak_packet(5, 7, 9, source_nla=OWN, group_nla=GROUP)), BY_UNICAST, PEER, START + SECOND
    )
    [ncf] = sent_control(effects, T.NCF)
    assert ncf.sqns == (5, 7, 9)
    assert find(ncf.options, NakBoIvl) == NakBoIvl(DEFAULT // MICROSECOND, 0)


@pytest.mark.rfc("POLL-17", "IMP-10")
def test_back_off_census_is_named_on_spms_ncfs_and_polls():
    """From the first complete poll on, the option carries the POLL_SQN of that poll, not of the one in flight."""
    children = Children(
        session_context(
            parameters(
                **TUNED | {"nak_bo_tuning": "polls", "poll_ivl": SECOND, "poll_bo_ivl": 100 * MS, "poll_first_bits": 0}
            )
        ),
        SEGMENT,
        lasts_ns=SECOND,
    )
    children.begin(START)
    told = []
    now = START
    while len(told) < 4:
        now = children.deadline_ns
        for poll in sent_control(children.handle_deadline(now), T.POLL):
            told.append((poll.poll_sqn, find(poll.options, NakBoIvl)))
    assert told == [(1, None)] + [(sqn, NakBoIvl(LOW // MICROSECOND, sqn - 1)) for sqn in (2, 3, 4)]


# Elements


@pytest.mark.rfc("IMP-01", "IMP-09", "NE-34", "IMP-06")
@pytest.mark.parametrize("kind", ["aggregator", "repairer"])
def test_back_off_element_advertises_its_own_value_per_segment(kind):
    node = Bench(kind, ElementSetup(UP, (A, B), parents=(SOURCE,)), **TUNED | {"rdata_hold_ivl": 20 * MS}).begin()
    node.nak(A, 5)
    node.nak(A, 5)
    node.nak(B, 6)
    told = [(send.segment.name, find(item.options, NakBoIvl).ivl_us) for _, send, item in node.sent(T.NCF)]
    us = DEFAULT // MICROSECOND
    assert told == [("a", us), ("a", 2 * us), ("b", us)]
    node.log.clear()
    node.hear(spm_packet(2, 0, 19, NakBoIvl(999, 3), NakBoRng(50_000, 1_000)), UP, SOURCE)
    spms = {send.segment.name: item for _, send, item in node.sent(T.SPM)}
    assert {name: find(spm.options, NakBoIvl) for name, spm in spms.items()} == {
        "a": NakBoIvl(2 * us, 0),
        "b": NakBoIvl(us, 0),
    }
    # The source's bounds hold for the whole session.
    assert {find(spm.options, NakBoRng) for spm in spms.values()} == {NakBoRng(50_000, 1_000)}


@pytest.mark.rfc("IMP-09", "NE-34")
@pytest.mark.parametrize("kind", ["aggregator", "repairer"])
def test_an_element_that_tunes_nothing_takes_its_parents_value_out(kind):
    node = Bench(kind).begin()
    node.hear(spm_packet(2, 0, 19, NakBoIvl(999, 3)), UP, SOURCE)
    assert [find(item.options, NakBoIvl) for _, _, item in node.sent(T.SPM)] == [None] * 3
    node.nak(A, 5)
    assert [find(item.options, NakBoIvl) for _, _, item in node.sent(T.NCF)] == [None]


@pytest.mark.rfc("IMP-02")
def test_back_off_element_repair_ends_the_measurement():
    """A NAK after the RDATA starts a new repair and is no duplicate."""
    node = Bench(**TUNED).begin()
    for _ in range(3):
        node.nak(A, 5)
        node.ncf(5)
        node.rdata(5)
    told = [find(item.options, NakBoIvl).ivl_us for _, _, item in node.sent(T.NCF)]
    assert told == [DEFAULT // MICROSECOND] * 3


@pytest.mark.rfc("IMP-06")
def test_back_off_is_on_ncfs_for_losses_of_the_relay():
    node = Bench(**TUNED).begin()
    node.hear(data_train([22]), UP, SOURCE)
    node.wait(10 * MS)
    ncfs = node.sent(T.NCF)
    assert {find(item.options, NakBoIvl) for _, _, item in ncfs} == {NakBoIvl(DEFAULT // MICROSECOND, 0)}
    assert [item.sqns for _, _, item in ncfs] == [(20, 21)] * 3


# Children


def poll(sqn, number=0, *options, state=SOURCE):
    return Poll(
        tsi=TSI,
        data_port=DATA_PORT,
        poll_sqn=sqn,
        poll_round=number,
        sub_type=0,
        path_nla=state,
        bo_ivl_us=1000,
        rand=0,
        mask=0xFFFFFFFF,
        options=options,
    )


def joined(**changes):
    reader = Reader(reorder_ivl=0, **{"nak_bo_ivl": 10 * MS, "nak_bo_ivl_max": 10 * SECOND} | changes)
    reader.hear(spm_packet(1, 0, -1))
    reader.hear(data_train([0]))
    return reader


def longest_back_off(told, seeds=60):
    """Return the longest wait before a NAK, over many receivers that got these packets."""
    longest = 0
    for seed in range(seeds):
        reader = joined(seed=seed)
        for one in told:
            reader.hear(one)
        begun = reader.now
        reader.hear(data_train([2]))
        reader.wait(10 * SECOND)
        asked = [at for at, send in reader.sent if sent_control([send], T.NAK)]
        longest = max(longest, asked[0] - begun)
    return longest


@pytest.mark.rfc("IMP-06", "IMP-07")
@pytest.mark.parametrize("carrier", ["spm", "ncf", "poll"])
def test_back_off_receiver_uses_the_advertised_interval(carrier):
    """The interval applies at once if it does not come from a poll."""
    option = NakBoIvl(ivl_us=200_000, ivl_sqn=0)
    told = {
        "spm": spm_packet(2, 0, 0, option),
        "ncf": evolve(ncf_packet(0), options=(option,)),
        "poll": poll(4, 0, option),
    }[carrier]
    assert 150 * MS < longest_back_off([told]) <= 200 * MS
    assert longest_back_off([]) <= 10 * MS


@pytest.mark.rfc("IMP-07")
def test_back_off_census_result_is_for_its_participants():
    """Participants have heard round 0 of that poll or of an earlier one.

    A later receiver neither uses the interval nor sends a NAK until another poll.
    """
    begun = [poll(7), spm_packet(2, 0, 0, NakBoIvl(200_000, 7))]
    assert 150 * MS < longest_back_off(begun) <= 200 * MS
    earlier = [poll(5), spm_packet(2, 0, 0, NakBoIvl(200_000, 7))]
    assert 150 * MS < longest_back_off(earlier) <= 200 * MS
    reader = joined()
    reader.hear(poll(7, 1))  # a later round is not round 0
    reader.hear(spm_packet(2, 0, 0, NakBoIvl(200_000, 7)))
    reader.hear(data_train([2]))
    for number in range(3, 8):
        reader.hear(spm_packet(number, 0, 2, NakBoIvl(200_000, 7)), after=500 * MS)
    assert reader.naks() == []
    assert reader.lost() == {}
    reader.hear(poll(8))
    reader.hear(spm_packet(9, 0, 2, NakBoIvl(200_000, 7)), after=500 * MS)
    assert reader.naks() == []  # that poll has not ended yet
    reader.hear(spm_packet(10, 0, 2, NakBoIvl(300_000, 8)))
    reader.wait(300 * MS)
    assert reader.asked() == {1}


@pytest.mark.rfc("IMP-07")
def test_back_off_receiver_stops_waiting_with_a_regular_spm():
    """A new parent does not advertise by polls.

    Its regular SPM lets the receiver send NAKs.
    """
    reader = joined()
    reader.hear(spm_packet(2, 0, 0, NakBoIvl(200_000, 7)))
    reader.hear(data_train([2]))
    reader.wait(SECOND)
    assert reader.naks() == []
    reader.hear(spm_packet(3, 0, 2))
    reader.wait(SECOND)
    assert reader.asked() == {1}


@pytest.mark.rfc("IMP-07")
def test_back_off_poll_numbers_are_circular():
    """POLL_SQN <= NAK_BO_IVL_SQN holds within half the circular space."""
    reader = joined()
    reader.hear(poll(0xFFFFFFFE))
    reader.hear(spm_packet(2, 0, 0, NakBoIvl(200_000, 3)))
    assert reader.core.sessions.get(TSI).recovery.nak_bo_ivl == 200 * MS
    reader = joined()
    reader.hear(poll(3))
    reader.hear(spm_packet(2, 0, 0, NakBoIvl(200_000, 0xFFFFFFFE)))
    assert reader.core.sessions.get(TSI).recovery.nak_bo_ivl == 10 * MS
    assert not reader.core.sessions.get(TSI).recovery.may_ask


@pytest.mark.rfc("IMP-08", "IMP-05")
def test_back_off_source_range_bounds_the_interval():
    """The maximum comes first, then the minimum; invalid bounds change nothing."""
    back_off = LearntBackOff(parameters(nak_bo_ivl=10 * MS, nak_bo_ivl_max=500 * MS))
    back_off.on_interval(NakBoIvl(ivl_us=2_000_000, ivl_sqn=0))
    assert back_off.ivl_ns == 500 * MS  # the receiver's own bounds, until others arrive
    back_off.on_range(NakBoRng(max_us=300_000, min_us=20_000))
    assert back_off.ivl_ns == 300 * MS
    back_off.on_interval(NakBoIvl(ivl_us=1, ivl_sqn=0))
    assert back_off.ivl_ns == 20 * MS
    for nonsense in (NakBoRng(max_us=1, min_us=2), NakBoRng(max_us=0, min_us=0)):
        back_off.on_range(nonsense)
        assert back_off.ivl_ns == 20 * MS
    back_off.on_range(NakBoRng(max_us=0xFFFFFFFF, min_us=1000))
    back_off.on_interval(NakBoIvl(ivl_us=0xFFFFFFFF, ivl_sqn=0))
    assert back_off.ivl_ns == 60 * SECOND  # no packet sets a wait above the limit of the parameter
    back_off.on_range(NakBoRng(max_us=0xFFFFFFFF, min_us=0xFFFFFFFF))
    assert back_off.ivl_ns == 60 * SECOND
    reader = joined()
    reader.hear(spm_packet(2, 0, 0, NakBoRng(max_us=50_000, min_us=40_000), NakBoIvl(1, 0)))
    assert reader.core.sessions.get(TSI).recovery.nak_bo_ivl == 40 * MS


@pytest.mark.rfc("IMP-06")
def test_back_off_repairer_uses_the_advertised_interval():
    longest = 0
    for seed in range(40):
        node = Bench("repairer", ElementSetup(LAN, (LAN,), parents=(SOURCE,)), seed=seed, nak_bo_ivl=10 * MS)
        node.hear(spm_packet(1, 0, -1, NakBoIvl(200_000, 0)), LAN, SOURCE)
        node.hear(data_train([0, 2]), LAN, SOURCE)
        begun = node.now
        node.wait(SECOND)
        longest = max(longest, node.times(T.NAK)[0] - begun)
    assert 150 * MS < longest <= 200 * MS


# The tree


@pytest.mark.rfc("IMP-03", "IMP-04", "IMP-06", "IMP-09", "NE-34")
def test_back_off_tuning_reduces_naks_of_a_floor():
    """Sixty receivers with a long way to their relay lose the same packets.

    Tuning reduces their NAKs to less than half.
    """

    def naks(mode):
        changes = {
            "nak_bo_ivl": 2 * MS,
            "nak_bo_ivl_default": 2 * MS,
            "nak_bo_ivl_max": 500 * MS,
            "nak_bo_tuning": mode,
            "nak_rpt_ivl": 200 * MS,
        }
        tree = TreeBuilder(lan_parameters(**changes))
        tree.source("source", "core")
        tree.aggregator("relay", "core", "floor", parents=("source",))
        for index in range(60):
            tree.receiver(f"receiver-{index}", "floor", "relay")
        ncfs = Tap(is_a(T.NCF))
        # A loss of the relay would be a loss of all nodes below, confirmed at once. Therefore only the way down has
        # losses.
        wirings = {"receiver": lossy(0, delay=5 * MS), "relay": lossy(0)}
        world = make_world(tree, traffic(400, rate=100, burst=1, close_at_ns=6 * SECOND), wirings=wirings, more=(ncfs,))
        floor = [node.attachments[0] for node in world.receivers]
        for step in range(40):
            at = SECOND + 50 * MS + step * 100 * MS
            for one in floor:
                world.at(at, lambda one=one: one.deafen(True))
                world.at(at + 9 * MS, lambda one=one: one.deafen(False))
        finish(world)
        assert all(one.is_complete for one in streams(world))
        return sum(node.total("nak_packets") for node in world.receivers), ncfs

    eager, _ = naks("off")
    calm, ncfs = naks("duplicates")
    assert calm < eager / 2
    told = [find(item.options, NakBoIvl).ivl_us for _, name, *_, item in ncfs.seen if name == "relay"]
    assert max(told) > 10 * told[0]
