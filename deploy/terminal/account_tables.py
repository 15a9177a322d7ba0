"""Two tables of an account of real or simulated processes: deliveries of receivers, and traffic of elements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table

from deploy.terminal.tables import TableColumn, table

Row = Mapping[str, Any]

TRAFFIC = (
    TableColumn("node"), TableColumn("ODATA out"), TableColumn("NAKed sqns in"), TableColumn("NAKed sqns out"), TableColumn("NCFs", 2),
    TableColumn("RDATA out"), TableColumn("RDATA passed on", 1),
)  # fmt: skip
_RECEIVED = (
    TableColumn("node"), TableColumn("delivered"), TableColumn("repaired locally"), TableColumn("repaired from above"), TableColumn("late", 2),
    TableColumn("lost"), TableColumn("NAKed sqns"), TableColumn("checksum", 1),
)  # fmt: skip
_CHECKED_AS = {True: "equal", False: "DIFFERS", None: ""}
_RESOURCES = (TableColumn("memory", 3), TableColumn("CPU", 4))


def received_table(rows: Sequence[Row], width: int) -> Table:
    """Return the table of receivers, at most `width` characters wide. A row of totals has no checksum."""
    cells = []
    for row in rows:
        above = row["repaired"] - row["repaired_locally"]
        values = (row["delivered"], row["repaired_locally"], above, row["late"], row["lost"], row["nak_sqns"])
        cells.append([row["node"], *(f"{value:,}" for value in values), _CHECKED_AS[row.get("sha256_ok")]])
    return table("receivers", _RECEIVED, cells, width)


def traffic_table(title: str, rows: Sequence[Row], width: int) -> Table:
    """Return the table of sources and elements, at most `width` characters wide, with memory and CPU time if known."""
    has_resources = any("rss_bytes" in row for row in rows)
    cells = []
    for row in rows:
        keys = ("odata", "nak_sqns_in", "nak_sqns_out", "ncfs", "rdata", "rdata_forwarded")
        used = [f"{row['rss_bytes'] / 1e6:.0f} MB", f"{row['cpu_s']:.1f} s"] if has_resources else []
        cells.append([row["node"], *(f"{row[key]:,}" for key in keys), *used])
    return table(title, (*TRAFFIC, *_RESOURCES) if has_resources else TRAFFIC, cells, width)
