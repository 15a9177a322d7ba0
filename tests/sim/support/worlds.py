"""Worlds for scenario tests: a tree, its links, its traffic, every checker."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from deploy.node.roles import build_core
from pgm.core.effects import Send
from pgm.impairments import Impairment
from pgm.parameters import Parameters, ProfileInputs, lan
from pgm.sim.applications import ConsumptionRate, ReceiverApplication, Traffic
from pgm.sim.checks.checker import Checker
from pgm.sim.checks.completion import check_complete, settle
from pgm.sim.checks.invariants import all_checkers, cheap_checkers
from pgm.sim.delivery_check import DeliveryCheck
from pgm.sim.links import LinkSetup
from pgm.sim.node import SimulatedNode
from pgm.sim.trees import TreeBuilder
from pgm.sim.world import CoreFactory, Wiring, World, tsi_of
from pgm.units import MICROSECOND, MILLISECOND, SECOND
from pgm.wire.control_packets import Packet
from pgm.wire.train import Data, Train

MS = MILLISECOND
LAN: Mapping[str, object] = lan(ProfileInputs())


def parameters(**changes: object) -> Parameters:
    """Return the LAN profile with some values changed."""
    return Parameters(**{**LAN, **changes})


def lossy(loss: float = 0.0, delay: int = 50 * MICROSECOND, **impairments: float) -> Wiring:
    """Return a wiring whose way in loses packets."""
    return Wiring(ingress=LinkSetup(delay=delay, impairment=Impairment(loss=loss, **impairments)))


def traffic(messages: int = 500, size: int = 200, rate: int = 1000, burst: int = 5, close_at_ns: int = 0) -> Traffic:
    """Return traffic that begins after one second."""
    return Traffic(
        messages=messages, size=size, rate=rate, burst=burst, start_ns=SECOND, close_at_ns=max(close_at_ns, SECOND)
    )


def make_world(
    tree: TreeBuilder,
    offered: Traffic | Mapping[str, Traffic],
    *,
    seed: int = 1,
    wirings: Mapping[str, Wiring | dict[str, Wiring]] | None = None,
    appetites: Mapping[str, ConsumptionRate] | None = None,
    starts: Mapping[str, int] | None = None,
    factory: CoreFactory = build_core,
    more: tuple[Checker, ...] = (),
    is_timed: bool = True,
) -> World:
    """Return a world with every checker; without those of NAK times unless `is_timed`.

    `wirings` has keys of node names, or of the part before the first dash.
    """
    world = World(factory, seed=seed)
    for checker in (*more, *(all_checkers() if is_timed else cheap_checkers())):
        world.add_checker(checker)
    ways = wirings or {}
    for name, plan in tree.plans.items():
        way = ways.get(name, ways.get(name.partition("-")[0]))
        own = offered if isinstance(offered, Traffic) else offered.get(name)
        world.add_node(
            plan,
            wiring=way,
            traffic=own,
            appetite=(appetites or {}).get(name),
            starts_at_ns=(starts or {}).get(name, 0),
        )
    return world


def finish(world: World, *, within_s: int = 30, **expectations: object) -> None:
    """Run until the sources have left and the tree is at rest; check completeness."""
    while world.now_ns < 2 * SECOND or any(node.core is not None for node in world.sources):
        assert world.now_ns < 120 * SECOND, "a source does not leave"
        world.run_until(world.now_ns + SECOND)
    settle(world, within_ns=within_s * SECOND, quiet_ns=3 * SECOND)
    check_complete(world, **expectations)


def stream(world: World, receiver: str, source: str = "source", starts: int = 0) -> DeliveryCheck:
    """Return the delivery check of a source's session at a receiver."""
    application = world.nodes[receiver].application
    assert isinstance(application, ReceiverApplication)
    return application.streams[tsi_of(source, starts)]


def streams(world: World) -> list[DeliveryCheck]:
    """Return the delivery checks of all receivers."""
    return [one for node in world.receivers for one in node.application.all_streams]


class Tap(Checker):
    """Record of the packets on the wire: (time, node, segment, to, item)."""

    def __init__(self, wanted: Callable[[Data | Packet], bool]) -> None:
        self._wanted = wanted
        self.seen: list[tuple[int, str, str, str | None, Data | Packet]] = []

    def sent(self, node: SimulatedNode, send: Send, train: Train) -> None:
        for item in train.parse_untrusted()[0]:
            if self._wanted(item):
                self.seen.append((self.world.now_ns, node.name, send.segment.name, send.to, item))

    def by(self, node: str) -> list[tuple[int, str, str, str | None, Data | Packet]]:
        """Return the packets that one node sent."""
        return [one for one in self.seen if one[1] == node]


def is_a(*kinds: int) -> Callable[[Data | Packet], bool]:
    """Return a predicate for items of some packet types."""
    return lambda item: item.type in kinds
