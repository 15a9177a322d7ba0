"""Goodput after the trigger of a storm, by trigger, tree and load.

`python -m tests.sim.figures.storms` prints the table of docs/guide/flow-control.md. With `--write` it also pastes the
table into the page. The 54 cells take some five minutes. `tests.sim.support.storms` describes a cell.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pgm.units import SECOND
from tests.sim.support.storms import LOADS, TREES, TRIGGERS, Outcome, run
from tests.tidy.shared_tables import paste

PAGE = Path(__file__).resolve().parents[3] / "docs" / "guide" / "flow-control.md"

Grid = dict[tuple[str, str, float], Outcome]


def _cell(one: Outcome) -> str:
    text = f"{one.back_ns / SECOND:.1f}, {one.in_order_back_ns / SECOND:.1f} ({one.least_ns / SECOND:.1f})"
    return text if one.holds else f"**{text}**"


def table(found: Grid) -> str:
    """Return the table of the page. Cells that do not hold are bold."""
    loads = " | ".join(f"load {100 * load:.0f} %" for load in LOADS)
    lines = [f"| trigger | tree | {loads} | lost | repairs |", "|---|---|---|---|---|---|---|"]
    for trigger in TRIGGERS:
        for tree in TREES:
            cells = [found[trigger, tree, load] for load in LOADS]
            lost = f"{sum(one.lost for one in cells):,}"
            most = f"{100 * max(one.repair_share for one in cells):.0f} %"
            lines.append(f"| {trigger} | {tree} | {' | '.join(map(_cell, cells))} | {lost} | {most} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    """Run all cells, and print the table; paste it with --write. Return 1 if a cell does not hold."""
    found: Grid = {}
    for trigger, what in TRIGGERS.items():
        for tree, shape in TREES.items():
            for load in LOADS:
                found[trigger, tree, load] = one = run(what, load, shape)
                print(f"{trigger}, {tree}, {load}: {_cell(one)}", file=sys.stderr, flush=True)
    printed = table(found)
    print(printed)
    if "--write" in sys.argv[1:]:
        PAGE.write_text(paste(PAGE.read_text(), printed))
    return 0 if all(one.holds for one in found.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
