"""Elements and receivers that are redirected to repairers, and whole trees (RFC 9.5).

Checklist 14, tests 14 and 15.
"""

from __future__ import annotations

import attrs
import pytest

from pgm.core.receiver.setup import ReceiverSetup
from pgm.sim.faults import Faults
from pgm.sim.trees import TreeBuilder
from pgm.units import SECOND
from pgm.wire.control_packets import Polr
from pgm.wire.formats import PacketType
from tests.reference import DATA_PORT, TSI
from tests.rfc.bench import BELOW, SOURCE, UP, A, B
from tests.rfc.redirects import DLR_B, DLR_UP, EVERY, RPT, element, knows_off_tree, null_nak, offer, sent_naks
from tests.sim.support.worlds import Tap, finish, is_a, lossy, make_world, streams, traffic
from tests.sim.support.worlds import parameters as lan_parameters
from tests.unit.core.makers import MS, PARENT, SEGMENT, data_train, nak_packet, ncf_packet, parameters, spm_packet
from tests.unit.core.reader import Reader

T = PacketType


# The element


@pytest.mark.rfc("DLR-30", "DLR-32", "POLL-16")
def test_redirect_element_finds_repairers_by_polls():
    node = knows_off_tree()
    node.nak(A, 5)
    assert sent_naks(node) == [("b", DLR_B, (5,))]
    [(_, _, nak)] = node.sent(T.NAK)
    assert (nak.source_nla, nak.group_nla) == (SOURCE, B.group)


@pytest.mark.rfc("SEC-05", "DLR-32")
@pytest.mark.parametrize(
    ("packet", "peer"),
    [(offer(DLR_B, 99), DLR_B), (offer(DLR_B, 1), "10.2.0.66")],
    ids=["answers no poll", "offers another"],
)
def test_redirect_unsolicited_or_foreign_offers_are_ignored(packet, peer):
    node = element(poll_dlr_ivl=10 * SECOND)
    while not node.sent(T.POLL):
        node.wait(100 * MS)
    node.hear(packet, B, peer, is_group=False)
    node.nak(A, 5)
    assert sent_naks(node) == [("core", SOURCE, (5,))]


@pytest.mark.rfc("DLR-32")
def test_redirect_upstream_offer_moves_the_next_nak():
    """The NAK that triggered the offer is repeated until an NCF comes."""
    node = element()
    node.nak(A, 5)
    node.hear(offer(DLR_UP), UP, DLR_UP)
    node.wait(EVERY)
    assert sent_naks(node) == [("core", SOURCE, (5,))] * 2
    node.ncf(5)
    node.nak(A, 6)
    assert sent_naks(node)[2:] == [("core", DLR_UP, (6,))]
    node.ncf(6, peer=DLR_UP)
    node.hear(data_train([6], kind=T.RDATA), UP, DLR_UP)
    assert node.where(T.RDATA) == [("a", (6,))]


@pytest.mark.rfc("DLR-32")
def test_redirects_are_honoured_only_if_enabled():
    node = element(honour_redirects=False)
    node.hear(offer(DLR_UP), UP, DLR_UP)
    node.nak(A, 5)
    assert sent_naks(node) == [("core", SOURCE, (5,))]
    assert node.core.counters.redirects_ignored == 1
    assert not parameters().honour_redirects


@pytest.mark.rfc("DLR-31")
def test_upstream_repairers_are_preferred():
    node = knows_off_tree()
    node.hear(offer(DLR_UP), UP, DLR_UP)
    node.nak(A, 5)
    assert sent_naks(node) == [("core", DLR_UP, (5,))]


@pytest.mark.rfc("DLR-34")
def test_redirect_off_tree_repairer_is_not_asked_by_its_segment():
    """The segment shares the loss with the repairer, whichever receiver asked.

    NAKs for other sqns still go to the repairer.
    """
    node = knows_off_tree()
    node.nak(B, 5)
    node.nak(A, 5, after=MS)
    node.nak(A, 6)
    node.nak(A, 7, 5)
    assert sent_naks(node) == [("core", SOURCE, (5,)), ("b", DLR_B, (6,)), ("core", SOURCE, (7, 5))]


@pytest.mark.rfc("DLR-35")
def test_redirect_failure_returns_to_the_neighbour():
    """After NAK_RPT_IVL without an NCF of the repairer, the neighbour is asked for a full NAK_RPT_IVL.

    Later NAKs go to the neighbour at once.
    """
    node = knows_off_tree()
    begun = node.now
    node.nak(A, 5)
    node.wait(RPT + 2 * EVERY)
    assert [(at - begun, send.to) for at, send, _ in node.sent(T.NAK)] == [
        *((step * EVERY, DLR_B) for step in range(3)),
        *((RPT + step * EVERY, SOURCE) for step in range(3)),
    ]
    assert node.core.counters.redirects_dropped == 1
    node.ncf(5)
    node.nak(A, 6)
    assert sent_naks(node)[-1] == ("core", SOURCE, (6,))


@pytest.mark.rfc("DLR-36")
def test_redirect_counter_nak_is_for_that_packet_alone():
    """The repairer's NAK is confirmed and forwarded for that sqn alone; its segment does not join the repair state."""
    node = knows_off_tree()
    node.nak(A, 5)
    node.hear(nak_packet(5, kind=T.NCF, source_nla=SOURCE, group_nla=B.group), B, DLR_B, is_group=False)
    node.log.clear()
    node.nak(B, 5, peer=DLR_B)
    assert node.where(T.NCF) == [("b", (5,))]
    assert sent_naks(node) == [("core", SOURCE, (5,))]
    node.nak(A, 6)
    assert sent_naks(node)[1:] == [("b", DLR_B, (6,))]
    node.ncf(5)
    node.rdata(5)
    assert node.where(T.RDATA) == [("a", (5,))]


@pytest.mark.rfc("DLR-36")
def test_redirect_repeated_counter_nak_adds_the_segment():
    node = knows_off_tree()
    node.nak(A, 5)
    node.nak(B, 5, peer=DLR_B)
    node.nak(B, 5, peer=DLR_B, after=MS)
    node.rdata(5)
    assert sorted(node.where(T.RDATA)) == [("a", (5,)), ("b", (5,))]


@pytest.mark.rfc("DLR-37", "NE-30")
def test_redirect_unicast_repairs_reach_the_askers():
    node = knows_off_tree()
    node.nak(A, 5)
    node.log.clear()
    node.hear(nak_packet(5, kind=T.NCF, source_nla=SOURCE, group_nla=B.group), B, DLR_B, is_group=False)
    node.wait(2 * EVERY)
    assert node.log == []  # confirmed, so neither repeated nor forwarded
    node.hear(data_train([5], kind=T.RDATA), B, DLR_B, is_group=False)
    [(_, send, item)] = node.sent(T.RDATA)
    assert (send.segment, send.to, item.wire_sqn) == (A, None, 5)
    node.log.clear()
    node.hear(data_train([5], kind=T.RDATA), B, DLR_B, is_group=False)
    node.hear(data_train([9], kind=T.RDATA), B, DLR_B, is_group=False)
    assert node.log == []


@pytest.mark.rfc("DLR-37")
def test_redirect_repair_reaches_later_asking_segments():
    node = knows_off_tree()
    node.nak(A, 5)
    node.nak(B, 5)
    node.hear(data_train([5], kind=T.RDATA), B, DLR_B, is_group=False)
    assert sorted(node.where(T.RDATA)) == [("a", (5,)), ("b", (5,))]


@pytest.mark.rfc("DLR-38", "DLR-39")
def test_redirect_null_naks_of_the_asked_repairer_pass_up():
    """The null NAK passes despite the repair state.

    It goes intact to the neighbour, and is neither confirmed nor repeated.
    """
    node = knows_off_tree()
    node.nak(A, 5)
    node.log.clear()
    node.hear(null_nak(5, group=B.group), B, DLR_B, is_group=False)
    [(_, send, null)] = node.sent(T.NNAK)
    assert (send.segment, send.to, null.sqns) == (UP, SOURCE, (5,))
    assert (null.source_nla, null.group_nla) == (SOURCE, UP.group)
    assert node.sent(T.NCF) == []
    node.wait(20 * MS)
    assert len(node.sent(T.NNAK)) == 1
    node.hear(data_train([5], kind=T.RDATA), B, DLR_B, is_group=False)
    assert node.where(T.RDATA) == [("a", (5,))]


@pytest.mark.rfc("DLR-38")
def test_redirect_other_null_naks_pass_only_without_state():
    node = element()
    node.nak(A, 5)
    node.hear(null_nak(5), B, BELOW[B.index], is_group=False)
    assert node.sent(T.NNAK) == []
    node.hear(null_nak(5, 6), B, BELOW[B.index], is_group=False)
    assert [item.sqns for _, _, item in node.sent(T.NNAK)] == [(5, 6)]
    assert node.core.counters.nnak_packets_eliminated == 1


@pytest.mark.rfc("DLR-39", "DLR-40")
def test_a_null_nak_eliminates_no_nak_and_repairs_nothing():
    """The state of a null NAK lives for NAK_ELIM_IVL.

    In that time it eliminates further null NAKs, and a real NAK is forwarded at once.
    """
    node = element()
    node.hear(null_nak(5), A, BELOW[A.index], is_group=False)
    node.hear(null_nak(5), A, BELOW[A.index], is_group=False)
    assert len(node.sent(T.NNAK)) == 1
    node.rdata(5)
    assert node.sent(T.RDATA) == []  # no segment asked for it
    node.nak(B, 5)
    assert sent_naks(node) == [("core", SOURCE, (5,))]
    node.rdata(5)
    assert node.where(T.RDATA) == [("b", (5,))]
    node.log.clear()
    node.hear(null_nak(5), A, BELOW[A.index], is_group=False, after=100 * MS)
    assert len(node.sent(T.NNAK)) == 1


# The receiver


def receiver(subnet="10.0.0.0/24", **changes):
    segment = attrs.evolve(SEGMENT, subnet=subnet)
    reader = Reader(ReceiverSetup(segment, parents=(PARENT,)), reorder_ivl=0, **{"honour_redirects": True} | changes)
    reader.hear(spm_packet(1, 0, -1, path_nla=PARENT), peer=PARENT)
    reader.hear(data_train([0]))
    return reader, segment


def asks(reader):
    return [send.to for _, send in reader.sent]


FAR = "10.9.0.7"


@pytest.mark.rfc("RCV-51")
def test_redirect_receiver_uses_a_repairer_of_another_subnet():
    """The redirect applies from the next NAK on; the POLR itself confirms nothing."""
    reader, _ = receiver()
    reader.hear(data_train([2]))
    reader.wait(20 * MS)
    assert asks(reader) == [PARENT]
    reader.hear(offer(FAR), peer=FAR)
    reader.wait(60 * MS)  # the NAK is repeated after NAK_RPT_IVL, as without the POLR
    assert asks(reader) == [PARENT, FAR]
    reader.hear(ncf_packet(1), peer=FAR)
    reader.hear(data_train([1], kind=T.RDATA), peer=FAR)
    assert reader.delivered() == [0, 1, 2]


@pytest.mark.rfc("RCV-51", "SEC-05")
@pytest.mark.parametrize(
    ("packet", "peer", "changes"),
    [
        (offer("10.0.0.7"), "10.0.0.7", {}),
        (offer(FAR), "10.9.0.8", {}),
        (offer(FAR), FAR, {"subnet": None}),
        (offer(FAR), FAR, {"honour_redirects": False}),
        (Polr(tsi=TSI, data_port=DATA_PORT, poll_sqn=0, poll_round=0), FAR, {}),
    ],
    ids=["of the own subnet", "of another sender", "subnet unknown", "switched off", "no offer"],
)
def test_all_other_offers_are_ignored(packet, peer, changes):
    reader, _ = receiver(**changes)
    reader.hear(packet, peer=peer)
    reader.hear(data_train([2]))
    reader.wait(20 * MS)
    assert asks(reader) == [PARENT]
    assert reader.core.counters.redirects_ignored == 1


@pytest.mark.rfc("RCV-51")
def test_redirect_receiver_drops_an_unconfirming_repairer():
    """After NAK_RPT_IVL the next NAK goes to the neighbour, and so do all later ones."""
    reader, _ = receiver(nak_rpt_ivl=50 * MS, nak_bo_ivl=10 * MS)
    reader.hear(offer(FAR), peer=FAR)
    reader.hear(data_train([2]))
    reader.wait(100 * MS)
    assert asks(reader)[:2] == [FAR, PARENT]
    assert FAR not in asks(reader)[1:]
    assert reader.core.counters.redirects_dropped == 1


@pytest.mark.rfc("RCV-51")
def test_subnets_of_both_families():
    reader, _ = receiver(subnet="fd00:1::/64")
    for nla, is_taken in (("fd00:1::7", False), ("fd00:2::7", True), ("10.9.0.7", False)):
        before = reader.core.counters.redirects_taken
        reader.hear(offer(nla), peer=nla)
        assert (reader.core.counters.redirects_taken > before) == is_taken


# The tree


def tree_with_one_off_it():
    """Return a relay with two floors, and a repairer on the second."""
    settings = {"poll_dlr_ivl": SECOND, "poll_bo_ivl": 50 * MS, "honour_redirects": True, "dlr_mode": "off-tree"}
    tree = TreeBuilder(lan_parameters(relay_cache_ivl=0, **settings))
    tree.source("source", "core")
    tree.aggregator("relay", "core", "floor-a", "floor-b", parents=("source",))
    tree.repairer("repairer", "floor-b", parents=("relay",))
    return tree


def tree_with_one_upstream():
    """Return a tree with a repairer beside the source."""
    tree = TreeBuilder(
        lan_parameters(relay_cache_ivl=0, honour_redirects=True, dlr_mode="upstream", assist_on_ncf=False)
    )
    tree.source("source", "core")
    tree.repairer("repairer", "core", parents=("source",))
    return tree


@pytest.mark.rfc("DLR-09", "DLR-10", "DLR-11", "DLR-12", "DLR-30", "DLR-37", "DLR-38", "SRC-46")
def test_a_repairer_off_the_tree_repairs_another_floor():
    """Floor a has losses and the repairer is on floor b.

    Hardly any NAK reaches the source, and null NAKs inform the source.
    """
    tree = tree_with_one_off_it()
    for index in range(3):
        tree.receiver(f"lossy-{index}", "floor-a", "relay")
        tree.receiver(f"well-{index}", "floor-b", "relay")
    rdata, nulls = Tap(is_a(T.RDATA)), Tap(is_a(T.NNAK))
    world = make_world(
        tree,
        attrs.evolve(traffic(2000, close_at_ns=6 * SECOND), start_ns=3 * SECOND),
        wirings={"lossy": lossy(0.03)},
        more=(rdata, nulls),
    )
    finish(world)
    assert all(one.is_complete for one in streams(world))
    asked_below = world.nodes["relay"].total("nak_sqns_in")
    assert asked_below > 100
    assert world.nodes["source"].total("nak_sqns_in") < asked_below / 10
    assert world.nodes["source"].total("nnak_packets_in") > 20
    assert {to for _, name, _, to, _ in rdata.seen if name == "repairer"} == {tree.address("relay", "floor-b")}
    assert {segment for _, name, segment, _, _ in rdata.seen if name == "relay"} == {"floor-a"}
    first_null = {}
    for at, name, _, _, item in nulls.seen:
        if name == "repairer":
            for sqn in item.sqns:
                first_null.setdefault(sqn, at)
    for at, name, _, _, item in rdata.seen:
        if name == "repairer":
            assert all(first_null[sqn] <= at for sqn in range(item.wire_sqn, item.wire_sqn + item.count))


@pytest.mark.rfc("DLR-35", "DLR-36")
@pytest.mark.parametrize("trouble", ["dies", "lacks"])
def test_nothing_is_lost_when_the_repairer_fails(trouble):
    """The repairer dies in the middle, or lacks every other packet itself."""
    tree = tree_with_one_off_it()
    for index in range(3):
        tree.receiver(f"lossy-{index}", "floor-a", "relay")
    wirings = {"lossy": lossy(0.05)} | ({"repairer": lossy(0.3)} if trouble == "lacks" else {})
    offered = attrs.evolve(traffic(2000, close_at_ns=7 * SECOND), start_ns=3 * SECOND)
    world = make_world(tree, offered, wirings=wirings)
    if trouble == "dies":
        Faults(world).crash("repairer", 4 * SECOND)
    finish(world)
    assert all(one.is_complete for one in streams(world))
    assert world.nodes["repairer"].total("rdata_packets") > 0
    if trouble == "dies":
        assert world.nodes["relay"].total("redirects_dropped") >= 1


@pytest.mark.rfc("DLR-05", "DLR-06", "DLR-07", "DLR-32")
def test_a_repairer_upstream_is_found_by_its_offer():
    """The repairer stands beside the source and is no node's parent.

    The source repairs the first loss, the repairer the others.
    """
    tree = tree_with_one_upstream()
    tree.aggregator("relay", "core", "floor", parents=("source",))
    for index in range(3):
        tree.receiver(f"receiver-{index}", "floor", "relay")
    world = make_world(tree, traffic(2000, close_at_ns=5 * SECOND), wirings={"receiver": lossy(0.03)})
    finish(world)
    assert all(one.is_complete for one in streams(world))
    assert world.nodes["relay"].total("redirects_taken") == 1
    source, repairer = world.nodes["source"], world.nodes["repairer"]
    assert source.total("nak_sqns_in") < repairer.total("nak_sqns_in") / 10
    assert source.total("nnak_packets_in") > 10


@pytest.mark.rfc("RCV-51", "DLR-05")
def test_redirect_is_for_receivers_of_other_subnets_only():
    """Two subnets share a multicast domain behind routers without PGM."""
    tree = tree_with_one_upstream()
    for name in ("near", "far"):
        tree.receiver(name, "core", "source")
    inner = tree.plans

    def placed(plan):
        subnet = "10.1.0.0/24" if plan.name == "near" else "172.16.0.0/12"
        segments = tuple(attrs.evolve(one, interface=subnet) for one in plan.segments)
        return attrs.evolve(plan, segments=segments) if plan.name in ("near", "far") else plan

    class PlacedTree:
        plans = {name: placed(plan) for name, plan in inner.items()}

    world = make_world(
        PlacedTree(), traffic(2000, close_at_ns=5 * SECOND), wirings={"near": lossy(0.05), "far": lossy(0.05)}
    )
    finish(world)
    assert world.nodes["far"].total("redirects_taken") >= 1
    assert world.nodes["near"].total("redirects_taken") == 0
    assert world.nodes["near"].total("redirects_ignored") >= 1
    assert world.nodes["repairer"].total("nak_sqns_in") > 50
    assert all(one.is_complete for one in streams(world))
