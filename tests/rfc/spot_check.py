"""Removal of behaviours, to see whether the tests notice: `python -m tests.rfc.spot_check`.

Every row of strength M or S names a small change of the source that removes the required behaviour. This program draws
some rows, makes each change in a copy of the tree, and runs the tests of the row. If these tests still pass, they
assert nothing.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import attrs

from tests.rfc.coverage import ROOT, Claim, Requirement, claims, requirements

COPIED = ("pgm", "aggregator", "repairer", "deploy", "tests", "docs", "pyproject.toml", "README.md")
TEST_SECONDS = 60  # a change that makes a test hang counts as noticed
RUN_SECONDS = 120  # for the tests of one row


@attrs.frozen
class Verdict:
    """Result of a row's tests with its change."""

    row: Requirement
    failed: tuple[str, ...]  # the first failed test, which ends the run
    hung: bool
    is_stale: bool = False  # the text to change is gone

    @property
    def is_noticed(self) -> bool:
        """Return whether any test failed."""
        return (bool(self.failed) or self.hung) and not self.is_stale

    def __str__(self) -> str:
        assert self.row.mutate is not None
        said = "hangs" if self.hung else " ".join(self.failed)
        return f"{self.row.id:8} {'noticed' if self.is_noticed else 'MISSED '} {self.row.mutate.file:32} {said}"


def drawn(rows: Sequence[Requirement], seed: int, count: int) -> list[Requirement]:
    """Return this many random rows in the order of the table."""
    chosen = {row.id for row in random.Random(seed).sample(list(rows), min(count, len(rows)))}
    return [row for row in rows if row.id in chosen]


def copy_tree(to: Path) -> None:
    """Copy all files that the tests need."""
    for name in COPIED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, to / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, to / name)


def quick(tests: Sequence[Claim]) -> list[Claim]:
    """Return the tests of a row that need no network, or all if each needs it."""
    return [claim for claim in tests if not claim.file.startswith("tests/net/")] or list(tests)


def run(tree: Path, tests: Sequence[Claim], seconds: float = RUN_SECONDS) -> tuple[tuple[str, ...], bool, str]:
    """Run tests in a copy; return the failed tests, whether they hung, and the output."""
    options = ["-q", "-n0", "-p", "no:cacheprovider", f"--timeout={TEST_SECONDS}", "--no-header", "-rfE", "-x"]
    command = [sys.executable, "-m", "pytest", *options, *dict.fromkeys(claim.node_id for claim in tests)]
    settings = {**os.environ, "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(
            command, cwd=tree, env=settings, capture_output=True, text=True, timeout=seconds, check=False
        )
    except subprocess.TimeoutExpired:
        return (), True, ""
    failed = re.findall(r"^(?:FAILED|ERROR) (?:\S*::)?([\w/.]+)", done.stdout, re.MULTILINE)
    return tuple(dict.fromkeys(failed)), done.returncode > 1 and not failed, done.stdout


def check(tree: Path, row: Requirement, tests: Sequence[Claim]) -> Verdict:
    """Make a row's change in the copy, run its tests, and undo the change."""
    assert row.mutate is not None
    path = tree / row.mutate.file
    original = path.read_text()
    if original.count(row.mutate.old) != 1:
        return Verdict(row, (f"the change is stale: {row.mutate.old!r} is not there once",), hung=False, is_stale=True)
    path.write_text(original.replace(row.mutate.old, row.mutate.new))
    try:
        failed, hung, _ = run(tree, tests)
    finally:
        path.write_text(original)
    return Verdict(row, failed, hung)


def main() -> int:
    """Draw, check and print; return 1 if any change went unnoticed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("ids", nargs="*", help="rows to check instead of drawing")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=30)
    parser.add_argument("--all", action="store_true", help="check every row")
    asked = parser.parse_args()
    found = claims()
    rows = [row for row in requirements().values() if row.must_be_tested and row.mutate is not None]
    if asked.ids:
        rows = [row for row in rows if row.id in asked.ids]
    elif not asked.all:
        rows = drawn(rows, asked.seed, asked.count)
    with tempfile.TemporaryDirectory(prefix="pgm-spot-check-") as place:
        tree = Path(place)
        copy_tree(tree)
        tests = {row.id: quick(found[row.id]) for row in rows}
        failed, hung, said = run(tree, [claim for row in rows for claim in tests[row.id]], len(rows) * RUN_SECONDS)
        if failed or hung:
            print(said)
            print("the tests fail without any change, so the check has no result")
            return 1
        missed = 0
        for row in rows:
            verdict = check(tree, row, tests[row.id])
            missed += not verdict.is_noticed
            print(verdict, flush=True)
    print(f"{len(rows) - missed} of {len(rows)} changes were noticed (seed {asked.seed})")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
