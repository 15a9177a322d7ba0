"""Features of older systems, and their counterparts here: `python -m tests.seeds.features --write`.

The program writes docs/reference/seed-features.md from the rows in `tests/seeds/features.toml`. A row names a test as
file::function under `tests`, or all tests of a file as file::*.
"""

from __future__ import annotations

import ast
import sys
import tomllib
from pathlib import Path

import attrs

ROOT = Path(__file__).resolve().parents[2]
TABLE = Path(__file__).parent / "features.toml"
PAGE = ROOT / "docs" / "reference" / "seed-features.md"
EVERY_TEST = "*"

# By prefix: the system, and the number of its features, which are numbered from 1.
FAMILIES = {
    "FC-": ("fast-cast", 30),
    "JG-": ("JGroups, its acknowledged multicast", 20),
    "DI-": ("Distributor", 27),
    "PG-": ("PGM, as an article tells of it", 9),
}
DETAILS = {"F": ("FC-", 50), "D": ("DI-", 46), "J": ("JG-", 66)}  # by prefix: the family, and the number of details


@attrs.frozen
class Feature:
    """Row of the table: the feature, and its counterpart here, the reason against it, or the plan."""

    id: str
    theirs: str
    ours: str = ""
    refused: str = ""
    later: str = ""
    tests: tuple[str, ...] = ()
    details: tuple[str, ...] = ()

    @property
    def family(self) -> str:
        """Return the prefix of the family that shows the feature."""
        prefix = self.id.rstrip("0123456789")
        return prefix if prefix in FAMILIES else DETAILS[prefix][0]


def features() -> dict[str, Feature]:
    """Return all rows by id in the order of the file."""
    table = tomllib.loads(TABLE.read_text())
    return {
        name: Feature(id=name, tests=tuple(row.pop("tests", ())), details=tuple(row.pop("details", ())), **row)
        for name, row in table.items()
    }


def ids() -> list[str]:
    """Return every id that the table must have, of a row or of a detail in a row."""
    counts = {prefix: count for prefix, (_, count) in FAMILIES.items()}
    short = [f"{prefix}{number:02}" for prefix, count in counts.items() for number in range(1, count + 1)]
    details = [f"{prefix}{number}" for prefix, (_, count) in DETAILS.items() for number in range(1, count + 1)]
    return short + details


def functions_of(file: str) -> set[str]:
    """Return the test functions of a file under `tests`; none if the file is missing."""
    path = ROOT / "tests" / file
    if not path.exists():
        return set()
    nodes = ast.parse(path.read_text()).body
    return {
        node.name
        for node in nodes
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name.startswith("test_")
    }


def _link(test: str) -> str:
    file, _, name = test.partition("::")
    return f"[{Path(file).stem if name == EVERY_TEST else name}](../../tests/{file})"


def _here(row: Feature) -> str:
    said = [row.ours] if row.ours else []
    said += [f"**refused:** {row.refused}"] if row.refused else []
    said += [f"**later:** {row.later}"] if row.later else []
    return " ".join(said)


def _row(row: Feature) -> str:
    name = f"{row.id} ({', '.join(row.details)})" if row.details else row.id
    return f"| {name} | {row.theirs} | {_here(row)} | {', '.join(_link(test) for test in row.tests) or '-'} |"


def _summary(rows: dict[str, Feature]) -> list[str]:
    lines = ["| of | rows | here | in part | refused | later |", "|---|---|---|---|---|---|"]
    for family, (title, _) in FAMILIES.items():
        own = [row for row in rows.values() if row.family == family]
        here = sum(bool(row.ours) and not row.later for row in own)
        partly = sum(bool(row.ours) and bool(row.later) for row in own)
        later = sum(bool(row.later) and not row.ours for row in own)
        lines.append(
            f"| {title} | {len(own)} | {here} | {partly} | {sum(bool(row.refused) for row in own)} | {later} |"
        )
    return lines


def render() -> str:
    """Return the text of docs/reference/seed-features.md."""
    rows = features()
    lines = [
        "# What older systems can do, and what of it is here",
        "",
        "Three systems for multicast and an article on PGM were read feature by feature. Each feature is here, or refused with a reason,",
        "or marked as later. Printed from `tests/seeds/features.toml` by `python -m tests.seeds.features --write`; a test sees to it that",
        "no id is missing and that every test named here exists. Ids in parentheses are details that the row covers.",
        "",
        *_summary(rows),
    ]
    for family, (title, _) in FAMILIES.items():
        lines += ["", f"## {title[0].upper()}{title[1:]}", "", "| id | theirs | here | tests |", "|---|---|---|---|"]
        lines += [_row(row) for row in rows.values() if row.family == family]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Print the page, or write it with --write."""
    if "--write" in sys.argv[1:]:
        PAGE.write_text(render())
    else:
        print(render(), end="")


if __name__ == "__main__":
    main()
