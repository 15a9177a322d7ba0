"""Rows with the fields of their values as columns. Small batches are joined first, since a decoder has a cost for each."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pgm.messages.typed.fields import TypedRows
from pgm.spark.decode.columns import DECODE_ERROR, DecodedSchema

VALUE, _COUNT = "value", "count"

_ROWS_AT_ONCE = 1 << 15  # beyond, the cost of a batch is small beside that of its rows
_OCTETS_AT_ONCE = 1 << 23


def decoded_batches(batches: Iterator[pa.RecordBatch], wanted: DecodedSchema) -> Iterator[pa.RecordBatch]:
    """Yield rows with the columns of the fields, from rows with the column value."""
    from pgm.messages.typed.decoder import ValueDecoder  # executors need its packages only here

    decoder = ValueDecoder(wanted.codec, wanted.fields)
    for batch in _joined(batches):
        for part in decoder.parts(batch.column(VALUE)):
            yield _with_fields(batch, part, wanted)


def _joined(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield larger batches of the same rows."""
    held: list[pa.RecordBatch] = []
    rows = octets = 0
    for batch in batches:
        held.append(batch)
        rows += batch.num_rows
        octets += batch.nbytes
        if rows >= _ROWS_AT_ONCE or octets >= _OCTETS_AT_ONCE:
            yield from pa.Table.from_batches(held).combine_chunks().to_batches()
            held, rows, octets = [], 0, 0
    if held:
        yield from pa.Table.from_batches(held).combine_chunks().to_batches()


def _with_fields(batch: pa.RecordBatch, part: TypedRows, wanted: DecodedSchema) -> pa.RecordBatch:
    found = dict(zip(wanted.columns, part.columns, strict=True)) | {DECODE_ERROR: part.errors}
    others = [name for name in wanted.schema.names if name not in found]
    if part.places is None:
        found |= {name: batch.column(name) for name in others}
    else:
        found |= _repeated(batch.select(others), part)
    return pa.RecordBatch.from_arrays([found[name] for name in wanted.schema.names], schema=wanted.schema)


def _repeated(batch: pa.RecordBatch, part: TypedRows) -> dict[str, pa.Array]:
    """Return the columns of rows that came from each value. Value and count belong to the first row of each."""
    places = np.asarray(part.places)
    is_first = np.ones(len(places), bool)
    is_first[1:] = places[1:] != places[:-1]
    every, first = pa.array(places), pa.array(places, mask=~is_first)
    found = {name: batch.column(name).take(first if name == VALUE else every) for name in batch.schema.names}
    if _COUNT in found:
        found[_COUNT] = pc.if_else(pa.array(is_first), found[_COUNT], pa.scalar(0, pa.int64()))
    return found
