"""Sends on each link of trees and NAKs at their source, beside the formulas of the same trees.

A `ModelLink` is both: the argument of the formulas, and the plan of the simulated tree.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import attrs

from pgm.models.tree import ModelLink, ModelNode, link_figures
from pgm.sim.trees import TreeBuilder
from pgm.sim.world import Wiring
from pgm.units import MILLISECOND
from tests.sim.figures.models.rows import Row
from tests.sim.figures.models.runs import run
from tests.sim.support.worlds import lossy, parameters

PACKETS = 4000
# The source waits until all relays have asked. The default of 1 ms repairs for the first of them.
PATIENT: Mapping[str, object] = {"rdata_hold_ivl": 30 * MILLISECOND}
# NCFs for other relays silence none.
DEAF: Mapping[str, object] = {**PATIENT, "nak_elim_ivl": 0}


def subnets(count: int, receivers: int, tail: float, uplink: float, *, keeps: bool) -> ModelLink:
    """Return subnets below relays that keep packets, or keep none."""
    below = ModelLink("tail", (ModelNode(tail, receivers),), keeps=keeps)
    return ModelLink("core", (ModelNode(uplink, count, below=below),))


def three_tiers(loss: float) -> ModelLink:
    """Return two tiers of three relays each, with a repairer and eight receivers on each of the nine lowest links."""
    tail = ModelLink("tail", (ModelNode(loss, 8), ModelNode(loss, is_repairer=True)))
    middle = ModelLink("middle", (ModelNode(loss, 3, below=tail),))
    return ModelLink("core", (ModelNode(loss, 3, below=middle),))


def lan(receivers: int, repairers: int, loss: float) -> ModelLink:
    """Return receivers and on-LAN repairers on the link of the source."""
    return ModelLink("core", (ModelNode(loss, receivers), ModelNode(loss, repairers, is_repairer=True)))


def far_repairers(count: int, receivers: int, loss: float, uplink: float) -> ModelLink:
    """Return subnets with an on-LAN repairer each, below relays that keep nothing."""
    below = ModelLink("tail", (ModelNode(loss, receivers), ModelNode(loss, is_repairer=True)), keeps=False)
    return ModelLink("core", (ModelNode(uplink, count, below=below),))


@attrs.frozen
class Case:
    """Tree to simulate. `sharing` tells whether one NAK at the source stands for all nodes that lack a packet."""

    name: str
    link: ModelLink
    changes: Mapping[str, object] = attrs.field(factory=dict)
    sharing: bool = False
    packets: int = PACKETS
    causes: Mapping[str, str] = attrs.field(factory=dict)  # of differences, by quantity


_HASTE = {"sends, core": "early repairs", "NAKs at the source": "elimination"}
CASES = (
    Case(
        "20 relays that keep packets, 10 receivers each, 4% and 2%",
        subnets(20, 10, 0.04, 0.02, keeps=True),
        packets=PACKETS // 4,
    ),
    Case(
        "20 relays that keep none, 20 receivers each, 4% and 0.5%, patient source without elimination",
        subnets(20, 20, 0.04, 0.005, keeps=False),
        DEAF,
        packets=PACKETS // 16,
    ),
    Case(
        "20 relays that keep none, 20 receivers each, 4% and 0.5%, defaults",
        subnets(20, 20, 0.04, 0.005, keeps=False),
        packets=PACKETS // 16,
        causes=_HASTE,
    ),
    Case(
        "8 relays that keep none, 8 receivers and a repairer each, 5% and 1%, patient source without elimination",
        far_repairers(8, 8, 0.05, 0.01),
        DEAF,
        packets=PACKETS // 4,
    ),
    Case("three tiers, 3%", three_tiers(0.03), packets=PACKETS // 2),
    Case("one repairer, 8 receivers, 5%", lan(8, 1, 0.05), packets=6 * PACKETS),
    Case(
        "two repairers, 8 receivers, 5%",
        lan(8, 2, 0.05),
        sharing=True,
        packets=6 * PACKETS,
        causes={"NAKs at the source": "lost answers of siblings"},
    ),
)


@attrs.define
class _Builder:
    """Builder of the simulated tree of a link."""

    tree: TreeBuilder
    changes: Mapping[str, object]
    wirings: dict[str, Wiring | dict[str, Wiring]] = attrs.field(factory=dict)
    links: dict[str, list[str]] = attrs.field(factory=dict)  # segments of each link of the formulas

    def add(self, link: ModelLink, segment: str, sender: str) -> None:
        """Add the nodes of a link and all below."""
        self.links.setdefault(link.name, []).append(segment)
        repairers = [f"repairer-{segment}-{number}" for number in range(_repairers(link))]
        for name in repairers:
            self.tree.repairer(name, segment, parents=(sender,))
        self.wirings |= {name: lossy(node.loss) for node in link.nodes if node.is_repairer for name in repairers}
        for kind, node in enumerate(link.nodes):
            for number in range(0 if node.is_repairer else node.count):
                if node.below is None:
                    name = f"receiver-{segment}-{kind}-{number}"
                    self.tree.receiver(name, segment, *repairers, sender)
                    self.wirings[name] = lossy(node.loss)
                else:
                    self._add_relay(node, node.below, segment, number, (*repairers, sender))

    def _add_relay(
        self, node: ModelNode, below: ModelLink, segment: str, number: int, parents: tuple[str, ...]
    ) -> None:
        name, down = f"relay-{segment}-{number}", f"{below.name}-{segment}-{number}"
        helpers = tuple(f"repairer-{down}-{at}" for at in range(_repairers(below)))
        own = None if below.keeps else parameters(**self.changes, relay_cache_ivl=0)
        self.tree.aggregator(name, segment, down, parents=parents, repairers=helpers, parameters=own)
        self.wirings[name] = {segment: lossy(node.loss)}
        self.add(below, down, name)


def _repairers(link: ModelLink) -> int:
    return sum(node.count for node in link.nodes if node.is_repairer)


def tree_rows(case: Case, packets: int = 0, *, killed: str = "") -> Iterator[Row]:
    """Run a tree, and yield the sends on each link and the NAKs at the source."""
    packets = packets or case.packets
    builder = _Builder(TreeBuilder(parameters(**case.changes)), case.changes)
    builder.tree.source("source", case.link.name)
    builder.add(case.link, case.link.name, "source")
    world, count = run(builder.tree, builder.wirings, packets, killed=killed)
    for figures in link_figures(case.link):
        segments = builder.links[figures.name]
        sends = sum(count.packets[one] for one in segments) / len(segments) / packets
        yield _row(case, f"sends, {figures.name}", sends, figures.sends)
        if figures.name == case.link.name:
            naks = world.nodes["source"].total("nak_sqns_in") / packets
            yield _row(case, "NAKs at the source", naks, figures.requests if case.sharing else figures.naks)


def _row(case: Case, quantity: str, measured: float, formula: float) -> Row:
    return Row(case.name, quantity, measured, formula, case.causes.get(quantity, ""))


def rows() -> Iterator[Row]:
    """Yield the rows of all trees."""
    for case in CASES:
        yield from tree_rows(case)
