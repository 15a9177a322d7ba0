"""One receiver with excessive NAKs: its cost for other receivers, with a small budget and without.

`python -m tests.sim.support.excess_naks` prints the table of docs/guide/receiving.md. With `--write` it also draws
docs/pictures/excess-naks.svg. A repairer's subnet has 10 receivers with 1 % loss. One more receiver loses 60 % from the fifth second on.
"""

from __future__ import annotations

import functools
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import attrs

from deploy.node.roles import build_core
from deploy.terminal.svg import COLOURS, axes, svg
from pgm.core.effects import Notice, Send
from pgm.core.loss_observer import MissingView
from pgm.impairments import Impairment
from pgm.sim.checks.checker import Checker
from pgm.sim.checks.invariants import cheap_checkers
from pgm.sim.checks.repair_latency import RepairLatency
from pgm.sim.links import LinkSetup, SimulatedLink
from pgm.sim.node import SimulatedNode
from pgm.sim.trees import TreeBuilder
from pgm.sim.world import World
from pgm.topology.node_plan import Role
from pgm.units import MICROSECOND, MILLISECOND, SECOND
from pgm.wire.formats import PacketType, Tsi
from pgm.wire.train import Data, Train
from tests.sim.support.worlds import lossy, parameters, traffic

PICTURE = Path(__file__).resolve().parents[3] / "docs" / "pictures" / "excess-naks.svg"
BAD, REPAIRER = "bad", "repairer"
LOSS, EXCESS_LOSS, EXCESS_FROM_S = 0.01, 0.6, 5
FROM_S, TO_S = 20, 30  # the measured interval
RATE, SIZE = 1000, 1000


class Repairs(Checker):
    """RDATA that the repairer sends on its subnet, by second."""

    def __init__(self) -> None:
        self.by_second: Counter[int] = Counter()

    def sent(self, node: SimulatedNode, send: Send, train: Train) -> None:
        if node.name != REPAIRER or not send.is_data:
            return
        for item in train.parse_untrusted()[0]:
            if isinstance(item, Data) and item.type is PacketType.RDATA:
                self.by_second[self.world.now_ns // SECOND] += item.count


class OthersOnly(RepairLatency):
    """Repair latency of all receivers but the one with excessive NAKs."""

    def started(self, node: SimulatedNode) -> None:
        if node.name != BAD:
            super().started(node)

    def arrived(self, tsi: Tsi, found: Sequence[MissingView], now_ns: int) -> None:
        """Count gaps found while the budget applies, and before the loss ends."""
        super().arrived(tsi, [one for one in found if FROM_S * SECOND <= one.found_at_ns < TO_S * SECOND], now_ns)


@attrs.frozen
class Outcome:
    """Result of one run."""

    repairs: dict[int, int]  # by second
    p50_ms: float  # of the others' repairs
    p99_ms: float
    others_lost: int
    notices: list[tuple[float, str, Notice]]  # second, node


def _set_loss(world: World, loss: float) -> None:
    """Set the loss of the receiver with excessive NAKs from now on."""
    [attachment] = world.nodes[BAD].attachments
    attachment.ingress = SimulatedLink(
        LinkSetup(delay=50 * MICROSECOND, impairment=Impairment(loss=loss)), f"{BAD}:{loss}"
    )


def run(
    *, seconds: int, receivers: int = 10, heals_at_s: int | None = None, seed: int = 1, **changes: object
) -> Outcome:
    """Run one subnet behind a repairer for `seconds`."""
    common = {"txw_max_rte": 1_400_000, "txw_burst_ivl": 20 * MILLISECOND, **changes}
    tree = TreeBuilder(parameters(**common))
    tree.source("source", "core")
    tree.repairer(REPAIRER, "core", "floor", parents=("source",))
    for index in range(receivers):
        tree.receiver(f"desk-{index}", "floor", REPAIRER)
    tree.receiver(BAD, "floor", REPAIRER)
    world = World(build_core, seed=seed)
    repairs, others = Repairs(), OthersOnly()
    for checker in (*cheap_checkers(), repairs, others):
        world.add_checker(checker)
    for name, plan in tree.plans.items():
        is_source = name == "source"
        offered = traffic(seconds * RATE, size=SIZE, rate=RATE, burst=10) if is_source else None
        wiring = lossy(LOSS) if plan.role is Role.RECEIVER else None
        world.add_node(plan, wiring=wiring, traffic=offered)
    for at_s, loss in ((EXCESS_FROM_S, EXCESS_LOSS), (heals_at_s, LOSS)):
        if at_s is not None:
            world.at(at_s * SECOND, functools.partial(_set_loss, world, loss))
    world.run_until((seconds + 1) * SECOND)
    lost = sum(one.lost_sqns for node in world.receivers if node.name != BAD for one in node.application.all_streams)
    return Outcome(
        repairs=dict(repairs.by_second),
        p50_ms=others.quantile_ns(0.5) / MILLISECOND,
        p99_ms=others.quantile_ns(0.99) / MILLISECOND,
        others_lost=lost,
        notices=[(at / SECOND, name, notice) for at, name, notice in world.log.notices],
    )


MODES: dict[str, dict[str, object]] = {
    "nobody looks": {"excess_nak_window_ivl": 0},
    "a small budget": {},
    "and it asks for less itself": {"excess_nak_policy": "lower"},
}
SECONDS, HEALS_AT_S = 60, 30


def table(outcomes: dict[str, Outcome]) -> str:
    """Return the table of the page."""
    lines = ["| | repairs a second | others wait, median | 99 % | others lose |", "|---|---|---|---|---|"]
    for mode, one in outcomes.items():
        busy = sum(count for second, count in one.repairs.items() if FROM_S <= second < TO_S) / (TO_S - FROM_S)
        waits = f"{one.p50_ms:.0f} ms | {one.p99_ms:.0f} ms" if one.p50_ms else "in vain | in vain"
        lines.append(f"| {mode} | {busy:.0f} | {waits} | {one.others_lost} |")
    return "\n".join(lines)


def draw(outcomes: dict[str, Outcome]) -> str:
    """Return the picture of the page as SVG."""
    figure, axis = axes(3.0)
    for colour, (mode, one) in zip(COLOURS, outcomes.items(), strict=False):
        axis.plot(range(SECONDS), [one.repairs.get(second, 0) for second in range(SECONDS)], color=colour, label=mode)
    axis.set_xlabel("second")
    axis.set_ylabel("repairs a second on the subnet")
    axis.set_ylim(bottom=0)
    axis.legend(frameon=False, loc="lower center", ncols=3)
    return svg(figure)


def main() -> None:
    """Print the table; draw the picture with --write."""
    outcomes = {}
    for mode, changes in MODES.items():
        print(f"{mode} ...", file=sys.stderr, flush=True)
        outcomes[mode] = run(seconds=SECONDS, heals_at_s=HEALS_AT_S, **changes)
        for at, node, notice in outcomes[mode].notices:
            print(f"  {at:.1f} {node} {notice.code}: {notice.text}", file=sys.stderr)
    print(table(outcomes))
    if "--write" in sys.argv[1:]:
        PICTURE.write_text(draw(outcomes))


if __name__ == "__main__":
    main()
