"""Tables and pictures of docs/internals/models.md, and the savings of docs/guide/parity.md.

`python -m tests.sim.figures.models` prints all tables. With `--write` it also pastes them into the pages, and draws the
pictures. `python -m tests.sim.figures.models parity` runs one part. All parts take some eleven minutes of a core.
"""

from __future__ import annotations

import argparse
import functools
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import attrs

from tests.sim.figures.models import back_offs, latencies, parity, rates, sends, trees
from tests.sim.figures.models.rows import Picture, Row, table
from tests.tidy.shared_tables import paste

DOCS = Path(__file__).resolve().parents[4] / "docs"
PAGE, PARITY_PAGE = DOCS / "internals" / "models.md", DOCS / "guide" / "parity.md"


@attrs.frozen
class Part:
    """Part of the page: the first column of its table, its rows, and its picture."""

    head: str
    rows: Callable[[], Iterable[Row]]
    picture: Callable[[], Picture] | None = None


@functools.cache  # the rows, the table of the guide and its picture come from the same runs
def _tallies() -> dict[str, parity.Tally]:
    return {mode: parity.tally(changes) for mode, changes in parity.MODES.items()}


def _parity() -> list[Row]:
    return parity.rows(_tallies())


PARTS: dict[str, Part] = {
    "sends": Part("link", sends.rows, sends.picture),
    "parity": Part("groups", _parity, parity.picture),
    "back-off": Part("segment", back_offs.rows, back_offs.picture),
    "tree": Part("tree", trees.rows),
    "pgmcc": Part("path", rates.rows, rates.picture),
    "latency": Part("receivers", latencies.rows),
}


def _savings() -> None:
    """Paste the table of savings by parity, and draw its picture."""
    tallies = _tallies()
    PARITY_PAGE.write_text(paste(PARITY_PAGE.read_text(), f"{parity.table(tallies)}\n"))
    (DOCS / "pictures" / "parity.svg").write_text(parity.draw_savings(tallies))


def main() -> int:
    """Run the parts. Return 1 if a row differs from its formula by more than 5 % without a cause."""
    parser = argparse.ArgumentParser("python -m tests.sim.figures.models", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"one of {', '.join(PARTS)}; all by default")
    parser.add_argument("--write", action="store_true", help="write tables and pictures into docs")
    given = parser.parse_args()
    if unknown := set(given.parts) - set(PARTS):
        parser.error(f"unknown part {min(unknown)!r}: choose from {', '.join(PARTS)}")
    holds = True
    for name in given.parts or PARTS:
        part, found = PARTS[name], []
        for row in part.rows():
            print(f"{row.case}: {row.quantity} {row.measured:.4g}, {row.error:+.1%}", file=sys.stderr, flush=True)
            found.append(row)
        print(table(part.head, found), flush=True)
        holds = holds and all(row.holds for row in found)
        if given.write:
            PAGE.write_text(paste(PAGE.read_text(), table(part.head, found)))
            if part.picture is not None:
                (DOCS / "pictures" / f"model-{name}.svg").write_text(part.picture().draw(found))
            if name == "parity":
                _savings()
    return int(not holds)


if __name__ == "__main__":
    sys.exit(main())
