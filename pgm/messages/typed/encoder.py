"""Values of columns: a CBOR map or a JSON object for each row, or a table of Arrow for rows with the same names."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pgm.errors import UsageError
from pgm.messages.objects import ARROW, CBOR
from pgm.messages.typed.fields import NAMES, ValueCodec

_TABLE_OCTETS = 32_768  # of a value of Arrow, approximately: small beside any window, large beside its schema


def encoded_rows(batch: pa.RecordBatch, codec: ValueCodec) -> pa.Table:
    """Return the column `value`, made of all columns but `NAMES`, and these. Raises `UsageError` for a value that has no form."""
    fields = [name for name in batch.schema.names if name not in NAMES]
    given = [name for name in NAMES if name in batch.schema.names]
    values = batch.select(fields)
    if codec is ValueCodec.ARROW:
        begins = np.array(list(_runs(batch.select(given), values)), np.int64)
        ends = np.append(begins[1:], batch.num_rows) if len(begins) else begins
        octets = [ARROW.encode(values.slice(begin, end - begin)) for begin, end in zip(begins, ends, strict=True)]
        firsts = pa.array(begins)
        return pa.table(
            {"value": pa.array(octets, pa.binary())} | {name: batch.column(name).take(firsts) for name in given}
        )
    rows = _plain_rows(values)
    encode = CBOR.encode if codec is ValueCodec.CBOR else _json
    column = pa.array([encode(row) for row in rows], pa.binary())
    return pa.table({"value": column} | {name: batch.column(name) for name in given})


def _runs(names: pa.RecordBatch, values: pa.RecordBatch) -> Iterator[int]:
    """Yield the first row of each run with equal names, and of a bounded size."""
    if not values.num_rows:
        return
    most = max(1, _TABLE_OCTETS * values.num_rows // max(1, values.nbytes))
    is_new = np.zeros(values.num_rows, bool)
    is_new[0] = True
    for column in names.columns:
        places = pc.fill_null(column.dictionary_encode().indices, -1).to_numpy(zero_copy_only=False)
        is_new[1:] |= places[1:] != places[:-1]
    last = 0
    for row in np.flatnonzero(is_new).tolist():
        yield from range(last + most, row, most)
        yield row
        last = row
    yield from range(last + most, values.num_rows, most)


def _plain_rows(values: pa.RecordBatch) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = values.to_pylist()
    maps = [field for field in values.schema if _has_map(field.type)]
    for row in rows:
        for field in maps:
            row[field.name] = _plain(row[field.name], field.type)
    return rows


def _has_map(kind: pa.DataType) -> bool:
    if pa.types.is_map(kind):
        return True
    return any(_has_map(kind.field(place).type) for place in range(kind.num_fields))


def _plain(value: Any, kind: pa.DataType) -> Any:
    """Return a value with the pairs of each map as a table."""
    if value is None:
        return None
    if pa.types.is_map(kind):
        return {key: _plain(item, kind.item_type) for key, item in value}
    if pa.types.is_list(kind):
        return [_plain(item, kind.value_type) for item in value]
    if pa.types.is_struct(kind):
        return {
            kind.field(place).name: _plain(value[kind.field(place).name], kind.field(place).type)
            for place in range(kind.num_fields)
        }
    return value


def _json(row: dict[str, Any]) -> bytes:
    try:
        return json.dumps(row, default=_json_value, separators=(",", ":")).encode()
    except TypeError as error:
        raise UsageError(
            f"JSON has no such value: {error}", remedy="cast the column, as in base64(raw), or encode as cbor"
        ) from None


def _json_value(value: object) -> str:
    if isinstance(value, (date, datetime)):
        return value.isoformat()
    if isinstance(value, Decimal):
        return str(value)
    raise TypeError(f"a {type(value).__name__}")
