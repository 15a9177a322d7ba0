"""Sends of a packet on each link of three trees, beside the formula.

`python -m tests.sim.figures.sends` prints the table of docs/internals/models.md. All nodes lose the same share of all packets,
independently. A packet of a link has R nodes to reach: receivers, repairers and relays. Every send reaches a node with
probability 1 - p, so the number of sends is the largest of R geometric numbers. Its mean is the sum over m >= 0 of
1 - (1 - p^m)^R (Pingali, Towsley, Kurose 1994).
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Callable, Iterator

import attrs

from deploy.node.roles import build_core
from pgm.core.effects import Send
from pgm.models.sends import sends_per_packet
from pgm.sim.checks.invariants import cheap_checkers
from pgm.sim.node import SimulatedNode
from pgm.sim.trees import TreeBuilder
from pgm.sim.world import World
from pgm.wire.train import Data, Train
from tests.sim.support.worlds import Checker, finish, lossy, parameters, traffic

LOSSES = (0.01, 0.03, 0.10)
PACKETS = 4000
TOLERANCE = 0.1


class SendCount(Checker):
    """Data and repairs sent on each segment, in packets."""

    def __init__(self) -> None:
        self.packets: Counter[str] = Counter()

    def sent(self, node: SimulatedNode, send: Send, train: Train) -> None:
        items, _ = train.parse_untrusted()
        self.packets[send.segment.name] += sum(item.count for item in items if isinstance(item, Data))


def flat() -> TreeBuilder:
    """Return a source with 30 receivers on its segment."""
    tree = TreeBuilder(parameters())
    tree.source("source", "lan")
    for number in range(30):
        tree.receiver(f"receiver-{number}", "lan", "source")
    return tree


def two_tiers() -> TreeBuilder:
    """Return a source, four relays, and ten receivers below each."""
    tree = TreeBuilder(parameters())
    tree.source("source", "core")
    for floor in range(4):
        relay = tree.aggregator(f"relay-{floor}", "core", f"floor-{floor}", parents=("source",))
        for number in range(10):
            tree.receiver(f"receiver-{floor}-{number}", f"floor-{floor}", relay)
    return tree


def three_tiers() -> TreeBuilder:
    """Return a source and two tiers of relays, with a repairer and eight receivers on each of the nine lowest segments."""
    tree = TreeBuilder(parameters())
    tree.source("source", "core")
    for house in range(3):
        upper = tree.aggregator(f"relay-{house}", "core", f"house-{house}", parents=("source",))
        for floor in range(3):
            segment = f"floor-{house}-{floor}"
            helper = f"repairer-{house}-{floor}"
            relay = tree.aggregator(
                f"relay-{house}-{floor}", f"house-{house}", segment, parents=(upper,), repairers=(helper,)
            )
            tree.repairer(helper, segment, parents=(relay,))
            for number in range(8):
                tree.receiver(f"receiver-{house}-{floor}-{number}", segment, helper, relay)
    return tree


TREES: dict[str, Callable[[], TreeBuilder]] = {"flat": flat, "two tiers": two_tiers, "three tiers": three_tiers}


@attrs.frozen
class Row:
    """Sends per packet on the links of one kind: the mean over the links of a tier."""

    tree: str
    link: str
    loss: float
    nodes: int  # that a packet of the link has to reach
    sends: float
    formula: float

    @property
    def error(self) -> float:
        """Return the difference from the formula, as a share of the formula."""
        return self.sends / self.formula - 1


def rows(tree: str, loss: float, *, packets: int = PACKETS, seed: int = 1) -> Iterator[Row]:
    """Run a tree to its end. Yield a row for each of its tiers."""
    builder = TREES[tree]()
    world, count = World(build_core, seed=seed), SendCount()
    for checker in (count, *cheap_checkers()):
        world.add_checker(checker)
    members: Counter[str] = Counter()
    for name, plan in builder.plans.items():
        members.update(segment.name for segment in plan.segments)
        offered = traffic(packets, size=1000, rate=2000, burst=20) if name == "source" else None
        world.add_node(plan, wiring=lossy(loss), traffic=offered)
    finish(world)
    for tier in dict.fromkeys(name.split("-")[0] for name in builder.segments):
        links = [name for name in builder.segments if name.split("-")[0] == tier]
        nodes = members[links[0]] - 1  # without the sender
        sends = sum(count.packets[name] for name in links) / len(links) / packets
        yield Row(tree, tier, loss, nodes, sends, sends_per_packet(loss, nodes))


def table(found: list[Row]) -> str:
    """Return the table of the page."""
    lines = ["| tree | link | loss | nodes on the link | sends per packet | formula |", "|---|---|---|---|---|---|"]
    lines += [
        f"| {row.tree} | {row.link} | {row.loss:.0%} | {row.nodes} | {row.sends:.3f} | {row.formula:.3f} |"
        for row in found
    ]
    return "\n".join(lines)


def main() -> int:
    """Print the table. Return 1 if a row differs from the formula by more than a tenth."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--packets", type=int, default=PACKETS, help="packets of a run")
    given = parser.parse_args()
    found: list[Row] = []
    for tree in TREES:
        for loss in LOSSES:
            print(f"{tree}, {loss:.0%} ...", file=sys.stderr, flush=True)
            found += rows(tree, loss, packets=given.packets)
    print(table(found))
    return int(any(abs(row.error) > TOLERANCE for row in found))


if __name__ == "__main__":
    sys.exit(main())
