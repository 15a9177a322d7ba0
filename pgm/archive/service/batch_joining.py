"""Joining of small batches, since each batch costs its reader a fixed time."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from pgm.errors import PgmError

_OCTETS = 1 << 20
_ROWS = 1 << 16


def joined(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield small batches joined to larger ones. Rows that precede an error are yielded before the error is raised."""
    pending: list[pa.RecordBatch] = []
    octets = rows = 0
    failure: PgmError | None = None
    while True:
        try:
            batch = next(batches, None)
        except PgmError as error:
            batch, failure = None, error
        if pending and (batch is None or octets + batch.nbytes > _OCTETS or rows + batch.num_rows > _ROWS):
            yield pending[0] if len(pending) == 1 else pa.concat_batches(pending)
            pending, octets, rows = [], 0, 0
        if batch is not None:
            pending.append(batch)
            octets += batch.nbytes
            rows += batch.num_rows
        if failure is not None:
            raise failure
        if batch is None:
            return
