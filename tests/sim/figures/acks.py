"""What acks of an acknowledged stream cost its source, by the number of receivers.

`python -m tests.sim.figures.acks` prints the table of docs/guide/flow-control.md; with `--write` it draws docs/pictures/acked.svg too. 1,000 messages to
100, 1,000 and 10,000 receivers below ten relays (`tests.sim.support.acked`); the last takes some three minutes.
"""

from __future__ import annotations

import sys
from pathlib import Path

from deploy.terminal.svg import COLOURS, axes, logarithmic, svg
from tests.sim.support.acked import RELAYS_AT_THE_TOP, run

PICTURE = Path(__file__).resolve().parents[3] / "docs" / "pictures" / "acked.svg"
SIZES = (100, 1_000, 10_000)


def table(found: list[dict[str, int]]) -> str:
    """The table of the page."""
    lines = ["| receivers | acks that they send | acks at the source | of each of its children |", "|---|---|---|---|"]
    for one in found:
        sent, came = one["acks_sent_by_receivers"], one["acks_in"]
        lines.append(f"| {one['receivers']:,} | {sent:,} | {came:,} | {came / RELAYS_AT_THE_TOP:.1f} |")
    return "\n".join(lines)


def draw(found: list[dict[str, int]]) -> str:
    """The picture of the page."""
    figure, axis = axes(3.0)
    sizes = [one["receivers"] for one in found]
    axis.plot(
        sizes, [one["acks_sent_by_receivers"] for one in found], "o-", color=COLOURS[1], label="sent by receivers"
    )
    axis.plot(sizes, [one["acks_in"] for one in found], "o-", color=COLOURS[0], label="at the source")
    logarithmic(axis.xaxis, axis.set_xscale)
    logarithmic(axis.yaxis, axis.set_yscale)
    axis.set_ylim(bottom=10)
    axis.set_xlabel("receivers")
    axis.set_ylabel("acks for 1,000 messages")
    axis.legend(frameon=False)
    return svg(figure)


def main() -> None:
    """Print the table; draw the picture with --write."""
    found = []
    for receivers in SIZES:
        print(f"{receivers:,} receivers ...", file=sys.stderr, flush=True)
        found.append(run(receivers))
    print(table(found))
    if "--write" in sys.argv[1:]:
        PICTURE.write_text(draw(found))


if __name__ == "__main__":
    main()
