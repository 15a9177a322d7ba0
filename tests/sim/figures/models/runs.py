"""Runs of a tree to its end, and what its links carried."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from deploy.node.roles import build_core
from pgm.core.effects import Send
from pgm.sim.checks.checker import Checker
from pgm.sim.checks.invariants import cheap_checkers
from pgm.sim.faults import Faults
from pgm.sim.node import SimulatedNode
from pgm.sim.trees import TreeBuilder
from pgm.sim.world import Wiring, World
from pgm.units import SECOND
from pgm.wire.control_packets import Nak
from pgm.wire.formats import PacketType
from pgm.wire.train import Data, Train
from tests.sim.support.worlds import finish, traffic

RATE = 2000  # packets a second

Wirings = Mapping[str, Wiring | dict[str, Wiring]]


class LinkTraffic(Checker):
    """Data, repairs and requested sqns on each segment."""

    def __init__(self) -> None:
        self.packets: Counter[str] = Counter()
        self.naks: Counter[str] = Counter()

    def sent(self, node: SimulatedNode, send: Send, train: Train) -> None:
        for item in train.parse_untrusted()[0]:
            if isinstance(item, Data):
                self.packets[send.segment.name] += item.count
            elif isinstance(item, Nak) and item.type is PacketType.NAK:
                self.naks[send.segment.name] += item.asked


def run(
    tree: TreeBuilder, wirings: Wirings, packets: int, *, killed: str = "", seed: int = 1
) -> tuple[World, LinkTraffic]:
    """Run a tree to its end, with a node killed in mid-stream. Return the world and the sends.

    `wirings` has keys of node names, or of the part before the first dash.
    """
    world, count = World(build_core, seed=seed), LinkTraffic()
    for checker in (count, *cheap_checkers()):
        world.add_checker(checker)
    for name, plan in tree.plans.items():
        offered = traffic(packets, size=1000, rate=RATE, burst=20) if name == "source" else None
        wiring = wirings.get(name, wirings.get(name.partition("-")[0]))
        world.add_node(plan, wiring=wiring, traffic=offered)
    if killed:
        Faults(world).crash(killed, SECOND + packets * SECOND // RATE // 2)
    finish(world)
    return world, count
