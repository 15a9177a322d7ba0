"""Parquet files of a table: one stream and one hour of receipt each.

Each file lies in `hour=YYYY-MM-DD-HH/stream_name=NAME`. The names of the folders are no columns of the rows, so that
readers of such folders add columns and replace none. A file has the ids of its columns for Iceberg.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

import attrs
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pgm.archive.errors import TableError
from pgm.archive.store.schema import SCHEMA
from pgm.own_files import sync_folder

ENDING = ".parquet"
NO_STREAM = "__HIVE_DEFAULT_PARTITION__"  # the name that Hive and its readers give to null
HOUR_US = 3_600_000_000
_COMPRESSION = "zstd"
_GROUP_ROWS = 1 << 17  # of a row group: readers pass over groups by their smallest and largest sqn
_FIRST_TIME = datetime(1970, 1, 1, tzinfo=UTC)

SORTED_BY = ("tsi", "epoch", "node", "sqn", "index")

# Columns of the rows, with their ids in Iceberg.
TABLE_SCHEMA: pa.Schema = pa.schema(
    [field.with_metadata({"PARQUET:field_id": str(number)}) for number, field in enumerate(SCHEMA, 1)],
    SCHEMA.metadata,
)


@attrs.frozen
class TableFile:
    """One file of a table. `hour` counts hours since 1970; `sqns` are the smallest and the largest of its rows."""

    path: Path
    stream: str | None
    hour: int
    rows: int
    octets: int
    sqns: tuple[int, int]

    def as_json(self, root: Path) -> dict[str, Any]:
        """Return the file with stable keys, its path below `root`."""
        return attrs.asdict(self) | {"path": str(self.path.relative_to(root))}

    @classmethod
    def from_json(cls, value: dict[str, Any], root: Path) -> TableFile:
        """Decode the result of `as_json`. Raises KeyError, TypeError."""
        return cls(**value | {"path": root / value["path"], "sqns": tuple(value["sqns"])})


def write_files(rows: pa.Table, folder: Path) -> list[TableFile]:
    """Write rows as files of new names below a folder, each synced to the disk. Raises `TableError`."""
    try:
        return [_write(part, folder, hour, stream) for hour, stream, part in _parts(rows)]
    except OSError as error:
        raise unwritable(folder, error) from None


def _parts(rows: pa.Table) -> Iterator[tuple[int, str | None, pa.Table]]:
    """Yield the rows by hour and stream."""
    hours = _integers(rows["received"].cast(pa.int64())) // HOUR_US
    streams = pc.dictionary_encode(rows["stream"].combine_chunks(), null_encoding="encode")
    if isinstance(streams, pa.ChunkedArray):
        streams = streams.combine_chunks()
    names, numbers = streams.dictionary.to_pylist(), _integers(streams.indices)
    codes = hours * max(1, len(names)) + numbers
    for code in np.unique(codes).tolist():
        chosen = codes == code
        part = rows if chosen.all() else rows.filter(pa.array(chosen))
        yield code // max(1, len(names)), names[code % len(names)], part


def _write(rows: pa.Table, folder: Path, hour: int, stream: str | None) -> TableFile:
    hour_name = (_FIRST_TIME + timedelta(hours=hour)).strftime("%Y-%m-%d-%H")
    target = folder / f"hour={hour_name}" / f"stream_name={NO_STREAM if stream is None else quote(stream, safe='')}"
    target.mkdir(parents=True, exist_ok=True)
    path = target / f"part-{uuid.uuid4().hex}{ENDING}"
    table = rows.select(TABLE_SCHEMA.names).cast(TABLE_SCHEMA)
    with path.open("wb") as file:
        pq.write_table(table, file, compression=_COMPRESSION, row_group_size=_GROUP_ROWS)
        file.flush()
        os.fsync(file.fileno())
    for created in (target, target.parent, folder):
        sync_folder(created)
    sqns = pc.min_max(rows["sqn"]).as_py()
    return TableFile(path, stream, hour, rows.num_rows, path.stat().st_size, (sqns["min"], sqns["max"]))


def _integers(column: pa.Array | pa.ChunkedArray) -> npt.NDArray[np.int64]:
    return np.asarray(
        column.to_numpy() if isinstance(column, pa.ChunkedArray) else column.to_numpy(zero_copy_only=False), np.int64
    )


def unwritable(folder: Path, error: OSError) -> TableError:
    """Return the error of a table whose files cannot be written. Its earlier commits remain."""
    return TableError(
        f"{error.filename or folder}: {error.strerror}",
        remedy="make room, or make the folder writable; then run it again: it goes on",
    )
