"""A thousand receivers: their cost to the source, and a storm of NAKs."""

import functools

import attrs
import pytest

from deploy.node.roles import build_core
from pgm.core.effects import Send
from pgm.sim.applications import Traffic
from pgm.sim.checks.checker import Checker
from pgm.sim.checks.completion import check_complete, settle
from pgm.sim.checks.invariants import cheap_checkers
from pgm.sim.faults import Faults
from pgm.sim.node import SimulatedNode
from pgm.sim.trees import TreeBuilder
from pgm.sim.world import Wiring, World
from pgm.topology.node_plan import Role
from pgm.units import SECOND
from pgm.wire.formats import PacketType
from pgm.wire.train import Data, Train
from tests.sim.support.worlds import lossy, parameters, streams

SUBNETS = 20


def campus(receivers: int, **changes: object) -> TreeBuilder:
    """Return a tree with a relaying repairer for each of twenty subnets.

    The receivers are shared out evenly.
    """
    tree = TreeBuilder(parameters(**changes))
    tree.source("source", "core")
    for subnet in range(SUBNETS):
        tree.repairer(f"relay-{subnet}", "core", f"subnet-{subnet}", parents=("source",))
        for index in range(receivers // SUBNETS):
            tree.receiver(f"receiver-{subnet}-{index}", f"subnet-{subnet}", f"relay-{subnet}")
    return tree


def world_of(tree: TreeBuilder, offered: Traffic, wirings: dict[str, Wiring | dict[str, Wiring]]) -> World:
    world = World(build_core, seed=1)
    for checker in cheap_checkers():
        world.add_checker(checker)
    for name, plan in tree.plans.items():
        world.add_node(
            plan,
            wiring=wirings.get(name.partition("-")[0]),
            traffic=offered if plan.role is Role.SOURCE else None,
        )
    return world


@functools.cache
def naks_at_the_source(receivers: int, messages: int = 1000) -> int:
    """Return the NAK packets that reach the source; check that no data is lost.

    Subnet links lose 1 %, host links 0.1 %.
    """
    offered = Traffic(messages, size=100, rate=10_000, burst=64, start_ns=SECOND)
    world = world_of(campus(receivers), offered, {"relay": {"core": lossy(0.01)}, "receiver": lossy(0.001)})
    world.run_until(2 * SECOND)
    settle(world, within_ns=30 * SECOND, quiet_ns=3 * SECOND)
    check_complete(world)
    assert all(one.is_complete and one.is_from_start for one in streams(world))
    assert sum(one.delivered_sqns for one in streams(world)) == receivers * messages
    return world.nodes["source"].total("nak_packets_in")


@pytest.mark.slow
def test_thousand_receivers_cost_the_source_what_a_hundred_do():
    few, many = naks_at_the_source(100), naks_at_the_source(1000)
    assert few > 100  # a hundredth of 1,000 packets in each of twenty subnets, several of them in one NAK
    assert abs(many - few) <= few / 10


@attrs.define
class Storm(Checker):
    """RDATA octets of each node, in total and during the storm."""

    octets: dict[str, int] = attrs.field(factory=dict)

    def sent(self, node: SimulatedNode, send: Send, train: Train) -> None:
        if send.is_data:
            for item in train.parse_untrusted()[0]:
                if isinstance(item, Data) and item.type is PacketType.RDATA:
                    self.octets[node.name] = self.octets.get(node.name, 0) + item.count * item.stride


@pytest.mark.slow
def test_scale_storm_of_150_receivers_stays_within_its_share():
    """All receivers are deaf for five seconds, then miss the same 1,500 packets.

    Repairs may take 75 kB/s in each subnet, so they take two and a half seconds. The RateLimits checker enforces that
    for every repairer over every interval. This test checks the end. All packets are repaired, no loss is reported, and
    each packet was repaired about once in each subnet, not once per receiver.
    """
    tree = campus(150, txw_max_rte=300_000)
    offered = Traffic(3000, size=100, rate=300, burst=20, start_ns=SECOND, close_at_ns=16 * SECOND)
    world = world_of(tree, offered, {})
    storm = Storm()
    world.add_checker(storm)
    deaf_ns = 5 * SECOND
    Faults(world).deafen([node.name for node in world.receivers], 2 * SECOND, deaf_ns)
    world.run_until(8 * SECOND)
    assert not any(one.is_accounted for one in streams(world)), "the rate has no teeth"
    world.run_until(19 * SECOND)
    settle(world, within_ns=30 * SECOND, quiet_ns=3 * SECOND)
    check_complete(world)
    missed = 300 * deaf_ns // SECOND * (100 + 24)
    relays = [f"relay-{subnet}" for subnet in range(SUBNETS)]
    assert all(missed * 0.95 <= storm.octets[relay] <= missed * 1.2 for relay in relays)
    assert storm.octets.get("source", 0) == 0
