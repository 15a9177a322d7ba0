"""Matrix of peers against cases, and the page that shows it.

`python -m tests.interop.matrix --write` writes docs/reference/interop.md.

A test module takes part by a module-level `CELLS`. For every row (peers and their version) and every case, `CELLS`
holds the test, or a sentence with the reason for its absence. Paragraphs in a module-level `NOTES` go onto the page
unchanged.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, TypeAlias

ROOT = Path(__file__).resolve().parents[2]
FOLDER = Path(__file__).parent

Cell: TypeAlias = Callable[..., Any] | str  # a test, or the reason for its absence
Cells: TypeAlias = dict[str, dict[str, Cell]]  # row -> case -> cell

CASES = {
    "data": "messages of all sizes, nothing lost on the way",
    "loss5": "5 % of all packets lost, NAKs included, over single packets and, if a peer sends them, over trains",
    "burst": "many packets in a row lost, again and again",
    "tail": "the last packets before a pause lost: only an SPM shows the gap",
    "latejoin": "a receiver that starts in the middle of a stream gets everything from there on",
    "restart-source": "the source is killed and restarted: a new session, and no packet of either is missing",
    "restart-repairer": "a repairer is killed in the middle of a stream and restarted",
    "flat-lan": "source, receivers and a repairer of this project on one LAN: the repairer repairs and never sends an SPM",
    "two-repairers": "two repairers; the first one is killed",
    "fragments": "messages of many packets, with loss",
    "wrap": "sequence numbers cross 2^32, with loss",
    "nak-list": "many losses requested at once in NAK lists",
    "spmr": "a receiver requests an SPM from a source that rarely sends one",
    "mtu": "packets far smaller and far larger than an Ethernet frame",
    "idle": "a long silence, then more messages",
}

_HEAD = """\
# Interoperability

`python -m tests.interop.matrix --write` prints this page from the tests in `tests/interop`. Every cell is a test with real processes in
network namespaces: the commands of this project, and the peers' own libraries as Debian ships them. "Whole" means every message, in order,
once, octet for octet.
"""


def modules() -> list[ModuleType]:
    """Return the test modules of this folder that take part."""
    names = sorted(path.stem for path in FOLDER.glob("test_*.py"))
    found = [importlib.import_module(f"tests.interop.{name}") for name in names]
    return [module for module in found if hasattr(module, "CELLS")]


def cells() -> Cells:
    """Return all rows of all modules."""
    rows: Cells = {}
    for module in modules():
        for row, of_row in module.CELLS.items():
            rows.setdefault(row, {}).update(of_row)
    return rows


def flaws() -> list[str]:
    """Return the errors of the rows: missing cells, unknown cases, and cells that are no test."""
    found = []
    for row, of_row in cells().items():
        found += [f"{row}: no cell for {case!r}" for case in CASES if case not in of_row]
        found += [f"{row}: there is no case {case!r}" for case in of_row if case not in CASES]
        found += [
            f"{row}: {case!r} is covered by {cell.__name__}, which pytest does not collect"
            for case, cell in of_row.items()
            if not isinstance(cell, str) and not cell.__name__.startswith("test_")
        ]
    return found


def page() -> str:
    """Return the text of docs/reference/interop.md."""
    rows = cells()
    lines = [_HEAD, "| case | what happens | " + " | ".join(rows) + " |", "|---" * (len(rows) + 2) + "|"]
    reasons: list[str] = []
    for case, meaning in CASES.items():
        shown = [_cell_text(of_row[case], reasons) for of_row in rows.values()]
        lines.append(f"| `{case}` | {meaning} | " + " | ".join(shown) + " |")
    if reasons:
        lines += ["", "## Missing cases, with reasons", ""]
        lines += [f"{number}. {reason}" for number, reason in enumerate(reasons, 1)]
    for module in modules():
        for note in getattr(module, "NOTES", []):
            lines += ["", note]
    return "\n".join(lines) + "\n"


def _cell_text(cell: Cell, reasons: list[str]) -> str:
    """Return a link to the test, or the number of the reason."""
    if isinstance(cell, str):
        if cell not in reasons:
            reasons.append(cell)
        return f"({reasons.index(cell) + 1})"
    file = f"{cell.__module__.replace('.', '/')}.py"
    return f"[yes](../../{file})"


def main() -> None:
    """Print the page, or write it into docs/ with --write."""
    if "--write" in sys.argv[1:]:
        (ROOT / "docs" / "reference" / "interop.md").write_text(page())
    else:
        print(page())


if __name__ == "__main__":
    main()
