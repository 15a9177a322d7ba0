"""Savings by parity: repairs and NAKs of one subnet with and without it, beside the formula of integrated parity.

The tree is one source with 100 receivers on its subnet. Each receiver loses 5 % of all packets independently. The table
and the picture are those of docs/guide/parity.md.
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from deploy.terminal.svg import COLOURS, axes, svg
from pgm.models.parity import sends_with_parity
from pgm.models.sends import sends_per_packet
from tests.sim.figures.models.rows import Picture, Row, spaced
from tests.sim.figures.models.runs import run
from tests.sim.figures.models.sends import flat
from tests.sim.support.worlds import lossy

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
    """Cost of one run, in packets sent."""

    data: int  # sent for the first time
    unasked: int  # proactive parity, sent with its group
    repairs: int  # RDATA, with parity or without
    naks: int  # of all receivers
    useless: int  # data and parity packets that a receiver did not need, summed over receivers


def tally(changes: dict[str, int], *, receivers: int = RECEIVERS, packets: int = PACKETS, seed: int = 1) -> Tally:
    """Run one mode to its end, where every receiver has all data."""
    world, _ = run(flat(receivers, **changes), {"receiver": lossy(LOSS)}, packets, seed=seed)
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
    """Return the table of the page."""
    lines = [
        "| | sent unasked | repairs | NAKs | useless at each receiver | all packets for 100 of data |",
        "|---|---|---|---|---|---|",
    ]
    for mode, one in tallies.items():
        whole = 100 * (one.data + one.unasked + one.repairs) / one.data
        lines.append(f"| {mode} | {one.unasked} | {one.repairs} | {one.naks} | {one.useless} | {whole:.0f} |")
    return "\n".join(lines)


def draw_savings(tallies: dict[str, Tally]) -> str:
    """Return the picture of the page as SVG."""
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


def rows(tallies: Mapping[str, Tally], receivers: int = RECEIVERS) -> list[Row]:
    """Return the packets sent for a packet of data, beside the formula."""
    found = []
    for mode, one in tallies.items():
        changes = MODES[mode]
        whole = (one.data + one.unasked + one.repairs) / one.data
        if changes:
            group, unasked = changes["fec_group"], changes.get("fec_proactive", 0)
            formula = sends_with_parity(LOSS, receivers, group=group, unasked=unasked)
        else:
            formula = sends_per_packet(LOSS, receivers)
        case = f"{receivers} receivers, {LOSS:.0%}, {mode}"
        found.append(Row(case, "sends", whole, formula, series=mode, x=receivers))
    return found


def picture() -> Picture:
    """Return the packets sent over the number of receivers, for groups of three sizes."""
    numbers = spaced(1, 1e6)
    curves = {"no parity": [sends_per_packet(LOSS, one) for one in numbers]}
    for group in (8, 32, 128):
        curves[f"groups of {group}"] = [sends_with_parity(LOSS, one, group=group) for one in numbers]
    return Picture("receivers", f"packets for one of data, {LOSS:.0%}", numbers, curves)
