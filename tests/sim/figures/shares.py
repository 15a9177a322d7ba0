"""Requests at the source as a share of the requests of all receivers, beside formulas.

`python -m tests.sim.figures.shares` prints the tables of docs/internals/models.md. All nodes of a last hop lose the same
share p of all packets, repairers too.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator

import attrs

from deploy.node.roles import build_core
from pgm.models.sends import repairs_per_packet, share_at_source
from pgm.sim.checks.invariants import cheap_checkers
from pgm.sim.faults import Faults
from pgm.sim.trees import TreeBuilder
from pgm.sim.world import Wiring, World
from pgm.units import SECOND
from tests.sim.support.worlds import finish, lossy, parameters, traffic

LONE = ((2, 0.01), (2, 0.05), (8, 0.01), (8, 0.05), (8, 0.10), (30, 0.05))
PACKETS = 8000
TOLERANCE = 0.2
SUBNETS, LOSS, UPLINK_LOSS = 3, 0.05, 0.005
MESSAGES = 14_286  # 20 MB of 1,400 octets


@attrs.frozen
class Row:
    """Share of the source in one tree."""

    tree: str
    share: float
    formula: float

    @property
    def error(self) -> float:
        """Return the difference from the formula, as a share of the formula."""
        return self.share / self.formula - 1


def run(tree: TreeBuilder, wirings: dict[str, Wiring | dict[str, Wiring]], packets: int, killed: str = "") -> float:
    """Run a tree to its end, with a node killed in mid-stream. Return the source's share."""
    world = World(build_core, seed=1)
    for checker in cheap_checkers():
        world.add_checker(checker)
    rate = 2000
    for name, plan in tree.plans.items():
        offered = traffic(packets, size=1400, rate=rate, burst=20) if name == "source" else None
        world.add_node(plan, wiring=wirings.get(name.partition("-")[0]), traffic=offered)
    if killed:
        Faults(world).crash(killed, SECOND + packets * SECOND // rate // 2)
    finish(world)
    receivers = sum(node.total("nak_sqns") for name, node in world.nodes.items() if name.startswith("receiver"))
    return world.nodes["source"].total("nak_sqns_in") / receivers


def lone_repairer(receivers: int, loss: float, packets: int = PACKETS) -> Row:
    """Run a source, one repairer and receivers on one segment."""
    tree = TreeBuilder(parameters())
    tree.source("source", "lan")
    tree.repairer("repairer", "lan", parents=("source",))
    for number in range(receivers):
        tree.receiver(f"receiver-{number}", "lan", "repairer", "source")
    share = run(tree, dict.fromkeys(("repairer", "receiver"), lossy(loss)), packets)
    return Row(f"one repairer, {receivers} receivers, {loss:.0%}", share, share_at_source(loss, receivers))


def three_subnets(killed: str = "", messages: int = MESSAGES) -> Row:
    """Run three subnets, each with a relaying aggregator, a repairer and two receivers."""
    tree = TreeBuilder(parameters())
    tree.source("source", "core")
    for subnet in range(SUBNETS):
        segment, helper = f"subnet-{subnet}", f"repairer-{subnet}"
        relay = tree.aggregator(f"relay-{subnet}", "core", segment, parents=("source",), repairers=(helper,))
        tree.repairer(helper, segment, parents=(relay,))
        for number in range(2):
            tree.receiver(f"receiver-{subnet}-{number}", segment, relay, helper)
    last_hop = lossy(LOSS)
    relays = {"core": lossy(UPLINK_LOSS)} | {f"subnet-{subnet}": last_hop for subnet in range(SUBNETS)}
    share = run(tree, {"repairer": last_hop, "receiver": last_hop, "relay": relays}, messages, killed)
    formula = repairs_per_packet(UPLINK_LOSS, SUBNETS) / (SUBNETS * repairs_per_packet(LOSS, 2))
    return Row("three subnets" + (f", {killed} killed in mid-stream" if killed else ""), share, formula)


def rows() -> Iterator[Row]:
    """Yield all rows."""
    for receivers, loss in LONE:
        yield lone_repairer(receivers, loss)
    for killed in ("", "repairer-0"):
        yield three_subnets(killed)


def main() -> int:
    """Print the table. Return 1 if a row differs from the formula by more than a fifth."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    print("| tree | requests at the source | formula |\n|---|---|---|")
    is_near = True
    for row in rows():
        print(f"| {row.tree} | {row.share:.1%} | {row.formula:.1%} |", flush=True)
        is_near = is_near and abs(row.error) <= TOLERANCE
    return int(not is_near)


if __name__ == "__main__":
    sys.exit(main())
