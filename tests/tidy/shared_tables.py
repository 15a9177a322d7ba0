"""Tables that a page shares with code: `python -m tests.tidy.shared_tables --write` pastes them into the pages.

The first line of a table finds its place in the page.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from deploy.monitor.columns import as_markdown as monitor_columns
from pgm.archive.store.schema import COLUMNS
from pgm.figures.minutes import as_markdown as fleet_tables
from pgm.net.control.settings import SETTINGS
from pgm.spark.fleet.options import TABLE as FLEET_OPTIONS
from pgm.spark.options import TABLE as SPARK_OPTIONS
from pgm.telemetry.schema import as_markdown as telemetry_tables
from tests.tidy.layers import as_markdown as layers

ROOT = Path(__file__).resolve().parents[2]


def shared_tables() -> list[tuple[str, str]]:
    """Return each table with the page that shows it."""
    columns = "".join(f"| `{column.name}` | {column.type} | {column.doc} |\n" for column in COLUMNS)
    settings = "".join(f"| `{name}` | {node} | {meaning} |\n" for name, (node, meaning) in SETTINGS.items())
    tables = [
        ("docs/guide/archive.md", f"| column | type | meaning |\n|---|---|---|\n{columns}"),
        ("docs/guide/operations.md", f"| setting | of | is |\n|---|---|---|\n{settings}"),
        ("docs/guide/monitoring.md", monitor_columns()),
        ("docs/guide/spark.md", SPARK_OPTIONS.as_markdown()),
        ("docs/internals/design.md", layers()),
    ]
    tables += [
        ("docs/guide/fleet-tables.md", table) for table in (FLEET_OPTIONS.as_markdown(), *fleet_tables().split("\n\n"))
    ]
    tables += [("docs/guide/telemetry.md", table) for table in telemetry_tables().split("\n\n") if table[:1] == "|"]
    return [(page, f"{table.rstrip()}\n") for page, table in tables]


def paste(text: str, table: str) -> str:
    """Return the text of a page with a table in place of the one that has the same first line."""
    head = re.escape(table.splitlines()[0])
    pasted, count = re.subn(rf"^{head}\n(?:\|.*\n)+", lambda _: table, text, flags=re.MULTILINE)
    assert count == 1, f"{count} tables begin with {table.splitlines()[0]!r}"
    return pasted


def main() -> None:
    """Print the tables, or paste them into their pages with --write."""
    for page, table in shared_tables():
        if "--write" in sys.argv[1:]:
            path = ROOT / page
            path.write_text(paste(path.read_text(), table))
        else:
            print(f"{page}:\n{table}")


if __name__ == "__main__":
    main()
