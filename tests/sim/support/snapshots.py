"""Joiners that begin with a state of the source's application, and a command that counts the cost of the state.

python -m tests.sim.support.snapshots
"""

from __future__ import annotations

import random
from collections.abc import Callable

import attrs

from deploy.node.roles import build_core
from pgm.core.interface import Core
from pgm.core.late_join.states import state_port
from pgm.net.core_factory import SourceStart, segments_of, snapshot_source
from pgm.sim.applications import Traffic
from pgm.sim.trees import TreeBuilder
from pgm.sim.world import World
from pgm.topology.node_plan import NodePlan, Role
from pgm.units import KIB, SECOND
from pgm.wire.formats import PacketType, Tsi
from pgm.wire.train import Data
from tests.sim.support.signed import proving, signing
from tests.sim.support.worlds import Tap, finish, lossy, make_world, parameters, stream

RATE, MESSAGES, JOINS_S = 100, 500, 4


def offering(plan: NodePlan, rng: random.Random, tsi: Tsi, now_ns: int) -> Core:
    """Build the core of a node; a source offers states."""
    if plan.role is Role.SOURCE:
        return snapshot_source(plan, plan.streams[0], segments_of(plan), SourceStart(tsi, now_ns, now_ns, rng))
    return build_core(plan, rng, tsi, now_ns)


def signed_states(plan: NodePlan, rng: random.Random, tsi: Tsi, now_ns: int) -> Core:
    """Build the core of a node; a source signs its stream and the states that it offers."""
    if plan.role is Role.SOURCE:
        return snapshot_source(plan, plan.streams[0], segments_of(plan), signing(plan, rng, tsi, now_ns))
    return proving(plan, rng, tsi, now_ns)


def joined(
    joiners: int,
    loss: float = 0.0,
    *,
    tiers: str = "",
    state_octets: int = 200 * KIB,
    factory: Callable[..., Core] = offering,
    spread_ns: int = 0,
    is_timed: bool = True,
    **changes: object,
) -> tuple[World, Tap, list[str]]:
    """Return a world with a source that offers states, and joiners that come in the fourth second.

    `tiers` names the relay above the joiners: an aggregator, with a repairer on the joiners' segment, or a repairer.
    """
    common = parameters(txw_secs=5 * SECOND, txw_max_rte=10_000_000, **changes)
    tree = TreeBuilder(common)
    tree.source("source", "core")
    floor, parents = "core", ("source",)
    if tiers:
        floor, parents = "floor", ("repairer", "relay")
        if tiers == "aggregator":
            tree.aggregator("relay", "core", "floor", parents=("source",))
            tree.repairer("repairer", "floor", parents=("relay",))
        else:
            parents = (tree.repairer("repairer", "core", "floor", parents=("source",)),)
    tree.receiver("early", floor, *parents)
    names = [f"late-{number}" for number in range(joiners)]
    for name in names:
        tree.receiver(name, floor, *parents, parameters=attrs.evolve(common, join_from="snapshot"))
    offered = Traffic(MESSAGES, 500, rate=RATE, burst=4, start_ns=SECOND, close_at_ns=SECOND, state_octets=state_octets)
    tap = Tap(lambda item: isinstance(item, Data) and item.data_port >= 0x8000)
    world = make_world(
        tree,
        offered,
        wirings={"early": lossy(loss), "late": lossy(loss), "repairer": lossy(loss), "relay": lossy(loss)},
        starts={name: JOINS_S * SECOND + number * spread_ns // joiners for number, name in enumerate(names)},
        more=(tap,),
        factory=factory,
        is_timed=is_timed,
    )
    return world, tap, names


def states_sent(tap: Tap, world: World, kind: PacketType = PacketType.ODATA) -> int:
    """Return the packets of states that the source has sent."""
    port = world.nodes["source"].plan.streams[0].data_port
    return sum(
        item.count
        for *_, item in tap.by("source")
        if isinstance(item, Data) and item.data_port == state_port(port) and item.type is kind
    )


def repairs_by_formula(packets: int, joiners: int, loss: float) -> float:
    """Return the repairs if each serves all joiners that lack the packet: the sum over m of 1 - (1 - p^m)^R."""
    return packets * sum(1 - (1 - loss**sends) ** joiners for sends in range(1, 20))


def main() -> None:
    """Print the table of the page `docs/guide/receiving.md`."""
    print("| joiners at once | loss | states | packets of the state | repairs by the source | by formula |")
    print("|---|---|---|---|---|---|")
    for joiners in (1, 10, 100):
        for loss in (0.01, 0.05):
            world, tap, names = joined(joiners, loss)
            finish(world)
            assert all(stream(world, name).snapshot is not None for name in names)
            states = len(world.ledgers[stream(world, "early").tsi].states)
            sent, repaired = states_sent(tap, world), states_sent(tap, world, PacketType.RDATA)
            formula = repairs_by_formula(sent, joiners, loss)
            print(f"| {joiners} | {loss:.0%} | {states} | {sent} | {repaired} | {formula:.0f} |", flush=True)


if __name__ == "__main__":
    main()
