"""Columns of JSON values: Arrow reads all values of a batch as lines. Parts that it refuses are halved down to few values."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from pgm.messages.typed.fields import FieldKind, TypedField, TypedRows, has_strange_times, no_rows
from pgm.messages.typed.plain_rows import plain_rows

_FEW = 32  # values that are read one by one if Arrow refuses one of them
_SPACES = " \t\r\n"  # of JSON
_MOST_DEPTH = 512  # levels of a value that Arrow may read; Python ends at some 900
_TEXT = re.compile(rb'"(?:[^"\\]|\\.)*"')
_UNMARKED = bytes(set(range(256)) - set(b'[{]}"'))
_UNBRACKETED = bytes(set(range(256)) - set(b"[{]}"))
_STEPS = bytes.maketrans(b"[{]}", np.array((1, 1, -1, -1), np.int8).tobytes())


class _MinusZero(int):
    """Whole number -0, which is -0.0 in columns of floats."""

    def __float__(self) -> float:
        return -0.0


def _whole_number(text: str) -> int | float:
    """Return a whole number. One with more digits than Python may convert is infinite."""
    if text == "-0":
        return _MinusZero()
    return int(text) if len(text) < sys.int_info.str_digits_check_threshold else float(text)


def _decode(payload: bytes) -> Any:
    return json.loads(payload.decode(), parse_int=_whole_number)


def _widened(kind: pa.DataType) -> pa.DataType:
    """Return a type with doubles in place of floats. Like the general path, a float is then a rounded double."""
    if pa.types.is_float32(kind):
        return pa.float64()
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_widened(kind.value_type)))
    if pa.types.is_struct(kind):
        return pa.struct([one.with_type(_widened(one.type)) for one in kind.fields])
    return kind


def _is_deep(value: bytes) -> bool:
    """Return whether a JSON value has more levels than `_MOST_DEPTH`."""
    if value.count(b"[") + value.count(b"{") <= _MOST_DEPTH:
        return False
    marks = value if b"\\" in value else value.translate(None, _UNMARKED)  # texts are short then
    steps = np.frombuffer(_TEXT.sub(b"", marks).translate(_STEPS, _UNBRACKETED), np.int8)
    return bool(steps.cumsum(dtype=np.int64).max(initial=0) > _MOST_DEPTH)


def _has_deep_values(values: pa.Array, text: pa.Buffer) -> bool:
    """Return whether one of the objects in a text has more levels than `_MOST_DEPTH`."""
    long = values.filter(pc.greater(pc.binary_length(values), 2 * _MOST_DEPTH))  # each level has two brackets
    if not len(long):
        return False
    octets = np.frombuffer(text, np.uint8) | (ord("[") ^ ord("{"))  # each opening is { then
    openings = int(np.count_nonzero(octets == ord("{")))
    return openings - len(values) >= _MOST_DEPTH and any(map(_is_deep, long.to_pylist()))


def _text_of(values: pa.Array) -> pa.Buffer | None:
    """Return values as lines; None if one of them is no object, or Arrow and Python read it differently.

    Each value begins and ends with a bracket of an object. A value with an unclosed part cannot swallow the next value,
    since no object follows an object without a comma. One with too many ends, or with several objects, makes more lines.
    """
    try:
        texts = pc.ascii_trim(values.cast(pa.string()), _SPACES)
    except pa.ArrowInvalid:
        return None
    if not pc.all(pc.and_(pc.starts_with(texts, "{"), pc.ends_with(texts, "}"))).as_py():
        return None
    lines = pc.binary_join_element_wise(texts, pa.scalar("\n"), pa.scalar(""))
    _, ends, octets = lines.buffers()
    begin, end = np.frombuffer(ends, np.int32)[[lines.offset, lines.offset + len(lines)]].tolist()
    text = octets.slice(begin, end - begin)
    if not np.frombuffer(text, np.uint8).all() or _has_deep_values(values, text):
        return None  # an octet 0 ends the text for the parser
    return text


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
        schema = pa.schema([(field.name, _widened(field.type)) for field in fields])
        self._options = pa.json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")

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
        text = _text_of(values)
        if text is None:
            return None
        options = pa.json.ReadOptions(use_threads=False, block_size=len(text))
        try:
            table = pa.json.read_json(pa.BufferReader(text), options, self._options)
            columns = [column.combine_chunks() for column in table.columns]
            if len(table) != len(values) or any(map(has_strange_times, columns)):
                return None
            for column in columns:
                column.validate(full=True)  # texts with escapes as UTF-8
        except pa.ArrowInvalid:
            return None
        return [column.cast(field.type) for column, field in zip(columns, self._fields, strict=True)]
