"""Rows of an archive as plain Arrow columns, for pandas, Polars, DuckDB and Parquet.

Segments keep columns of few values run-end encoded. pandas, Polars and the Parquet writer of Arrow cannot read that.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa

from pgm.archive.requests import RangeRequest
from pgm.archive.service.collection import Archives
from pgm.archive.session import COMPANIONS
from pgm.archive.store.reader import RangeRead
from pgm.archive.store.schema import served_schema
from pgm.archive.store.selection import RowSelection, check_columns


def open_rows(directory: str | Path, columns: Sequence[str] | None = None) -> pa.RecordBatchReader:
    """Return the synced rows of an archive, or of the archives in a directory, as a stream of plain columns.

    The sessions follow each other, each in the order of its sqns. Sessions of proofs and keys are left out. The stream
    holds one batch at a time. Raises `ArchiveError`, `SchemaTooNew`, and `BadRequest` for unknown columns.
    """
    chosen = None if columns is None else tuple(columns)
    check_columns(chosen)
    archives = Archives(Path(directory))
    return pa.RecordBatchReader.from_batches(served_schema(chosen), _batches(archives, chosen))


def _batches(archives: Archives, columns: tuple[str, ...] | None) -> Iterator[pa.RecordBatch]:
    for reader, session in archives.sessions():
        if session.session.kind not in COMPANIONS:
            selection = RowSelection(RangeRequest(session.session.tsi, columns=columns))
            yield from RangeRead(reader, session, session.oldest, session.next_sqn, selection).batches()
