"""Floods of NAKs from many addresses, and their cost for honest receivers.

`python -m tests.sim.support.floods` prints the table of docs/guide/receiving.md.

All receivers lose 3 %. The flood begins in the third second. Each NAK names one packet of the source's window.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Sequence

import attrs

from deploy.node.roles import build_core
from pgm.core.loss_observer import MissingView
from pgm.sim.checks.invariants import cheap_checkers
from pgm.sim.checks.repair_latency import RepairLatency
from pgm.sim.trees import DATA_PORT, TreeBuilder
from pgm.sim.world import World, tsi_of
from pgm.topology.node_plan import Role
from pgm.units import MILLISECOND, NEVER, SECOND
from pgm.wire.control_packets import Nak, encode
from pgm.wire.formats import Tsi
from pgm.wire.sequence_numbers import wrap
from pgm.wire.train import Train
from tests.sim.support.worlds import lossy, parameters, traffic

LOSS = 0.03
RATE, SIZE = 500, 1000
FROM_NS = 3 * SECOND
_STEP_NS = 5 * MILLISECOND
HOSTILE = "hostile"  # a receiver of the topology that runs another program
PLACES = ("source", "repairer", "relay")
FLOODS = ((6000, 0), (6000, 1), (6000, 100), (6000, 1000), (20_000, 1), (20_000, 100), (20_000, 1000))


class _InFlood(RepairLatency):
    """Repair latency of the gaps found while the flood lasts, and of those that are never filled."""

    def arrived(self, tsi: Tsi, found: Sequence[MissingView], now_ns: int) -> None:
        """Count gaps found during the flood."""
        super().arrived(tsi, [one for one in found if one.found_at_ns >= FROM_NS], now_ns)


@attrs.frozen
class Outcome:
    """Result of one flood. Latencies in ms, over all receivers."""

    lost: int
    repaired: int
    median_ms: float
    p99_ms: float
    most_ms: float
    braked: int  # NAKs of honest elements that their parents braked
    passed_up: int  # NAK packets that the flooded node sent to its parent while the flood lasted
    notices: tuple[tuple[str, str], ...]  # node, text


@attrs.frozen
class Flood:
    """NAKs for random packets of the source's window, from `addresses` in turn."""

    world: World
    target: str
    rate: int
    addresses: tuple[str, ...]
    until_ns: int
    rng: random.Random

    def step(self) -> None:
        """Send the NAKs of one step."""
        world = self.world
        if world.now_ns >= self.until_ns:
            return
        node = world.nodes[self.target]
        tsi = tsi_of("source", 0)
        ledger = world.ledgers[tsi]
        [down] = [one for one in node.attachments if one.segment.downstream]
        source = world.nodes["source"].plan.segments[0].address
        assert source is not None
        for _ in range(self.rate * _STEP_NS // SECOND):
            sqn = self.rng.randrange(max(ledger.first, ledger.end - 8 * RATE), ledger.end)
            nak = Nak(tsi=tsi, data_port=DATA_PORT, sqn=wrap(sqn), source_nla=source, group_nla=down.segment.group)
            node.hear(Train.of(encode(nak)), down.by_unicast, self.rng.choice(self.addresses))
        world.at(world.now_ns + _STEP_NS, self.step)


def tree(place: str, proof_ivl: int) -> TreeBuilder:
    """Return a tree whose `place` has six receivers. An innocent relay lies beside it."""
    common = parameters(txw_max_rte=1_400_000, txw_burst_ivl=20 * MILLISECOND, child_proof_ivl=proof_ivl)
    made = TreeBuilder(common)
    made.source("source", "core")
    made.aggregator("innocent", "core", "side", parents=("source",))
    if place == "relay":
        made.aggregator("relay", "core", "floor", parents=("source",))
    elif place == "repairer":
        made.repairer("repairer", "core", "floor", parents=("source",))
    segment = "core" if place == "source" else "floor"
    for index in range(6):
        made.receiver(f"desk-{index}", segment, place)
    made.receiver(HOSTILE, segment, place)
    for index in range(2):
        made.receiver(f"side-{index}", "side", "innocent")
    return made


def run(place: str, rate: int, addresses: int, *, for_s: int = 4, seed: int = 1, are_named: bool = True) -> Outcome:
    """Run one flood, from addresses outside the topology, or with 0 addresses from a receiver that it names.

    Without `are_named` the topology names no receivers, and they prove themselves before the flood."""
    world = World(build_core, seed=seed)
    latency = _InFlood()
    for checker in (*cheap_checkers(), latency):
        world.add_checker(checker)
    until_ns = FROM_NS + for_s * SECOND
    hostile = ""
    messages = RATE * until_ns // SECOND
    for plan in tree(place, SECOND).plans.values():
        if not are_named:
            named = attrs.evolve(plan.children, addresses=plan.children.elements, are_all=False)
            plan = attrs.evolve(plan, children=named)
        if plan.name == HOSTILE:
            hostile = plan.segments[0].address or ""
            continue
        offered = traffic(messages, size=SIZE, rate=RATE, close_at_ns=NEVER) if plan.role is Role.SOURCE else None
        wiring = None if plan.role is Role.SOURCE else lossy(LOSS)
        world.add_node(plan, wiring=wiring, traffic=offered)
    forged = tuple(f"10.99.{index >> 8}.{index & 255}" for index in range(addresses)) or (hostile,)
    flood = Flood(world, place, rate, forged, until_ns, random.Random(f"flood:{seed}"))
    world.at(FROM_NS, flood.step)
    world.run_until(FROM_NS)
    before = world.nodes[place].total("nak_packets")
    world.run_until(until_ns)
    passed_up = world.nodes[place].total("nak_packets") - before
    world.run_until(until_ns + 5 * SECOND)
    streams = [one for node in world.receivers for one in node.application.all_streams]  # type: ignore[union-attr]
    sent = world.ledgers[tsi_of("source", 0)].end
    lost = sum(one.lost_sqns for one in streams) + sum(sent - one.next_sqn for one in streams)
    elements = {plan.address for name in ("innocent", place) for plan in world.nodes[name].plan.segments}
    core = world.core_of("source")
    askers = [one for row in core.status(world.now_ns) for one in row.askers]
    return Outcome(
        lost=lost,
        repaired=latency.packets,
        median_ms=latency.quantile_ns(0.5) / MILLISECOND,
        p99_ms=latency.quantile_ns(0.99) / MILLISECOND,
        most_ms=latency.quantile_ns(1.0) / MILLISECOND,
        braked=sum(one.braked for one in askers if one.address in elements),
        passed_up=passed_up,
        notices=tuple((name, notice.text) for _, name, notice in world.log.notices),
    )


def main() -> None:
    """Print the table, of the floods at the named places."""
    print("| NAKs a second | addresses | at | lost | median | 99 % | longest | passed up a second |")
    print("|---|---|---|---|---|---|---|---|")
    are_named = "--unnamed" not in sys.argv
    for place in [one for one in sys.argv[1:] if one in PLACES] or PLACES:
        for rate, addresses in FLOODS:
            one = run(place, rate, addresses, for_s=3, are_named=are_named)
            print(
                f"| {rate:,} | {addresses:,} | {place} | {one.lost} | {one.median_ms:.0f} ms | {one.p99_ms:.0f} ms | "
                f"{one.most_ms:.0f} ms | {one.passed_up // 3:,} |",
                flush=True,
            )
            print(one.repaired, one.braked, set(one.notices), file=sys.stderr)


if __name__ == "__main__":
    main()
