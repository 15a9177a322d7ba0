"""Attacks, what is done against each, and the tests that name it: `python -m tests.attacks.lines --write`.

The program writes docs/reference/attacks.md from the rows in `tests/attacks/lines.toml`.
"""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

import attrs

from tests.attacks.forgeries import FORGERIES
from tests.seeds.features import EVERY_TEST, ROOT

TABLE = Path(__file__).parent / "lines.toml"
PAGE = ROOT / "docs" / "reference" / "attacks.md"
LISTS = {
    "field": ("Seen in the field", "An ordinary UDP sender tried these attacks against real processes.", 9),
    "design": (
        "Attacks on the design",
        "These attacks are known from other implementations of PGM, and from their code.",
        16,
    ),
}


@attrs.frozen
class Line:
    """Row of the table. `list` is the list that has the attack."""

    id: str
    list: str
    attack: str
    control: str
    tests: tuple[str, ...]


def lines() -> list[Line]:
    """Return all rows in the order of the file."""
    table = tomllib.loads(TABLE.read_text())
    return [Line(id=name, tests=tuple(row.pop("tests")), **row) for name, row in table.items()]


def _link(test: str) -> str:
    file, _, name = test.partition("::")
    return f"[{Path(file).stem if name == EVERY_TEST else name}](../../tests/{file})"


def render() -> str:
    """Return the text of docs/reference/attacks.md."""
    text = [
        "# Attacks, and their tests",
        "",
        "Each attack has tests that fail without its control. Printed from `tests/attacks/lines.toml` by `python -m tests.attacks.lines --write`.",
        "[Security](../guide/security.md) tells what keys add, and what stays open.",
    ]
    for name, (title, about, _) in LISTS.items():
        text += ["", f"## {title}", "", about, "", "| attack | control | tests |", "|---|---|---|"]
        text += [
            f"| {line.attack} | {line.control} | {', '.join(map(_link, line.tests))} |"
            for line in lines()
            if line.list == name
        ]
    text += [
        "",
        "## Forgeries",
        "",
        "Attackers of the simulator and of real segments send these, by the packet that each forges:",
        "",
    ]
    text += ["| packet | forgeries |", "|---|---|"]
    for kind in dict.fromkeys(forgery.kind for forgery in FORGERIES):
        text.append(f"| {kind} | {', '.join(one.name for one in FORGERIES if one.kind == kind)} |")
    return "\n".join(text) + "\n"


def main() -> None:
    """Print the page, or write it with --write."""
    if "--write" in sys.argv[1:]:
        PAGE.write_text(render())
    else:
        print(render(), end="")


if __name__ == "__main__":
    main()
