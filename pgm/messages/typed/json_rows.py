"""Columns of JSON values: Arrow reads all values of a batch as lines. Parts that it refuses are halved down to few values."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from pgm.messages.typed.fields import FieldKind, TypedField, TypedRows, has_strange_times, no_rows
from pgm.messages.typed.plain_rows import plain_rows

_FEW = 32  # values that are read one by one if Arrow refuses one of them
_VALUE = "v"
# Each value becomes one member of an object. A value with an unclosed part then breaks the line, so it cannot swallow
# the next value; one with too many ends makes more lines than values.
_BEFORE, _BEHIND, _BETWEEN = b'{"v":', b"}\n", b""


def _decode(payload: bytes) -> Any:
    return json.loads(payload.decode())


def _is_fast(field: TypedField) -> bool:
    """Return whether Arrow reads values of a type as the general path does."""
    if field.kind not in (FieldKind.OTHER, FieldKind.OCTETS):
        return True
    kind = field.type
    if pa.types.is_list(kind):
        return _is_fast(TypedField.of(field.name, kind.value_type))
    if pa.types.is_struct(kind):
        return all(_is_fast(TypedField.of(one.name, one.type)) for one in kind.fields)
    return False


class JsonRows:
    """Decoder of JSON objects, one in each value, into columns."""

    def __init__(self, fields: Sequence[TypedField]) -> None:
        self._fields = tuple(fields)
        self._are_fast = all(map(_is_fast, fields))
        kind = pa.struct([(field.name, field.type) for field in fields])
        self._options = pa.json.ParseOptions(
            explicit_schema=pa.schema([(_VALUE, kind)]), unexpected_field_behavior="ignore"
        )

    def decode(self, values: pa.Array) -> TypedRows:
        """Return the columns of binary values without nulls."""
        if not len(values):
            return no_rows(self._fields)
        found = self._lines(values) if self._are_fast else None
        if found is not None:
            return TypedRows(found, pa.nulls(len(values), pa.string()))
        if len(values) <= _FEW or not self._are_fast:
            return plain_rows(values.to_pylist(), self._fields, _decode)
        half = len(values) // 2
        first, second = self.decode(values[:half]), self.decode(values[half:])
        columns = [pa.concat_arrays([a, b]) for a, b in zip(first.columns, second.columns, strict=True)]
        return TypedRows(columns, pa.concat_arrays([first.errors, second.errors]))

    def _lines(self, values: pa.Array) -> list[pa.Array] | None:
        """Return the columns, or None if one of the values is not as the others."""
        lines = pc.binary_join_element_wise(pa.scalar(_BEFORE), values, pa.scalar(_BEHIND), pa.scalar(_BETWEEN))
        _, ends, octets = lines.buffers()
        begin, end = np.frombuffer(ends, np.int32)[[lines.offset, lines.offset + len(lines)]].tolist()
        text = octets.slice(begin, end - begin)
        if not np.frombuffer(text, np.uint8).all():
            return None  # an octet 0 ends the text for the parser
        try:
            table = pa.json.read_json(
                pa.BufferReader(text), pa.json.ReadOptions(use_threads=False, block_size=len(text)), self._options
            )
            found = table.column(_VALUE).combine_chunks()
            if len(found) != len(values) or found.null_count or has_strange_times(found):
                return None
            found.validate(full=True)  # texts as UTF-8
        except pa.ArrowInvalid:
            return None
        columns: list[pa.Array] = found.flatten()
        return columns
