"""Positions of elements: on the LAN, between segments, one behind another.

Only packets are lost; no node fails.
"""

import pytest

from pgm.sim.faults import Faults
from pgm.sim.trees import TreeBuilder
from pgm.units import SECOND
from pgm.wire.control_packets import Spm
from pgm.wire.formats import PacketType
from tests.sim.support.worlds import MS, Tap, finish, is_a, lossy, make_world, parameters, stream, streams, traffic


def one_lan(*, legacy: bool = False) -> TreeBuilder:
    """Return a tree with a source, two elements and four receivers on one segment.

    The elements are an aggregator and a repairer. Legacy receivers know no repairer.
    """
    tree = TreeBuilder(parameters())
    tree.source("source", "lan")
    tree.aggregator("aggregator", "lan", parents=("source",))
    tree.repairer("repairer", "lan", parents=("aggregator", "source"))
    for index in range(4):
        parents = () if legacy else ("repairer", "aggregator", "source")
        tree.receiver(f"receiver-{index}", "lan", *parents)
    return tree


def two_tiers(receivers: int = 3, **changes: object) -> TreeBuilder:
    """Return a tree with a relaying aggregator that first asks a repairer below it."""
    tree = TreeBuilder(parameters(**changes))
    tree.source("source", "core")
    tree.aggregator("relay", "core", "floor", parents=("source",), repairers=("repairer",))
    tree.repairer("repairer", "floor", parents=("relay",))
    for index in range(receivers):
        tree.receiver(f"receiver-{index}", "floor", "repairer", "relay")
    return tree


@pytest.mark.parametrize("seed", range(3))
def test_two_tiers_on_one_segment_do_not_stall_each_other(seed):
    """Two tiers on one segment do not mistake each other's NCFs for answers.

    All nodes but the source miss the same packets, and each tier hears the lower tier's NCFs. This test guards RFC 7.5.
    An aggregator that took such an NCF for an answer would wait for a repair that never comes (style.md 9.1).
    """
    world = make_world(one_lan(), traffic(close_at_ns=2 * SECOND), seed=seed, wirings={"receiver": lossy(0.05)})
    everybody = [name for name in world.nodes if name != "source"]
    Faults(world).deafen(everybody, SECOND + 200 * MS, 20 * MS)
    finish(world)
    # At most a few rounds of back-off, NAK and NCF after the last of the 0.5 s of messages.
    assert world.log.last_delivery_ns < 2 * SECOND
    assert world.nodes["source"].total("nak_sqns_in") > 0


def test_repairer_asks_above_for_what_its_subnet_lacks():
    """The relay's ingress loses all packets for a moment.

    Relay, repairer and receivers then lack the same packets.
    """
    world = make_world(two_tiers(), traffic(close_at_ns=2 * SECOND))
    Faults(world).deafen(["relay"], SECOND + 200 * MS, 30 * MS, segment="core")
    finish(world)
    assert world.log.last_delivery_ns < SECOND + 700 * MS
    lost = 30  # at 1,000 messages a second
    # Once each, apart from a NAK that crosses its answer. Three receivers and a repairer make no difference.
    assert lost <= world.nodes["source"].total("nak_sqns_in") <= 2 * lost


def test_on_lan_repairer_assists_receivers_that_ask_the_source():
    """Legacy receivers send NAKs to the source.

    The repairer hears the source's NCF and repairs from its cache (RFC 5.2).
    """
    tree = one_lan(legacy=True)
    world = make_world(tree, traffic(close_at_ns=2 * SECOND), wirings={"receiver": lossy(0.05)})
    finish(world)
    assert world.nodes["source"].total("nak_sqns_in") > 0
    assert world.nodes["repairer"].total("rdata_packets") > 0
    assert sum(node.total("repaired_locally") for node in world.receivers) > 0


def test_relay_puts_itself_on_the_path():
    """SPMs below a relay name the relay.

    NAKs go to the relay and never past it. The relay's own NAKs carry the true source (INT-Q3).
    """
    spms = Tap(is_a(PacketType.SPM))
    naks = Tap(is_a(PacketType.NAK))
    tree = two_tiers()
    world = make_world(
        tree,
        traffic(close_at_ns=2 * SECOND),
        wirings={"receiver": lossy(0.05), "relay": lossy(0.02)},
        more=(spms, naks),
    )
    finish(world)
    source, relay = tree.address("source", "core"), tree.address("relay", "floor")
    paths = {(segment, item.path_nla) for _, _, segment, _, item in spms.seen if isinstance(item, Spm)}
    assert paths == {("core", source), ("floor", relay)}
    assert {to for _, _, segment, to, _ in naks.seen if segment == "floor"} <= {
        relay,
        tree.address("repairer", "floor"),
    }
    assert {(to, item.source_nla) for _, _, _, to, item in naks.by("relay") if to == source} == {(source, source)}
    sqns = {item.spm_sqn for _, name, _, _, item in spms.seen if name == "source"}
    assert {item.spm_sqn for _, name, _, _, item in spms.seen if name == "relay"} <= sqns


@pytest.mark.rfc("NE-30")
def test_repairs_go_only_where_they_were_asked_for():
    """A relay with two segments below repairs only on the segment of the loss."""
    repairs = Tap(is_a(PacketType.RDATA))
    tree = TreeBuilder(parameters())
    tree.source("source", "core")
    tree.aggregator("relay", "core", "left", "right", parents=("source",))
    for side in ("left", "right"):
        for index in range(2):
            tree.receiver(f"{side}-{index}", side, "relay")
    world = make_world(tree, traffic(close_at_ns=2 * SECOND), wirings={"left": lossy(0.05)}, more=(repairs,))
    finish(world)
    assert {segment for _, name, segment, _, _ in repairs.seen if name == "relay"} == {"left"}
    assert all(node.total("duplicate_packets") == 0 for node in world.receivers if node.name.startswith("right"))


def test_aggregator_forwards_one_nak_for_many():
    """Ten receivers too far apart to suppress each other ask for the same packet.

    The source gets one NAK.
    """
    receivers = 10
    tree = TreeBuilder(
        parameters(nak_bo_ivl=MS, reorder_ivl=0, nak_rpt_ivl=200 * MS, nak_rdata_ivl=400 * MS, relay_cache_ivl=0)
    )
    tree.source("source", "core")
    tree.aggregator("relay", "core", "floor", parents=("source",))
    for index in range(receivers):
        tree.receiver(f"receiver-{index}", "floor", "relay")
    far = lossy(delay=5 * MS)
    world = make_world(
        tree, traffic(100, rate=100, burst=1, close_at_ns=3 * SECOND), wirings={"receiver": far, "relay": far}
    )
    # One of the hundred messages, sent every 10 ms, is lost on the way to all receivers.
    Faults(world).deafen(
        [f"receiver-{index}" for index in range(receivers)], SECOND + 501 * MS + 5 * MS - 2 * MS, 6 * MS
    )
    finish(world)
    relay, source = world.nodes["relay"], world.nodes["source"]
    assert relay.total("nak_packets_in") == receivers
    assert relay.total("nak_packets_eliminated") == receivers - 1
    assert source.total("nak_packets_in") == source.total("nak_sqns_in") == 1
    assert source.total("rdata_packets") == relay.total("rdata_forwarded") == 1


def test_three_tiers_of_relays_with_loss_on_every_line():
    tree = TreeBuilder(parameters())
    tree.source("source", "core")
    tree.repairer("relay-1", "core", "region", parents=("source",))
    tree.aggregator("relay-2", "region", "site", parents=("relay-1",))
    tree.repairer("relay-3", "site", "floor", parents=("relay-2",))
    for index in range(4):
        tree.receiver(f"receiver-{index}", "floor", "relay-3")
    world = make_world(tree, traffic(close_at_ns=2 * SECOND), wirings={"relay": lossy(0.05), "receiver": lossy(0.05)})
    finish(world)
    assert all(one.is_complete and one.is_from_start for one in streams(world))
    # Losses on the receivers' own line cost nothing on the lines above.
    naks = [world.nodes[name].total("nak_sqns_in") for name in ("source", "relay-1", "relay-2", "relay-3")]
    assert naks[0] < naks[3]


def test_fragments_and_large_messages_survive_a_lossy_tree():
    tree = two_tiers(max_tpdu=300)
    world = make_world(
        tree,
        {"source": traffic(100, size=2000, rate=200, close_at_ns=2 * SECOND)},
        wirings={"receiver": lossy(0.1), "relay": lossy(0.05)},
    )
    finish(world)
    for index in range(3):
        one = stream(world, f"receiver-{index}")
        assert one.messages == 100
        assert one.broken_messages == 0
        assert one.delivered_sqns == 100 * 8
