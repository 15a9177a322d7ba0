"""Reading of tables: their kind by what the folder has, and the rows of one session in a range."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from pgm.archive.errors import TableError
from pgm.archive.requests import RangeRequest, SessionExtent
from pgm.archive.store.schema import COLUMN_NAMES, SCHEMA
from pgm.archive.store.selection import RowSelection
from pgm.archive.tables.files import HOUR_US, TableFile
from pgm.archive.tables.iceberg_store import CATALOG, IcebergName, read_iceberg_table
from pgm.archive.tables.parquet_store import LIST, read_parquet_table
from pgm.archive.tables.store import TableContent

_NO_END = 1 << 62
_RECENT_S = 1.0
_MOST_RECENT = 64

_recent: dict[Path, tuple[float, TableContent]] = {}


def read_table(root: Path, name: str | None = None) -> TableContent:
    """Return the present version of the table in a folder, whose kind its files tell. Raises `TableError`."""
    if (root / LIST).exists():
        return read_parquet_table(root)
    if (root / CATALOG).exists():
        return read_iceberg_table(IcebergName(root) if name is None else IcebergName(root, name))
    raise TableError(f"{root} has no table of pgm", remedy="make one: pgm archive export ARCHIVE --to parquet FOLDER")


def recent_table(root: Path) -> TableContent:
    """Return a version of the table in a folder that is at most a second old. A table only grows. Raises `TableError`."""
    known = _recent.get(root)
    if known is None or time.monotonic() - known[0] > _RECENT_S:
        known = time.monotonic(), read_table(root)
        if len(_recent) >= _MOST_RECENT:
            _recent.clear()
        _recent[root] = known
    return known[1]


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
    selection = RowSelection(request)
    wanted = dict.fromkeys((*(request.columns or COLUMN_NAMES), "sqn", "count", "index", "subject", "lost"))
    table = _rows(files, request, first, end, tuple(wanted))
    if "value" not in wanted:  # the selection knows losses by their missing value
        table = table.append_column("value", pc.if_else(pc.is_valid(table["lost"]), pa.scalar(None, pa.binary()), b""))
    # One batch: messages of one packet stay together.
    for batch in table.sort_by([("sqn", "ascending"), ("index", "ascending")]).combine_chunks().to_batches():
        chosen = selection.of(batch, first, end)
        if chosen is not None:
            yield chosen


def sqn_at(files: Sequence[TableFile], request: RangeRequest, time_us: int) -> int | None:
    """Return the first sqn of a session received at a time or later; None if there is none. Raises as `read_files`."""
    late = [one for one in files if (one.hour + 1) * HOUR_US > time_us]
    rows = _rows(late, request, 0, _NO_END, ("sqn", "received"))
    found = pc.min(rows.filter(pc.greater_equal(rows["received"].cast(pa.int64()), time_us))["sqn"]).as_py()
    return None if found is None else int(found)


def _rows(files: Sequence[TableFile], request: RangeRequest, first: int, end: int, names: Sequence[str]) -> pa.Table:
    """Return columns of the rows of a session that reach into a range, in no order."""
    wanted = [str(one.path) for one in files if one.sqns[0] < end]
    if not wanted:
        return SCHEMA.empty_table().select(list(names))
    epoch = pc.scalar(request.epoch_us).cast(SCHEMA.field("epoch").type)
    is_epoch = ds.field("epoch").is_null() if request.epoch_us is None else ds.field("epoch") == epoch
    is_session = (ds.field("tsi") == request.tsi) & (ds.field("node") == request.node) & is_epoch
    is_inside = (ds.field("sqn") < end) & (
        (ds.field("sqn") >= first) | (ds.field("lost").is_valid() & (ds.field("sqn") + ds.field("count") > first))
    )
    return ds.dataset(wanted, SCHEMA, format="parquet").to_table(list(names), filter=is_session & is_inside)
