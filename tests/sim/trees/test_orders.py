"""Streams that are delivered on arrival, in whole trees.

Every sqn is delivered once, and sqns without a repair are reported.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pgm.core.effects import LossCause
from pgm.core.interface import Core
from pgm.sim.delivery_check import UnorderedDeliveryCheck
from pgm.sim.trees import TreeBuilder
from pgm.units import SECOND
from tests.sim.support.signed import Sealing, proving, proving_late
from tests.sim.support.worlds import finish, lossy, make_world, parameters, stream, streams, traffic


def relayed(order: str) -> TreeBuilder:
    """Return a tree with a relay, a repairer below it, and three receivers."""
    tree = TreeBuilder(parameters(), order=order)
    tree.source("source", "core")
    tree.aggregator("relay", "core", "floor", parents=("source",), repairers=("repairer",))
    tree.repairer("repairer", "floor", parents=("relay",))
    for index in range(3):
        tree.receiver(f"receiver-{index}", "floor", "repairer", "relay")
    return tree


@pytest.mark.rfc("RCV-08")
@pytest.mark.parametrize("seed", range(3))
def test_orders_unordered_repairs_do_not_delay_later_packets(seed: int) -> None:
    world = make_world(
        relayed("unordered"),
        traffic(messages=2000, close_at_ns=2 * SECOND),
        seed=seed,
        wirings={"receiver": lossy(0.05)},
    )
    finish(world)
    for index in range(3):
        one = stream(world, f"receiver-{index}")
        assert isinstance(one, UnorderedDeliveryCheck)
        assert one.is_complete
        assert one.messages == 2000
        assert one.overtakings > 20


@pytest.mark.rfc("RCV-08")
def test_large_messages_of_unordered_streams_come_whole() -> None:
    offered = traffic(messages=150, size=6000, close_at_ns=2 * SECOND)
    world = make_world(relayed("unordered"), offered, wirings={"receiver": lossy(0.05)})
    finish(world)
    one = stream(world, "receiver-0")
    assert one.is_complete
    assert one.messages == 150
    assert not one.broken_messages


@pytest.mark.parametrize("size", [200, 6000])
def test_orders_unreliable_receivers_report_and_never_ask(size: int) -> None:
    tree = TreeBuilder(parameters(), order="unreliable")
    tree.source("source", "lan")
    for index in range(3):
        tree.receiver(f"receiver-{index}", "lan", "source")
    offered = traffic(messages=1000, size=size, close_at_ns=2 * SECOND)
    world = make_world(tree, offered, wirings={"receiver": lossy(0.05)})
    while world.now_ns < 10 * SECOND:
        world.run_until(world.now_ns + SECOND)
    for index in range(3):
        one = stream(world, f"receiver-{index}")
        assert one.is_accounted
        assert set(one.lost) == {LossCause.UNREPAIRED}
        assert world.nodes[f"receiver-{index}"].total("nak_packets") == 0
        lost = one.lost[LossCause.UNREPAIRED]
        assert one.delivered_sqns + lost == one.next_sqn - one.first
        assert 0.02 < lost / (one.next_sqn - one.first) < 0.1
    assert world.nodes["source"].total("nak_packets_in") == 0


def test_packets_that_overtake_each_other_are_not_lost() -> None:
    """A packet may arrive up to `reorder_ivl` after its successors."""
    tree = TreeBuilder(parameters(reorder_ivl=20_000_000), order="unreliable")
    tree.source("source", "lan")
    tree.receiver("receiver-0", "lan", "source")
    world = make_world(
        tree,
        traffic(messages=1000, close_at_ns=2 * SECOND),
        wirings={"receiver": lossy(reorder=0.1, reorder_ivl=5_000_000)},
    )
    while world.now_ns < 10 * SECOND:
        world.run_until(world.now_ns + SECOND)
    one = stream(world, "receiver-0")
    assert one.is_complete
    assert one.messages == 1000


@pytest.mark.parametrize("factory", [proving, proving_late, Sealing()], ids=["before", "after", "sealed"])
def test_signed_unordered_streams_are_whole_and_overtake(factory: Callable[..., Core]) -> None:
    offered = traffic(messages=1000, close_at_ns=2 * SECOND)
    wirings = {"receiver": lossy(0.05), "relay": lossy(0.02), "repairer": lossy(0.02)}
    world = make_world(relayed("unordered"), offered, wirings=wirings, factory=factory)
    finish(world)
    for one in streams(world):
        assert isinstance(one, UnorderedDeliveryCheck)
        assert one.is_complete, one.lost
        assert not one.forged
        assert one.overtakings > 10
    for index in range(3):
        assert world.core_of(f"receiver-{index}").counters.forged_packets == 0


def test_signed_unreliable_streams_deliver_all_that_comes() -> None:
    tree = TreeBuilder(parameters(), order="unreliable")
    tree.source("source", "lan")
    tree.receiver("receiver", "lan", "source")
    offered = traffic(messages=2000, size=200, close_at_ns=2 * SECOND)
    world = make_world(tree, offered, wirings={"receiver": lossy(0.05)}, factory=proving)
    finish(world, may_lose={"receiver": (LossCause.UNREPAIRED,)})
    one = stream(world, "receiver")
    assert set(one.lost) == {LossCause.UNREPAIRED}
    assert one.delivered_sqns > 1800
    assert world.core_of("receiver").counters.detail_requests == 0
