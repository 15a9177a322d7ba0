"""Tables and archives of tests, and the rows of a table as another program reads them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds

from pgm.archive.recording.rows import RowBuilder
from pgm.archive.service.collection import Archives
from pgm.archive.store.schema import SCHEMA
from pgm.archive.store.writer import ArchiveWriter
from pgm.archive.tables.export import Export, ExportTotals
from pgm.archive.tables.files import SORTED_BY
from pgm.archive.tables.opening import open_table
from pgm.archive.tables.plain_rows import open_rows
from pgm.archive.tables.state import EACH
from pgm.archive.tables.store import TableStore
from pgm.parameters import Parameters
from tests.unit.archive.makers import SESSION, append, loss, messages, small

HOUR_US = 3_600_000_000
SMALL = small(table_commit_bytes=16 << 10)


def parts(first: int = 0, count: int = 1000) -> list[RowBuilder]:
    """Return batches of messages and losses over two hours."""
    found = []
    for at in range(first, first + count, 100):
        at_us = (at * HOUR_US) // 500
        found += [messages(at, 90, at_us=at_us), loss(at + 90, 10, at_us=at_us)]
    return found


def archive_of(directory: Path, rows: list[RowBuilder], parameters: Parameters = SMALL) -> Path:
    """Append a batch for each part to the archive of a directory."""
    writer = ArchiveWriter(directory, parameters, lambda *_: None)
    for one in rows:
        append(writer, [one], SESSION)
        writer.sync()
    writer.close()
    return directory


def opened(kind: str, root: Path, copies: str = EACH) -> TableStore:
    """Open a table for writing."""
    return open_table(kind, root, copies)


def exported(kind: str, directory: Path, root: Path, *, may_miss: bool = False) -> ExportTotals:
    """Bring a table up to date."""
    store = opened(kind, root)
    try:
        return Export(store, SMALL, may_miss=may_miss).run(Archives(directory))
    finally:
        store.close()


def table_rows(kind: str, root: Path) -> pa.Table:
    """Return the rows of a table without our own code, in order."""
    if kind == "parquet":
        table = ds.dataset(str(root / "data"), SCHEMA, format="parquet").to_table()  # of a folder, it takes every file
    else:
        from pyiceberg.catalog import load_catalog

        catalog = load_catalog("pgm", type="sql", uri=f"sqlite:///{root}/catalog.db", warehouse=f"file://{root}")
        table = catalog.load_table("pgm.rows").scan().to_arrow()
        catalog.close()
    return _in_order(table)


def archive_rows(directory: Path) -> pa.Table:
    """Return the rows of an archive in order."""
    return _in_order(open_rows(directory).read_all())


def _in_order(table: pa.Table) -> pa.Table:
    return table.sort_by([(name, "ascending") for name in SORTED_BY]).cast(pa.schema(list(SCHEMA))).combine_chunks()


def whole_losses(table: pa.Table) -> list[dict[str, Any]]:
    """Return rows in order, with the parts of losses that borders of micro-batches and partitions have cut joined."""
    rows: list[dict[str, Any]] = []
    for row in table.to_pylist():
        before = rows[-1] if rows else None
        if (
            before is not None
            and row["lost"] is not None
            and row
            == before
            | {
                "sqn": before["sqn"] + before["count"],
                "count": row["count"],
            }
        ):
            before["count"] += row["count"]
        else:
            rows.append(row)
    return rows
