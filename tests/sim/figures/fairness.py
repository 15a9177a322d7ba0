"""Shares of a congestion-controlled stream and of TCP flows on one line, with a picture.

python -m tests.sim.figures.fairness --plot docs/pictures/pgmcc.svg
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import attrs

from deploy.node.roles import build_core
from pgm.core.congestion.control import CongestionControl
from pgm.core.source.source import SourceCore
from pgm.impairments import Impairment
from pgm.sim.applications import ReceiverApplication, Traffic
from pgm.sim.checks.invariants import cheap_checkers
from pgm.sim.links import LinkSetup
from pgm.sim.trees import TreeBuilder
from pgm.sim.world import Wiring, World, tsi_of
from pgm.topology.node_plan import Role
from pgm.units import KIB, MILLISECOND, NEVER, SECOND
from tests.sim.figures.tcp import TcpFlow
from tests.sim.support.worlds import parameters

MS = MILLISECOND
LINE = 1_250_000  # octets a second: 10 Mbit/s
QUEUE = 64 * KIB
PACKET = 1400
HALF_TRIP = 20 * MS


@attrs.define
class Outcome:
    """Result: octets a second of each flow by tenths of a second, and the last acker."""

    stream: list[float]
    tcp: list[list[float]]
    acker: str | None
    world: World

    def share(self, from_s: float, until_s: float) -> float:
        """Return the stream's throughput as a multiple of the mean TCP flow."""
        cut = slice(round(from_s * 10), round(until_s * 10))
        mean = sum(sum(one[cut]) for one in self.tcp) / len(self.tcp)
        return sum(self.stream[cut]) / mean


def congestion_of(world: World) -> CongestionControl:
    """Return the congestion control of the running source."""
    core = world.core_of("source")
    assert isinstance(core, SourceCore)
    assert isinstance(core.flow, CongestionControl)
    return core.flow


def floor(receivers: int, **changes: Any) -> TreeBuilder:
    """Return a tree of a source, a line to a relay, and receivers below the relay."""
    tree = TreeBuilder(parameters(txw_max_rte=12_500_000, **changes), flow="pgmcc")
    tree.source("source", "core")
    tree.repairer("relay", "core", "floor", parents=("source",))
    for index in range(receivers):
        tree.receiver(f"receiver-{index}", "floor", "relay")
    return tree


def run(flows: int = 1, seconds: int = 60, receivers: int = 3, seed: int = 1, worse: float = 0.0) -> Outcome:
    """Run the stream beside `flows` of TCP on the line to the relay.

    `worse` is the loss of the last receiver's own link.
    """
    world = World(build_core, seed=seed)
    for checker in cheap_checkers():
        world.add_checker(checker)
    offered = Traffic(10_000_000, size=PACKET - 24, burst=20, start_ns=SECOND, close_at_ns=NEVER)
    line = Wiring(ingress=LinkSetup(delay=HALF_TRIP, rate=LINE, queue=QUEUE))
    for plan in floor(receivers).plans.values():
        wiring: Any = None
        if plan.name == "relay":
            wiring = {"core": line}
        elif plan.name == f"receiver-{receivers - 1}":
            wiring = Wiring(ingress=LinkSetup(impairment=Impairment(loss=worse)))
        elif plan.role is Role.SOURCE:
            wiring = Wiring(ingress=LinkSetup(delay=HALF_TRIP))
        world.add_node(plan, wiring=wiring, traffic=offered if plan.role is Role.SOURCE else None)
    shared = world.nodes["relay"].attachments[0].ingress
    tcp = [
        TcpFlow(world, shared, packet=PACKET, back_ns=HALF_TRIP, starts_ns=SECOND + one * 100 * MS)
        for one in range(flows)
    ]
    stream: list[float] = []
    application = world.nodes["receiver-0"].application
    assert isinstance(application, ReceiverApplication)
    before = 0
    for tenth in range(1, seconds * 10 + 1):
        world.run_until(tenth * 100 * MS)
        got = application.streams.get(tsi_of("source", 0))
        now = 0 if got is None else got.delivered_sqns
        stream.append((now - before) * PACKET * 10.0)
        before = now
    return Outcome(stream, [_by_tenth(one.delivered, seconds) for one in tcp], congestion_of(world).acker, world)


def _by_tenth(delivered: list[int], seconds: int) -> list[float]:
    rates = [0.0] * (seconds * 10)
    for at_ns in delivered:
        if at_ns < seconds * SECOND:
            rates[at_ns // (100 * MS)] += PACKET * 10.0
    return rates


def smooth(rates: list[float], tenths: int = 20) -> list[float]:
    """Return moving means over two seconds."""
    return [sum(rates[max(0, at - tenths) : at + 1]) / min(at + 1, tenths + 1) for at in range(len(rates))]


def plot(outcomes: dict[str, Outcome], path: Path) -> None:
    """Write the picture: a panel for each outcome."""
    import matplotlib as mpl  # imported here, since only the picture needs the slow import

    mpl.use("svg")
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(len(outcomes), 1, figsize=(7, 2.4 * len(outcomes)), sharex=True, squeeze=False)
    for panel, (title, outcome) in zip(panels[:, 0], outcomes.items(), strict=True):
        times = [at / 10 for at in range(0, len(outcome.stream), 5)]
        for index, one in enumerate(outcome.tcp):
            panel.plot(
                times, [rate * 8e-6 for rate in smooth(one)[::5]], lw=0.9, color="0.6", label=None if index else "TCP"
            )
        panel.plot(times, [rate * 8e-6 for rate in smooth(outcome.stream)[::5]], lw=1.4, label="pgmcc")
        panel.set_ylabel("Mbit/s")
        panel.set_title(title, fontsize=9)
        panel.legend(loc="upper right", fontsize=8)
    panels[-1, 0].set_xlabel("seconds")
    figure.tight_layout()
    figure.savefig(path, format="svg", metadata={"Date": None})


def main() -> None:
    """Run the comparison from the command line."""
    parser = argparse.ArgumentParser(description="A pgmcc stream beside TCP on a line of 10 Mbit/s, 40 ms round trip.")
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--plot", type=Path, help="file for the picture, as SVG")
    given = parser.parse_args()
    outcomes: dict[str, Outcome] = {}
    for flows in (1, 3):
        outcome = run(flows, given.seconds)
        half = given.seconds / 3
        print(
            f"{flows} TCP: pgmcc has {outcome.share(half, given.seconds):.2f} of a flow of TCP, acker {outcome.acker}"
        )
        outcomes[f"pgmcc and {flows} TCP on 10 Mbit/s"] = outcome
    if given.plot:
        plot(outcomes, given.plot)


if __name__ == "__main__":
    main()
