"""Failure of multicast to the nodes below: unicast NCFs, silence, and recovery (RFC 15.3).

Checklist 14, test 24.
"""

from __future__ import annotations

import itertools

import attrs
import pytest

from pgm.core.element.setup import ElementSetup
from pgm.core.receiver.setup import ReceiverSetup
from pgm.core.segment import Channel
from pgm.sim.faults import Faults
from pgm.sim.trees import TreeBuilder
from pgm.units import SECOND
from pgm.wire.control_packets import encode
from pgm.wire.formats import NO_WINDOW_LEAD, NO_WINDOW_TRAIL, PacketType
from pgm.wire.options import NbrUnreach, PathNla, find
from tests.rfc.bench import BELOW, SOURCE, UP, A, B, Bench
from tests.sim.support.worlds import Tap, finish, is_a, make_world, streams, traffic
from tests.sim.support.worlds import parameters as lan_parameters
from tests.unit.core.makers import (
    BY_UNICAST,
    MS,
    OWN,
    PARENT,
    PEER,
    SEGMENT,
    data_train,
    evolve,
    ncf_packet,
    parameters,
    payload_of,
    sent_control,
    sent_items,
    spm_packet,
)
from tests.unit.core.reader import Reader
from tests.unit.core.source import sources
from tests.unit.core.source.sources import START, receive

T = PacketType
STRANGER = "10.0.0.66"
MOST = 3


def unreachable_ncf(*sqns, state=SOURCE):
    packet = ncf_packet(*sqns)
    return evolve(packet, options=(*packet.options, NbrUnreach(), PathNla(path_nla=state)))


def says_unreachable(packet):
    return find(packet.options, NbrUnreach) is not None


# The parent that detects the failure


def source(**changes):
    settings = {"dup_nak_max": MOST, "ncf_ivl": 0, "rdata_hold_ivl": SECOND, "ihb_max": 60 * SECOND}
    core = sources.source(**settings | changes)
    core.submit([payload_of(sqn) for sqn in range(20)])
    run(core, START + 100 * MS)
    return core


def run(core, until):
    return [(now, send) for now, effects in sources.run(core, until) for send in effects]


def nak(core, sqn, now, peer=PEER):
    return list(receive(core, sources.nak(sqn), now, peer=peer))


@pytest.mark.rfc("IMP-20", "IMP-21")
def test_unreachable_source_confirms_repeated_naks_by_unicast():
    """After DUP_NAK_MAX duplicates, each NAK is confirmed to its sender by unicast, and an SPM goes at once."""
    core, now = source(), START + 200 * MS
    for _ in range(MOST):
        [send] = nak(core, 5, now)
        assert send.to is None
        assert not says_unreachable(sent_items([send])[0])
    unicast, spm = nak(core, 5, now, peer="10.0.0.77")
    assert unicast.to == "10.0.0.77"
    [ncf] = sent_items([unicast])
    assert says_unreachable(ncf)
    assert find(ncf.options, PathNla).path_nla == OWN
    assert ncf.sqns == (5,)
    [regular] = sent_items([spm])
    assert (regular.type, spm.to) == (T.SPM, None)
    assert not says_unreachable(regular)
    assert core.counters.children_unreachable == 1
    # This holds for any packet from then on, without another SPM.
    [other] = nak(core, 9, now, peer="10.0.0.78")
    assert other.to == "10.0.0.78"


@pytest.mark.rfc("IMP-22")
def test_a_source_tries_multicast_again_with_its_next_spm():
    core, now = source(), START + 200 * MS
    for _ in range(MOST + 1):
        nak(core, 5, now)
    log = run(core, now + SECOND)
    assert sent_control([send for _, send in log], T.SPM)
    [send] = nak(core, 12, now + SECOND)
    assert send.to is None


@pytest.mark.rfc("IMP-20")
def test_unreachable_counts_duplicates_per_packet():
    """By default, duplicates of one packet have no effect either."""
    core, now = source(), START + 200 * MS
    for sqn in range(20):
        for _ in range(MOST):
            assert all(send.to is None for send in nak(core, sqn, now))
    core = source(dup_nak_max=0)
    for _ in range(100):
        assert all(send.to is None for send in nak(core, 5, now))
    assert parameters().dup_nak_max == 0


@pytest.mark.rfc("IMP-20", "IMP-21", "IMP-22")
@pytest.mark.parametrize("kind", ["aggregator", "repairer"])
def test_unreachable_element_limits_it_to_one_segment(kind):
    node = Bench(kind, ElementSetup(UP, (A, B), parents=(SOURCE,)), dup_nak_max=MOST, rdata_ignore_ivl=SECOND).begin()

    def confirmations():
        found = [(send.segment.name, send.to, says_unreachable(item)) for _, send, item in node.sent(T.NCF)]
        node.log.clear()
        return found

    for _ in range(MOST):
        node.nak(A, 5)
    assert confirmations() == [("a", None, False)] * MOST
    node.nak(A, 5)
    node.nak(A, 6)
    node.nak(B, 5)
    assert confirmations() == [("a", BELOW[A.index], True)] * 2 + [("b", None, False)]
    node.hear(spm_packet(1, 0, 19), UP, SOURCE)  # not in sequence, so without effect
    node.nak(A, 7)
    assert confirmations() == [("a", BELOW[A.index], True)]
    node.hear(spm_packet(2, 0, 19), UP, SOURCE)
    node.log.clear()
    node.nak(A, 8)
    assert confirmations() == [("a", None, False)]


@pytest.mark.rfc("IMP-21")
def test_unreachable_path_is_the_address_on_the_segment():
    node = Bench(setup=ElementSetup(UP, (A, B), parents=(SOURCE,)), dup_nak_max=1).begin()
    for segment in (A, B):
        node.nak(segment, 5)
        node.nak(segment, 5)
    named = {find(item.options, PathNla).path_nla for _, _, item in node.sent(T.NCF) if says_unreachable(item)}
    assert named == {A.address, B.address}


# The element that gets OPT_NBR_UNREACH


def notice_by_ncf(state=SOURCE):
    return unreachable_ncf(5, state=state), False


def notice_by_spm(state=SOURCE, spm_sqn=2, trail=NO_WINDOW_TRAIL, lead=NO_WINDOW_LEAD):
    return spm_packet(spm_sqn, trail, lead, NbrUnreach(), path_nla=state), True


@pytest.mark.rfc("IMP-23", "IMP-24", "IMP-25", "IMP-27", "NE-40")
@pytest.mark.parametrize("told", [notice_by_ncf(), notice_by_spm()], ids=["by an NCF", "by an SPM"])
def test_an_aggregator_stops_asking_and_tells_those_below(told):
    """The SPM repeats the last SPM_SQN with the element's own path.

    Its window edges are harmless to other implementations.
    """
    packet, is_group = told
    node = Bench(setup=ElementSetup(UP, (A, B), parents=(SOURCE,)), ihb_min=50 * MS).begin()
    node.hear(spm_packet(2, 0, 19), UP, SOURCE)
    node.nak(A, 5)
    node.log.clear()
    node.hear(packet, UP, SOURCE, is_group=is_group)
    spms = node.sent(T.SPM)
    assert [(send.segment, send.to) for _, send, _ in spms] == [(A, None), (B, None)]
    for _, send, spm in spms:
        assert says_unreachable(spm)
        assert (spm.spm_sqn, spm.path_nla) == (2, send.segment.address)
        assert (spm.trail, spm.lead) == (0, 19)  # 0 and 0x80000000 hang other implementations (INT-Q11)
    node.log.clear()
    node.wait(5 * SECOND)  # the pending NAK is not repeated
    node.nak(A, 6)
    node.nak(B, 7)
    assert node.sent(T.NAK) == []
    assert [name for name, _ in node.where(T.NCF)] == [
        "a",
        "b",
    ]  # still confirmed, because unconfirmed receivers would ask more
    assert {says_unreachable(spm) for _, _, spm in node.sent(T.SPM)} == {True}
    node.log.clear()
    node.hear(spm_packet(3, 0, 19), UP, SOURCE)
    node.nak(A, 6)
    assert node.where(T.NAK) == [("core", (6,))]


@pytest.mark.rfc("IMP-23", "IMP-25")
@pytest.mark.parametrize(
    "told",
    [
        notice_by_ncf(STRANGER),
        (evolve(ncf_packet(5), options=(NbrUnreach(),)), False),
        notice_by_spm(STRANGER),
        notice_by_spm(spm_sqn=0),
    ],
    ids=["ncf of a stranger", "ncf of nobody", "spm of a stranger", "an older spm"],
)
@pytest.mark.parametrize("kind", ["aggregator", "repairer"])
def test_an_element_believes_its_current_parent_alone(told, kind):
    node = Bench(kind, ElementSetup(UP, (A, B), parents=(SOURCE,))).begin()
    node.hear(data_train([21]), UP, SOURCE)
    node.log.clear()
    packet, is_group = told
    node.hear(packet, UP, STRANGER, is_group=is_group)
    assert node.sent(T.SPM) == []
    node.nak(A, 20)
    node.wait(10 * MS)
    assert node.where(T.NAK)[0] == ("core", (20,))


@pytest.mark.rfc("IMP-24")
def test_unreachable_notice_repeats_on_naks_at_a_limited_rate():
    node = Bench(setup=ElementSetup(UP, (A, B), parents=(SOURCE,)), ihb_min=50 * MS).begin()
    node.hear(unreachable_ncf(5), UP, SOURCE, is_group=False)
    for step in range(100):
        node.nak(A, step % 20, after=5 * MS)
    times = [at for at, send, _ in node.sent(T.SPM) if send.segment is A]
    assert 9 <= len(times) <= 11
    assert all(later - sooner >= 50 * MS for sooner, later in itertools.pairwise(times))


@pytest.mark.rfc("IMP-23", "IMP-24", "IMP-26")
@pytest.mark.parametrize("told", [notice_by_ncf(), notice_by_spm()], ids=["by an NCF", "by an SPM"])
def test_unreachable_repairer_serves_its_cache_and_asks_nothing(told):
    node = Bench("repairer", ElementSetup(UP, (A, B), parents=(SOURCE,)), nak_bo_ivl=10 * MS).begin(spm_sqn=2)
    packet, is_group = told
    node.hear(packet, UP, SOURCE, is_group=is_group)
    assert [says_unreachable(item) for _, _, item in node.sent(T.SPM)] == [True, True]
    node.hear(data_train([21]), UP, SOURCE)
    node.nak(A, 20)
    node.nak(A, 5)
    node.wait(5 * SECOND)
    assert node.sent(T.NAK) == []
    assert node.where(T.RDATA) == [("a", (5,))]
    node.hear(spm_packet(3, 0, 21), UP, SOURCE)
    node.wait(20 * MS)
    assert node.where(T.NAK) == [("core", (20,))]


# The receiver


def joined(**changes):
    reader = Reader(ReceiverSetup(SEGMENT), nak_bo_ivl=10 * MS, reorder_ivl=MS, **changes)
    reader.hear(spm_packet(5, 0, -1))
    reader.hear(data_train([0]))
    return reader


@pytest.mark.rfc("RCV-52", "IMP-26", "IMP-27")
@pytest.mark.parametrize("carrier", ["ncf", "spm"])
def test_a_receiver_is_silent_until_a_regular_spm(carrier):
    """Losses in between wait, and are asked for after a back-off.

    The window edges of an SPM with OPT_NBR_UNREACH are ignored.
    """
    reader = joined()
    reader.hear(data_train([2]))
    if carrier == "ncf":
        reader.hear(unreachable_ncf(1))
    else:
        reader.hear(spm_packet(5, 77, 4000, NbrUnreach()))
    reader.hear(data_train([4]))
    for _ in range(20):
        reader.hear(data_train([0]), after=100 * MS)
    assert reader.naks() == []
    assert reader.lost() == {}
    assert reader.core.status(reader.now)[0].lead == 4
    reader.hear(spm_packet(5, 0, 4))  # the SPM_SQN of the last regular SPM, so not newer and without effect
    reader.wait(SECOND)
    assert reader.naks() == []
    reader.hear(spm_packet(6, 0, 4))
    begun = reader.now
    reader.wait(10 * MS)
    assert reader.asked() == {1, 3}
    assert all(at > begun for at, send in reader.sent if sent_control([send], T.NAK))


@pytest.mark.rfc("RCV-52", "IMP-26")
@pytest.mark.parametrize(
    "packet",
    [
        unreachable_ncf(1, state=STRANGER),
        evolve(ncf_packet(1), options=(NbrUnreach(),)),
        spm_packet(5, 0, 2, NbrUnreach(), path_nla=STRANGER),
        spm_packet(6, 0, 2, NbrUnreach(), path_nla=STRANGER),
        spm_packet(4, 0, 2, NbrUnreach()),
    ],
    ids=["ncf of a stranger", "ncf of nobody", "spm of a stranger", "newer spm of a stranger", "an older spm"],
)
def test_a_receiver_believes_its_current_parent_alone(packet):
    reader = joined()
    reader.hear(data_train([2]))
    reader.hear(packet, peer=STRANGER)
    reader.wait(20 * MS)
    assert reader.naks() == [[1]]


@pytest.mark.rfc("RCV-53", "IMP-26")
def test_a_unicast_ncf_is_passed_on_to_the_subnet_once():
    """The copy has a hop limit of 1 and the same octets.

    A multicast NCF is not copied, nor a unicast NCF of another parent.
    """
    reader = joined()
    reader.hear(data_train([2]))
    packet = unreachable_ncf(1)
    effects = reader.hear(packet, channel=BY_UNICAST)
    [copy] = [send for send in effects if sent_items([send])]
    assert (copy.to, copy.hops, bytes(copy.octets)) == (None, 1, encode(packet))
    assert reader.hear(packet) == []
    assert reader.hear(unreachable_ncf(1, state=STRANGER), channel=BY_UNICAST) == []
    assert reader.hear(ncf_packet(1), channel=BY_UNICAST) == []
    leg = attrs.evolve(SEGMENT, peers=(PARENT, PEER))
    assert reader.hear(packet, channel=Channel(leg, False)) == []  # every packet comes by unicast on this segment


# The tree


@pytest.mark.rfc("IMP-20", "IMP-21", "IMP-22", "RCV-52", "RCV-53")
def test_unreachable_floor_falls_silent_and_recovers():
    """The relay's multicast is lost for two seconds, and forty receivers would repeat their NAKs.

    The relay's unicast reaches one receiver, which informs the others. The next SPM that arrives restarts the NAKs.
    """

    def run_tree(most):
        settings = {"dup_nak_max": most, "nak_rpt_ivl": 50 * MS, "nak_ncf_retries": 500, "stall_ivl": 8 * SECOND}
        tree = TreeBuilder(lan_parameters(**settings, ambient_spm_ivl=500 * MS, reorder_ivl=2 * MS))
        tree.source("source", "core")
        tree.aggregator("relay", "core", "floor", parents=("source",))
        for index in range(40):
            tree.receiver(f"receiver-{index}", "floor", "relay")
        naks = Tap(is_a(T.NAK))
        world = make_world(tree, traffic(3000, rate=1000, close_at_ns=6 * SECOND), more=(naks,))
        deaf = _DeafToMulticast(world, "floor", "relay", 1496 * MS, 3500 * MS)
        # A burst just before, so that every receiver has a loss.
        Faults(world).deafen([node.name for node in world.receivers], 1470 * MS, 22 * MS)
        finish(world)
        assert all(one.is_complete for one in streams(world))
        assert deaf.dropped > 0
        asked = [at for at, name, *_ in naks.seen if name.startswith("receiver") and 1500 * MS < at < 3500 * MS]
        return len(asked), world

    storm, _ = run_tree(0)
    calm, world = run_tree(4)
    assert calm < storm / 5
    assert world.nodes["relay"].total("children_unreachable") >= 1
    assert sum(node.total("neighbour_unreachable") for node in world.receivers) >= 40


class _DeafToMulticast:
    """Impairment that drops a node's multicast on a segment for a while.

    Multicast of other nodes passes.
    """

    def __init__(self, world, segment, sender, from_ns, until_ns):
        self.dropped = 0
        network, inner = world.network, world.network.leave

        def leave(attachment, to, train, now_ns):
            is_silenced = attachment.segment.name == segment and attachment.station.name == sender and to is None
            if is_silenced and from_ns <= now_ns < until_ns:
                self.dropped += 1
            else:
                inner(attachment, to, train, now_ns)

        network.leave = leave


@pytest.mark.rfc("IMP-24", "IMP-25", "IMP-23")
def test_unreachable_state_spreads_down_tier_by_tier():
    """The source cannot reach the first relay.

    The tiers below fall silent, and continue with the next regular SPM.
    """
    tree = TreeBuilder(
        lan_parameters(
            dup_nak_max=2,
            ne_nak_rpt_rte=50,
            ambient_spm_ivl=SECOND,
            ihb_max=8 * SECOND,
            stall_ivl=20 * SECOND,
            peer_expiry=60 * SECOND,
        )
    )
    tree.source("source", "core")
    tree.aggregator("first", "core", "middle", parents=("source",))
    tree.repairer("second", "middle", "floor", parents=("first",))
    for index in range(3):
        tree.receiver(f"receiver-{index}", "floor", "second")
        tree.receiver(f"core-receiver-{index}", "core", "source")
    spms = Tap(lambda item: item.type is T.SPM and says_unreachable(item))
    world = make_world(tree, traffic(2000, rate=1000, close_at_ns=8 * SECOND), more=(spms,))
    asking = ["first", *(f"core-receiver-{index}" for index in range(3))]
    Faults(world).deafen(asking, 1970 * MS, 22 * MS)
    _DeafToMulticast(world, "core", "source", 1996 * MS, 2600 * MS)
    finish(world)
    assert all(one.is_complete for one in streams(world))
    told = {name for _, name, *_ in spms.seen}
    assert {"first", "second"} <= told
    assert all(at < 4 * SECOND for at, *_ in spms.seen)
