"""Requirements of RFC 3208, the code of each, and the tests: `python -m tests.rfc.coverage --write`.

The rows are the tables in `tests/rfc/requirements`. Markers `@pytest.mark.rfc("SRC-21", ...)` on test functions name
the rows that the functions assert. The markers are read from the source of the tests, without any import.
"""

from __future__ import annotations

import ast
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import attrs

ROOT = Path(__file__).resolve().parents[2]
TABLES = Path(__file__).parent / "requirements"
PAGE = ROOT / "docs" / "reference" / "rfc-coverage.md"

FAMILIES = {
    "W": "Wire format",
    "SRC": "Source",
    "RCV": "Receiver",
    "NE": "Network element: relays and aggregators",
    "DLR": "Designated local repairer",
    "SPMR": "SPM requests",
    "POLL": "Polls",
    "IMP": "Implosion prevention",
    "SEC": "Robustness",
    "FEC": "Parity",
    "CC": "Congestion control",
}
STRENGTHS = {
    "M": "MUST",
    "S": "SHOULD",
    "O": "MAY",
    "O/M": "MAY, and then MUST",
    "F": "fact",
    "D": "derived: the RFC is silent",
}
REQUIRED = frozenset("MS")  # strengths that a test must assert
SUBJECTS: tuple[str, ...] = ()  # subjects to be built later


@attrs.frozen
class Mutation:
    """Small change of the source that removes a behaviour, so that its tests must fail."""

    file: str
    old: str
    new: str


@attrs.frozen
class Requirement:
    """Row of the table.

    `refused` is the reason for a deliberate deviation, `later` the subject that will bring the behaviour, and `note`
    our reading of the RFC.
    """

    id: str
    section: str
    strength: str
    text: str
    code: tuple[str, ...] = ()
    refused: str = ""
    later: str = ""
    note: str = ""
    mutate: Mutation | None = None

    @property
    def family(self) -> str:
        """Return the part of the id before the number."""
        return self.id.partition("-")[0]

    @property
    def must_be_tested(self) -> bool:
        """Return whether the row needs a test: a MUST or SHOULD that is neither refused nor for later."""
        return self.strength in REQUIRED and not self.refused and not self.later


@attrs.frozen(order=True)
class Claim:
    """Claim of a test to assert a row."""

    file: str  # from the root
    test: str  # function, or Class::function

    @property
    def node_id(self) -> str:
        """Return the id in pytest's notation."""
        return f"{self.file}::{self.test}"


def requirements() -> dict[str, Requirement]:
    """Return all rows by id, in the order of the families."""
    rows = {}
    for family in FAMILIES:
        table = tomllib.loads((TABLES / f"{family.lower()}.toml").read_text())
        for name, row in table.items():
            mutate = row.pop("mutate", None)
            code = tuple(row.pop("code", ()))
            rows[name] = Requirement(id=name, code=code, mutate=Mutation(*mutate) if mutate else None, **row)
    return rows


def claims() -> dict[str, list[Claim]]:
    """Return the tests of each id that markers name, in order of file and line."""
    found: dict[str, list[Claim]] = {}
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        for claim, ids in _claims_of(path):
            for one in ids:
                found.setdefault(one, []).append(claim)
    return found


def _claims_of(path: Path) -> Iterator[tuple[Claim, list[str]]]:
    text = path.read_text()
    if "mark.rfc" not in text:
        return
    file = str(path.relative_to(ROOT))
    tree = ast.parse(text)
    inside = [(node, "") for node in tree.body]
    inside += [(node, f"{cls.name}::") for cls in tree.body if isinstance(cls, ast.ClassDef) for node in cls.body]
    for node, prefix in inside:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            ids = [one for decorator in node.decorator_list for one in _ids_of(decorator, f"{file}:{node.lineno}")]
            if ids:
                yield Claim(file, prefix + node.name), ids


def _ids_of(decorator: ast.expr, where: str) -> list[str]:
    if not isinstance(decorator, ast.Call) or ast.unparse(decorator.func) != "pytest.mark.rfc":
        return []
    ids = [argument.value for argument in decorator.args if isinstance(argument, ast.Constant)]
    assert ids, f"{where}: a marker without ids"
    assert len(ids) == len(decorator.args), f"{where}: ids are written out"
    return [str(one) for one in ids]


def the_25() -> dict[int, Claim]:
    """Return the 25 most important tests by number."""
    found = {}
    for path in sorted((ROOT / "tests" / "rfc" / "scenarios").glob("test_*.py")):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name[:5] == "test_":
                number = int(node.name[5:7])
                assert number not in found, number
                found[number] = Claim(str(path.relative_to(ROOT)), node.name)
    return found


# The page


def _link(claim: Claim, *, spelled: str = "") -> str:
    return f"[{spelled or claim.test}](../../{claim.file})"


def _done(row: Requirement, tests: list[Claim]) -> str:
    said = ", ".join(_link(claim) for claim in tests)
    if row.refused:
        said = f"refused: {row.refused}"
    elif row.later:
        said = f"later: {row.later}"
    return f"{said} ({row.note})" if row.note else said


def _row(row: Requirement, tests: list[Claim]) -> str:
    code = ", ".join(f"`{file}`" for file in row.code) or "-"
    return f"| {row.id} | {row.section} | {row.strength} | {row.text} | {code} | {_done(row, tests)} |"


def _summary(rows: dict[str, Requirement], found: dict[str, list[Claim]]) -> list[str]:
    lines = ["| family | rows | tested | refused | later |", "|---|---|---|---|---|"]
    for family, title in FAMILIES.items():
        own = [row for row in rows.values() if row.family == family]
        refused, later = sum(bool(row.refused) for row in own), sum(bool(row.later) for row in own)
        tested = sum(bool(found.get(row.id)) and not row.refused and not row.later for row in own)
        lines.append(f"| {title} ({family}) | {len(own)} | {tested} | {refused} | {later} |")
    return lines


def render() -> str:
    """Return the text of docs/reference/rfc-coverage.md."""
    rows, found = requirements(), claims()
    strengths = ", ".join(f"{short} {long}" for short, long in STRENGTHS.items())
    lines = [
        "# RFC 3208, row by row",
        "",
        "Printed from the tables in `tests/rfc/requirements` and the markers of the tests: `python -m tests.rfc.coverage --write`. Every row",
        "has a test that asserts it, or the reason why not. For each row of strength M or S the table also names a",
        "change of the source that takes the behaviour away; `python -m tests.rfc.spot_check` makes such changes and sees whether the tests",
        f"notice. Strengths: {strengths}.",
        "",
        *_summary(rows, found),
    ]
    for family, title in FAMILIES.items():
        lines += [
            "",
            f"## {title}",
            "",
            "| id | § | strength | requirement | code | tests, or why not |",
            "|---|---|---|---|---|---|",
        ]
        lines += [_row(row, found.get(row.id, [])) for row in rows.values() if row.family == family]
    lines += ["", "## The 25 tests that matter most", ""]
    lines += [f"{number}. {_link(claim)}" for number, claim in sorted(the_25().items())]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Print the page, or write it with --write."""
    if "--write" in sys.argv[1:]:
        PAGE.write_text(render())
    else:
        print(render())


if __name__ == "__main__":
    main()
