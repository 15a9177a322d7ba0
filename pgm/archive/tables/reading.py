"""Reading of tables: their kind by what the folder has, and the rows of one session in a range."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from pgm.archive.errors import TableError
from pgm.archive.requests import RangeRequest, SessionExtent
from pgm.archive.store.schema import SCHEMA
from pgm.archive.store.selection import RowSelection
from pgm.archive.tables.files import HOUR_US, TableFile
from pgm.archive.tables.iceberg_store import CATALOG, IcebergName, read_iceberg_table
from pgm.archive.tables.parquet_store import LIST, read_parquet_table
from pgm.archive.tables.store import TableContent


def read_table(root: Path, name: str | None = None) -> TableContent:
    """Return the present version of the table in a folder, whose kind its files tell. Raises `TableError`."""
    if (root / LIST).exists():
        return read_parquet_table(root)
    if (root / CATALOG).exists():
        return read_iceberg_table(IcebergName(root) if name is None else IcebergName(root, name))
    raise TableError(f"{root} has no table of pgm", remedy="make one: pgm archive export ARCHIVE --to parquet FOLDER")


def files_of(content: TableContent, extent: SessionExtent) -> tuple[TableFile, ...]:
    """Return the files that may have rows of a session."""
    first_hour, last_hour = extent.first_received_us // HOUR_US, extent.last_received_us // HOUR_US
    return tuple(
        one
        for one in content.files
        if first_hour <= one.hour <= last_hour and one.sqns[0] < extent.next_sqn and one.sqns[1] >= extent.oldest
    )


def read_files(files: Sequence[TableFile], request: RangeRequest, first: int, end: int) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a session of one node with `first <= sqn < end`, in order, with losses cut to the range.

    The rows of the range are in memory together. Raises `pa.ArrowException`, OSError.
    """
    wanted = [str(one.path) for one in files if one.sqns[0] < end]
    if not wanted:
        return
    epoch = pc.scalar(request.epoch_us).cast(SCHEMA.field("epoch").type)
    is_epoch = ds.field("epoch").is_null() if request.epoch_us is None else ds.field("epoch") == epoch
    is_session = (ds.field("tsi") == request.tsi) & (ds.field("node") == request.node) & is_epoch
    is_inside = (ds.field("sqn") < end) & (
        (ds.field("sqn") >= first) | (ds.field("lost").is_valid() & (ds.field("sqn") + ds.field("count") > first))
    )
    selection = RowSelection(request)
    table = ds.dataset(wanted, SCHEMA, format="parquet").to_table(filter=is_session & is_inside)
    table = table.sort_by([("sqn", "ascending"), ("index", "ascending")])
    for batch in table.combine_chunks().to_batches():  # one: messages of one packet stay together
        chosen = selection.of(batch, first, end)
        if chosen is not None:
            yield chosen
