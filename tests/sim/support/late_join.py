"""Late joiners below elements without the wanted history, and a command that counts their cost.

python -m tests.sim.support.late_join --joiners 100
"""

from __future__ import annotations

import argparse

import attrs

from deploy.node.roles import build_core
from pgm.sim.applications import Traffic
from pgm.sim.checks.checker import Checker
from pgm.sim.checks.invariants import all_checkers, cheap_checkers
from pgm.sim.trees import TreeBuilder
from pgm.sim.world import World
from pgm.units import SECOND
from pgm.wire.control_packets import Nak, Spmr
from pgm.wire.formats import PacketType
from pgm.wire.train import Data
from tests.sim.support.worlds import Tap, finish, parameters, stream

RATE, MESSAGES, JOINS_S = 250, 2500, 8
BEFORE = (JOINS_S - 1) * RATE  # messages sent before the late joiners come
LOWER = ("aggregator", "two aggregators", "on one segment", "repairer")


def tree_of(lower: str, joiners: int, *, keeps: dict[str, object] | None = None, **wish: object) -> TreeBuilder:
    """Return a tree of a source, a repairer, an element `lower`, and receivers.

    The receivers are below `lower`. The source's window holds one second.
    """
    common = parameters(txw_secs=SECOND, txw_max_rte=2_500_000)
    tree = TreeBuilder(common)
    tree.source("source", "core")
    tree.repairer("upper", "core", "floor", parents=("source",), parameters=attrs.evolve(common, **(keeps or {})))
    floor, above, parents = "floor", "upper", ("lower",)
    if lower == "two aggregators":
        floor, above = "stairs", tree.aggregator("middle", "floor", "stairs", parents=("upper",))
    make = tree.repairer if lower == "repairer" else tree.aggregator
    make("lower", floor, "subnet", parents=(above,))
    if lower == "on one segment":
        parents = (tree.aggregator("beside", "subnet", parents=("lower",)),)
    tree.receiver("early", "subnet", *parents)
    for number in range(joiners):
        tree.receiver(f"late-{number}", "subnet", *parents, parameters=attrs.evolve(common, **wish))
    return tree


def late_below(
    lower: str,
    joiners: int = 1,
    *,
    messages: int = MESSAGES,
    keeps: dict[str, object] | None = None,
    is_cheap: bool = False,
    **wish: object,
) -> tuple[World, Tap]:
    """Return a world of that tree with `joiners` that come in the eighth second.

    A repairer as `lower` starts one second earlier, and holds only later data.
    """
    tap = Tap(lambda item: isinstance(item, (Nak, Data, Spmr)) and item.type is not PacketType.ODATA)
    world = World(build_core, seed=1)
    checkers: list[Checker] = [tap, *(cheap_checkers() if is_cheap else all_checkers())]
    for checker in checkers:
        world.add_checker(checker)
    offered = Traffic(messages=messages, size=500, rate=RATE, burst=5, start_ns=SECOND, close_at_ns=SECOND)
    starts = {f"late-{number}": JOINS_S * SECOND for number in range(joiners)}
    if lower == "repairer":
        starts["lower"] = (JOINS_S - 1) * SECOND
    for name, plan in tree_of(lower, joiners, keeps=keeps, **wish).plans.items():
        world.add_node(plan, traffic=offered if name == "source" else None, starts_at_ns=starts.get(name, 0))
    return world, tap


def repairs(tap: Tap, node: str) -> int:
    """Return the RDATA packets that a node has sent."""
    return sum(item.count for *_, item in tap.by(node) if isinstance(item, Data))


def questions(tap: Tap, node: str) -> int:
    """Return the SPMRs that a node has sent."""
    return sum(isinstance(item, Spmr) for *_, item in tap.by(node))


def late_ones(world: World) -> list[str]:
    """Return the names of the late joiners."""
    return [name for name in world.nodes if name.startswith("late-")]


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description="Cost of the late joiners of one segment for the nodes above.")
    parser.add_argument("--joiners", type=int, default=100)
    given = parser.parse_args()
    print(
        "| joiners at once | history, packets | NAKs of all joiners | sent by the upper repairer | on the segment | NAKs at the source |"
    )
    print("|---|---|---|---|---|---|")
    for joiners in dict.fromkeys((1, min(10, given.joiners), given.joiners)):
        world, tap = late_below("aggregator", joiners, is_cheap=True, join_from="oldest")
        finish(world)
        assert all(stream(world, name).delivered_sqns == MESSAGES for name in late_ones(world))
        naks = sum(world.nodes[name].total("nak_packets") for name in late_ones(world))
        history = MESSAGES - world.nodes["late-0"].total("received_packets") + repairs(tap, "lower")
        at_source = world.nodes["source"].total("nak_packets_in")
        print(
            f"| {joiners} | {history:,} | {naks} | {repairs(tap, 'upper'):,} | {repairs(tap, 'lower'):,} | {at_source} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
