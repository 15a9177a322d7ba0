"""Opening of tables by their kind."""

from __future__ import annotations

from pathlib import Path

from pgm.archive.errors import TableError
from pgm.archive.tables.iceberg_store import CATALOG, DEFAULT_NAME, IcebergName, IcebergTable
from pgm.archive.tables.parquet_store import LIST, ParquetTable
from pgm.archive.tables.store import TableStore

PARQUET, ICEBERG = KINDS = ("parquet", "iceberg")


def open_table(
    kind: str, root: Path, copies: str, *, name: str | None = None, catalog: str | None = None
) -> TableStore:
    """Open the table in a folder for writing, or create it. `name` and `catalog` are for Iceberg. Raises `TableError`."""
    for other, mark in ((PARQUET, LIST), (ICEBERG, CATALOG)):
        if kind != other and (root / mark).exists():
            raise TableError(
                f"{root} has a table of {other}, not of {kind}", remedy="name another folder, or the other kind"
            )
    if kind == PARQUET:
        return ParquetTable(root, copies)
    return IcebergTable(IcebergName(root, name or DEFAULT_NAME, catalog), copies)
