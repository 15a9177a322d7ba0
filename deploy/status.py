"""`pgm status`: what the running nodes of a topology have counted."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import click

from deploy.output import EXIT_FAILED, command, print_json, warn
from pgm.errors import ProcessError
from pgm.net.status import ask_status, status_path
from pgm.topology.check import load_checked
from pgm.topology.plan import plan_all

_COLUMNS = {
    "source": ("odata_packets", "rdata_packets", "nak_sqns_in", "ncf_packets", "spm_packets"),
    "aggregator": ("odata_packets", "rdata_forwarded", "nak_sqns_in", "nak_sqns", "ncf_packets", "spm_packets"),
    "repairer": ("received_packets", "rdata_packets", "nak_sqns_in", "nak_sqns", "ncf_packets", "cache_misses"),
    "receiver": (
        "delivered_packets",
        "lost_sqns",
        "repaired_sqns",
        "repaired_locally",
        "nak_sqns",
        "duplicate_packets",
    ),
}


def gather(file: Path, nodes: tuple[str, ...]) -> tuple[list[dict[str, Any]], list[str]]:
    """The snapshots of the nodes that answer, and the names of those that do not."""
    topology = load_checked(file)
    names = nodes or tuple(plan_all(topology))
    rows, silent = [], []
    for name in names:
        try:
            rows.append(ask_status(status_path(topology.name, name)))
        except ProcessError:
            silent.append(name)
    return rows, silent


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--node", "nodes", multiple=True, help="Only this node; may be given several times.")
@click.option("--watch", is_flag=True, help="Show it anew every second until Ctrl-C.")
@command
def status(file: Path, nodes: tuple[str, ...], watch: bool, as_json: bool) -> None:
    """Show what the nodes of a topology FILE that run on this machine have counted.

    With --json one object per node and line, with every counter, session and segment. Exits with 1 if no node
    answers.
    """
    while True:
        rows, silent = gather(file, nodes)
        if as_json:
            for row in rows:
                print_json(row)
        else:
            _print(rows, clear=watch)
        if silent and (nodes or not rows):
            warn(f"not running on this machine: {', '.join(silent[:10])}{' ...' if len(silent) > 10 else ''}")
        if not watch:
            break
        time.sleep(1)
    if not rows:
        sys.exit(EXIT_FAILED)


def _print(rows: list[dict[str, Any]], *, clear: bool) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False)
    if clear:
        console.clear()
    for role, columns in _COLUMNS.items():
        chosen = [row for row in rows if row["role"] == role]
        if not chosen:
            continue
        table = Table(title=f"{role}s", title_justify="left")
        for heading in ("node", "sessions", *columns, "missing now", "memory", "up"):
            table.add_column(heading.replace("_", " "), justify="left" if heading in ("node", "sessions") else "right")
        for row in chosen:
            states = ", ".join(f"{one['state']} to {one['lead']}" for one in row["sessions"]) or "none"
            table.add_row(
                row["node"],
                states,
                *(f"{row['counters'].get(column, 0):,}" for column in columns),
                f"{sum(one['missing_sqns'] for one in row['sessions']):,}",
                f"{row['rss_bytes'] / 1e6:.0f} MB",
                f"{row['uptime_s']:.0f} s",
            )
        console.print(table)
