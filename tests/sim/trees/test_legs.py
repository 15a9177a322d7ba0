"""Trees with unicast legs, or with IPv6 addresses.

The cores work as on multicast IPv4 segments, and all data arrives.
"""

from __future__ import annotations

import pytest

from pgm.core.segment import Channel
from pgm.impairments import Impairment
from pgm.sim.checks.checker import Checker
from pgm.sim.links import LinkSetup
from pgm.sim.node import SimulatedNode
from pgm.sim.trees import TreeBuilder
from pgm.sim.world import Wiring
from pgm.units import SECOND
from pgm.wire.control_packets import Nak, Spm
from pgm.wire.formats import Nla, PacketType
from pgm.wire.train import Data, Train
from tests.sim.support.worlds import MS, Tap, finish, is_a, lossy, make_world, parameters, streams, traffic


def two_sites(relay: str = "repairer", **changes: object) -> TreeBuilder:
    """core ── west ── wan, a leg ── east ── site.

    A receiver is on the leg itself, a repairer and two receivers on the site.
    """
    tree = TreeBuilder(parameters(**changes), legs=["wan"], ipv6=["wan", "site"])
    tree.source("source", "core")
    tree.aggregator("west", "core", "wan", parents=("source",))
    if relay == "repairer":
        tree.repairer("east", "wan", "site", parents=("west",))
    else:
        tree.aggregator("east", "wan", "site", parents=("west",), repairers=("local",))
    tree.receiver("receiver-wan", "wan", "west")
    tree.repairer("local", "site", parents=("east",))
    for index in range(2):
        tree.receiver(f"receiver-{index}", "site", "local", "east")
    return tree


@pytest.mark.parametrize("relay", ["repairer", "aggregator"])
@pytest.mark.parametrize("seed", range(2))
def test_everything_crosses_a_leg_that_loses_both_ways(relay: str, seed: int):
    ways = {
        "east": lossy(0.05, delay=5_000_000),
        "west": lossy(0.05, delay=5_000_000),
        "receiver": lossy(0.05),
        "local": lossy(0.02),
    }
    world = make_world(two_sites(relay), traffic(close_at_ns=2 * SECOND), seed=seed, wirings=ways)
    finish(world)
    assert all(one.delivered_sqns == 500 for one in streams(world))
    east = "rdata_packets" if relay == "repairer" else "rdata_forwarded"
    assert world.nodes["east"].total(east) + world.nodes["local"].total("rdata_packets") > 0
    # The leg's losses are requested above it, most of them once; those of the site are not.
    assert 0 < world.nodes["source"].total("nak_sqns_in") < 120


def test_legs_multicast_goes_to_each_peer_and_naks_to_the_parent():
    """The path on the leg is the relay's address there (NE-02).

    The NAKs on the leg contain no group.
    """
    tap = Tap(is_a(PacketType.SPM, PacketType.NAK, PacketType.NCF))
    tree = two_sites(nak_group_copy=True, relay_cache_ivl=0)
    world = make_world(
        tree, traffic(close_at_ns=2 * SECOND), wirings={"east": lossy(0.1), "receiver": lossy(0.1)}, more=(tap,)
    )
    finish(world)
    plans = tree.plans
    west, (above, leg) = tree.address("west", "wan"), plans["west"].segments
    assert above.peers is None
    assert leg.peers == (tree.address("east", "wan"), tree.address("receiver-wan", "wan"))
    on_leg = [(node, to, item) for _, node, segment, to, item in tap.seen if segment == "wan"]
    assert {item.path_nla for _, _, item in on_leg if isinstance(item, Spm)} == {west}
    naks = [(node, to, item) for node, to, item in on_leg if isinstance(item, Nak) and item.kind is PacketType.NAK]
    assert {node for node, _, _ in naks} == {"east", "receiver-wan"}
    assert {to for _, to, _ in naks} == {west}
    assert {(item.source_nla, item.group_nla) for _, _, item in naks} == {(west, "::")}
    assert any(node == "west" and to is None for node, to, item in on_leg if isinstance(item, Nak))
    # Above the relay the NAK names the source and the group of that segment (INT-Q3).
    at_source = [
        item for _, node, segment, _, item in tap.seen if (node, segment) == ("west", "core") and isinstance(item, Nak)
    ]
    assert {(item.source_nla, item.group_nla) for item in at_source} == {(tree.address("source", "core"), above.group)}
    spms = {item.path_nla for _, node, segment, _, item in tap.seen if segment == "site" and isinstance(item, Spm)}
    assert spms == {tree.address("east", "site")}


class Heard(Checker):
    """Record of received ODATA by receiver and kind of address."""

    def __init__(self) -> None:
        self.sqns: dict[str, set[int]] = {}
        self.by_group: set[bool] = set()

    def received(self, node: SimulatedNode, train: Train, channel: Channel, peer: Nla) -> None:
        for item in train.parse_untrusted()[0]:
            if isinstance(item, Data) and item.type is PacketType.ODATA:
                self.sqns.setdefault(node.name, set()).update(range(item.wire_sqn, item.wire_sqn + item.count))
                self.by_group.add(channel.is_group)


@pytest.mark.parametrize("is_leg", [True, False])
def test_losses_on_the_way_out_are_each_copys_own(is_leg: bool):
    """Each copy on a leg has losses of its own, and none arrives by a group."""
    tree = TreeBuilder(parameters(), legs=["lan"] if is_leg else [])
    tree.source("source", "lan")
    for index in range(2):
        tree.receiver(f"receiver-{index}", "lan", "source")
    heard = Heard()
    out = Wiring(egress=LinkSetup(delay=0, impairment=Impairment(loss=0.1)))
    world = make_world(tree, traffic(close_at_ns=2 * SECOND), wirings={"source": out}, more=(heard,))
    finish(world)
    assert all(one.delivered_sqns == 500 for one in streams(world))
    one, other = heard.sqns["receiver-0"], heard.sqns["receiver-1"]
    assert len(one & other) < 500
    assert (len(one ^ other) > 50) is is_leg
    assert heard.by_group == {not is_leg}


def test_copies_wait_for_a_slow_line_like_any_data():
    """The queue holds less than one train for all peers, and no copy is lost."""
    tree = TreeBuilder(parameters(txw_max_rte=1_000_000, txw_burst_ivl=20 * MS), legs=["lan"])
    tree.source("source", "lan")
    for index in range(8):
        tree.receiver(f"receiver-{index}", "lan", "source")
    out = Wiring(egress=LinkSetup(delay=0, rate=10_000_000, queue=30_000))
    world = make_world(tree, traffic(burst=80, close_at_ns=2 * SECOND), wirings={"source": out})
    finish(world)
    assert all(one.delivered_sqns == 500 for one in streams(world))
    assert world.nodes["source"].attachments[0].egress.overflowed == 0
    assert world.nodes["source"].total("nak_packets_in") == 0
