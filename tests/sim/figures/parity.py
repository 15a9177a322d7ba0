"""What parity spares: repairs and NAKs of one subnet with and without it, in the simulator.

`python -m tests.sim.figures.parity` prints the table of docs/guide/parity.md; with `--write` it draws docs/pictures/parity.svg too. One source,
100 receivers on its subnet, each losing 5 % of all packets by itself.
"""

from __future__ import annotations

import sys
from pathlib import Path

import attrs

from deploy.node.roles import build_core
from deploy.terminal.svg import COLOURS, axes, svg
from pgm.sim.checks.invariants import cheap_checkers
from pgm.sim.trees import TreeBuilder
from pgm.sim.world import World
from tests.sim.support.worlds import finish, lossy, parameters, traffic

PICTURE = Path(__file__).resolve().parents[3] / "docs" / "pictures" / "parity.svg"
RECEIVERS, LOSS, PACKETS = 100, 0.05, 1280
MODES: dict[str, dict[str, int]] = {
    "no parity": {},
    "groups of 8": {"fec_group": 8},
    "groups of 32": {"fec_group": 32},
    "groups of 128": {"fec_group": 128},
    "32, and 2 unasked": {"fec_group": 32, "fec_proactive": 2},
    "32, and 5 unasked": {"fec_group": 32, "fec_proactive": 5},
}


@attrs.frozen
class Tally:
    """What one run cost, packets sent in it."""

    data: int  # sent once
    unasked: int  # parity sent with its group
    repairs: int  # RDATA, parity or not
    naks: int  # of all receivers
    useless: int  # data and parity packets that receivers had no use for, each


def tally(changes: dict[str, int], *, receivers: int = RECEIVERS, packets: int = PACKETS, seed: int = 1) -> Tally:
    """Run one mode to its end: everybody has everything."""
    tree = TreeBuilder(parameters(**changes))
    tree.source("source", "lan")
    for index in range(receivers):
        tree.receiver(f"receiver-{index}", "lan", "source")
    world = World(build_core, seed=seed)
    for checker in cheap_checkers():
        world.add_checker(checker)
    for name, plan in tree.plans.items():
        is_source = name == "source"
        offered = traffic(packets, size=1000, rate=2000, burst=20) if is_source else None
        world.add_node(plan, wiring=None if is_source else lossy(LOSS), traffic=offered)
    finish(world)
    sent = world.nodes["source"].counters[0]
    heard = [node.counters[0] for node in world.receivers]
    return Tally(
        data=packets,
        unasked=sent.odata_packets - packets,
        repairs=sent.rdata_packets,
        naks=sum(one.nak_packets for one in heard),
        useless=sum(one.duplicate_packets + one.parity_packets_unused for one in heard) // receivers,
    )


def table(tallies: dict[str, Tally]) -> str:
    """The table of the page."""
    lines = [
        "| | sent unasked | repairs | NAKs | useless at each receiver | all packets for 100 of data |",
        "|---|---|---|---|---|---|",
    ]
    for mode, one in tallies.items():
        whole = 100 * (one.data + one.unasked + one.repairs) / one.data
        lines.append(f"| {mode} | {one.unasked} | {one.repairs} | {one.naks} | {one.useless} | {whole:.0f} |")
    return "\n".join(lines)


def draw(tallies: dict[str, Tally]) -> str:
    """The picture of the page."""
    figure, axis = axes(3.2)
    places = range(len(tallies))
    unasked = [100 * one.unasked / one.data for one in tallies.values()]
    repairs = [100 * one.repairs / one.data for one in tallies.values()]
    naks = [100 * one.naks / one.data for one in tallies.values()]
    axis.bar([at - 0.2 for at in places], unasked, 0.4, color=COLOURS[2], label="parity sent unasked")
    axis.bar([at - 0.2 for at in places], repairs, 0.4, bottom=unasked, color=COLOURS[0], label="repairs")
    axis.bar([at + 0.2 for at in places], naks, 0.4, color=COLOURS[1], label="NAKs of all receivers")
    axis.set_xticks(list(places), [mode.replace(", ", ",\n") for mode in tallies])
    axis.set_ylabel("for 100 packets of data")
    axis.legend(frameon=False)
    return svg(figure)


def main() -> None:
    """Print the table; draw the picture with --write."""
    tallies = {}
    for mode, changes in MODES.items():
        print(f"{mode} ...", file=sys.stderr, flush=True)
        tallies[mode] = tally(changes)
    print(table(tallies))
    if "--write" in sys.argv[1:]:
        PICTURE.write_text(draw(tallies))


if __name__ == "__main__":
    main()
