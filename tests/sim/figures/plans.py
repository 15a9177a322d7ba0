"""Predictions of `pgm plan` beside simulations of ten trees with the production cores.

`python -m tests.sim.figures.plans` prints the table of docs/internals/predictions.md: sends and NAKs per packet on all links
together, and the median and 99 % of the waits of all receivers.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable

import attrs

from deploy.node.roles import build_core
from pgm.prediction.delays import delays_of
from pgm.prediction.predict import Conditions, FeedPrediction, Offer, predict_feed
from pgm.prediction.tree import feeds_of
from pgm.prediction.waits import quantile_ns
from pgm.sim.checks.repair_latency import RepairLatency
from pgm.sim.links import LinkSetup
from pgm.sim.load import Load, NetworkConditions
from pgm.sim.runs.report import Observation, simulate
from pgm.sim.world import Wiring
from pgm.topology.load import loads
from pgm.topology.model import Topology
from pgm.topology.plan import plan_all
from pgm.units import MILLISECOND
from tests.sim.figures.models.runs import LinkTraffic
from tests.sim.support.files import NO_CACHE, TreeFile, floors

PACKETS = 6000
SIZE = 1000
_FIGURES = ("sends", "naks", "p50_ms", "p99_ms")
TOLERANCE = {"sends": 0.05, "naks": 0.2, "p50_ms": 0.25, "p99_ms": 0.5}


@attrs.frozen
class Figures:
    """Sends and NAKs per packet, and waits in ms."""

    sends: float
    naks: float
    p50_ms: float
    p99_ms: float


@attrs.frozen
class Row:
    """One tree."""

    tree: str
    predicted: Figures
    measured: Figures

    def error(self, figure: str) -> float:
        """Return the difference from the measured figure, as a share of it."""
        return float(getattr(self.predicted, figure) / getattr(self.measured, figure) - 1)


def flat(receivers: int, loss: str, **head: str) -> TreeFile:
    """Return a source and receivers on its segment."""
    tree = TreeFile(**head)
    tree.segment("core", loss)
    tree.source("core")
    tree.receivers("core", receivers, "source", first=50)
    return tree


def uneven_flat() -> TreeFile:
    """Return a source, twenty receivers that lose 0.5 %, and five that lose 8 %."""
    tree = flat(20, "0.5%")
    tree.receivers("core", 5, "source", loss="8%", first=100)
    return tree


def with_repairers() -> TreeFile:
    """Return four floors whose relays keep nothing, each with a repairer."""
    tree = TreeFile()
    tree.segment("core")
    tree.source("core")
    for number in range(1, 5):
        floor = f"floor-{number}"
        tree.segment(floor, "3%")
        relay = tree.relay("core", floor, "0.5%", more=NO_CACHE)
        tree.receivers(floor, 10, tree.repairer(floor, relay), relay)
    return tree


def three_tiers() -> TreeFile:
    """Return two houses with two floors each, behind relays that keep packets."""
    tree = TreeFile(rate="40Mbit/s")
    tree.segment("core")
    tree.source("core")
    for house in (1, 2):
        tree.segment(f"house-{house}")
        upper = tree.relay("core", f"house-{house}", "1%")
        for floor in (1, 2):
            name = f"floor-{house}-{floor}"
            tree.segment(name, "2%")
            tree.receivers(name, 8, tree.relay(f"house-{house}", name, "1%", upper))
    return tree


def wan() -> TreeFile:
    """Return two offices behind repairers at the end of long lines."""
    tree = TreeFile(rtt="80ms", profile="wan", rate="40Mbit/s")
    tree.segment("core")
    tree.source("core")
    for number, loss in enumerate(("0.1%", "1%"), 1):
        office = f"office-{number}"
        tree.segment(office, loss)
        tree.receivers(office, 10, tree.relay("core", office, "2%", role="repairer"))
    return tree


def hall() -> TreeFile:
    """Return a hall whose devices lose packets in bursts, with a relay and a repairer that both repair."""
    tree = TreeFile(rtt="4ms", profile="lossy", rate="40Mbit/s")
    tree.segment("core")
    tree.source("core")
    tree.segment("hall", "3%", ', burst_loss = "2%", burst_length = 6')
    relay = tree.relay("core", "hall", "0%", more='repairers = ["repairer-hall"]\n')
    helper = tree.repairer("hall", relay)
    tree.receivers("hall", 16, relay, helper)
    return tree


TREES: dict[str, Callable[[], TreeFile]] = {
    "30 receivers, 2 %": lambda: flat(30, "2%"),
    "150 receivers, 0.2 %, 8 Mbit/s": lambda: flat(150, "0.2%", rate="8Mbit/s"),
    "20 receivers at 0.5 %, 5 at 8 %": uneven_flat,
    "4 floors of 10, 3 %": lambda: floors(["3%"] * 4, [10] * 4, "0.5%"),
    "6 floors of 8 behind repairers, 1 %, 20 ms": lambda: floors(["1%"] * 6, [8] * 6, "1%", role="repairer", rtt="20ms"),
    "4 floors of 10, relays without cache, 1 %": lambda: floors(["1%"] * 4, [10] * 4, "0.5%", keeps=False),
    "the same with a repairer each, 3 %": with_repairers,
    "three tiers, 2 %": three_tiers,
    "two offices, 80 ms": wan,
    "hall of 16, bursts, repaired twice": hall,
}  # fmt: skip


def predicted(topology: Topology) -> FeedPrediction:
    """Return the prediction of the only feed."""
    [feed] = feeds_of(topology)
    conditions = Conditions(delays=delays_of(topology, {}, ()), offer=Offer(size=SIZE))
    return predict_feed(topology, feed, conditions)


def measured(topology: Topology, packets: int, seed: int) -> Figures:
    """Run a tree to its end, and return its figures."""
    plans, delays = plan_all(topology), delays_of(topology, {}, ())
    wiring = {
        name: {seat.name: Wiring(ingress=LinkSetup(delay=delays[seat.name])) for seat in plan.segments}
        for name, plan in plans.items()
    }
    traffic, waits = LinkTraffic(), RepairLatency()
    report = simulate(
        plans,
        build_core,
        seed=seed,
        load=Load(messages=packets, size=SIZE),
        conditions=NetworkConditions(wiring=wiring),
        observation=Observation(checkers=(traffic, waits)),
    )
    count = report["source"]["odata"]
    return Figures(
        sends=sum(traffic.packets.values()) / count,
        naks=sum(traffic.naks.values()) / count,
        p50_ms=waits.quantile_ns(0.5) / MILLISECOND,
        p99_ms=waits.quantile_ns(0.99) / MILLISECOND,
    )


def row(tree: str, *, packets: int = PACKETS, seed: int = 1) -> Row:
    """Return the row of a tree."""
    topology = loads(TREES[tree]().text, tree)
    found = predicted(topology)
    figures = Figures(
        sends=sum(counts.sends for counts in found.counts.values()),
        naks=sum(counts.naks for counts in found.counts.values()),
        p50_ms=quantile_ns(found.all_waits, 0.5) / MILLISECOND,
        p99_ms=quantile_ns(found.all_waits, 0.99) / MILLISECOND,
    )
    return Row(tree, figures, measured(topology, packets, seed))


def line(found: Row) -> str:
    """Return the line of a row in the table of the page."""
    cells = [found.tree]
    for figure, form in zip(_FIGURES, ("{:.3f}", "{:.3f}", "{:.1f} ms", "{:.1f} ms"), strict=True):
        values = (getattr(found.predicted, figure), getattr(found.measured, figure))
        cells += [*(form.format(value) for value in values), f"{100 * found.error(figure):+.0f} %"]
    return f"| {' | '.join(cells)} |"


def main() -> int:
    """Print the table. Return 1 if an error exceeds its tolerance."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--packets", type=int, default=PACKETS, help="packets of a run")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    heads = ["tree", *(head for name in ("sends", "NAKs", "median", "99 %") for head in (name, "measured", "error"))]
    print(f"| {' | '.join(heads)} |\n|{'---|' * len(heads)}")
    found = []
    for tree in TREES:
        found.append(row(tree, packets=given.packets, seed=given.seed))
        print(line(found[-1]), flush=True)
    worst = {figure: max(abs(one.error(figure)) for one in found) for figure in _FIGURES}
    print("largest error: " + ", ".join(f"{figure} {share:.1%}" for figure, share in worst.items()), file=sys.stderr)
    return int(any(worst[figure] > TOLERANCE[figure] for figure in _FIGURES))


if __name__ == "__main__":
    sys.exit(main())
