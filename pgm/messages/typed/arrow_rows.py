"""Columns of Arrow values: each value is an IPC stream with any number of rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pgm.messages.objects import ARROW, MOST_UNPACKED_OCTETS
from pgm.messages.typed.arrow_layouts import is_convertible, unfolded_octets
from pgm.messages.typed.fields import TypedField, TypedRows, has_strange_times

_MOST_ROWS = 1 << 20  # of one value
_PART_ROWS = 1 << 16  # after which a part of a batch is complete
_PART_OCTETS = 1 << 26
_MOST_ERROR = 200

_Is = Callable[[pa.DataType], bool]


class _BadColumn(Exception):
    """Column of a value that its field does not take."""


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _is_octets(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_binary_view(kind)
        or pa.types.is_fixed_size_binary(kind)
    )


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


# Types of a column, and those of its field that take them; others only if they are equal.
_CASTS: tuple[tuple[_Is, _Is], ...] = (
    (pa.types.is_integer, pa.types.is_integer),
    (_is_number, pa.types.is_floating),
    (_is_text, _is_text),
    (_is_octets, _is_octets),
    (pa.types.is_timestamp, pa.types.is_timestamp),
    (pa.types.is_date, pa.types.is_date),
    (pa.types.is_decimal, pa.types.is_decimal),
    (pa.types.is_list, pa.types.is_list),
    (pa.types.is_large_list, pa.types.is_list),
    (pa.types.is_struct, pa.types.is_struct),
    (pa.types.is_map, pa.types.is_map),
    (pa.types.is_null, lambda _: True),
)


class ArrowRows:
    """Decoder of Arrow tables into columns. A table of n rows gives n rows, and an empty one gives one row of nulls."""

    def __init__(self, fields: Sequence[TypedField]) -> None:
        self._fields = tuple(fields)
        self._empty = [pa.nulls(1, field.type) for field in fields]

    def parts(self, values: pa.Array) -> Iterator[TypedRows]:
        """Yield the columns of binary values in parts of bounded size. A null gives a row of nulls."""
        tables: list[list[pa.Array]] = []
        errors: list[str | None] = []
        places: list[int] = []
        octets = 0
        for place, value in enumerate(values):
            columns, error = self._table(value.as_py())
            tables.append(columns)
            errors.append(error)
            places.append(place)
            octets += sum(column.nbytes for column in columns)
            if sum(len(one[0]) for one in tables) >= _PART_ROWS or octets >= _PART_OCTETS:
                yield self._joined(tables, errors, places)
                tables, errors, places, octets = [], [], [], 0
        if tables:
            yield self._joined(tables, errors, places)

    def _joined(self, tables: list[list[pa.Array]], errors: list[str | None], places: list[int]) -> TypedRows:
        counts = np.array([len(columns[0]) for columns in tables])
        columns = [pa.concat_arrays(parts) for parts in zip(*tables, strict=True)]
        of_all = pa.array(errors, pa.string()).take(pa.array(np.repeat(np.arange(len(tables)), counts)))
        return TypedRows(columns, of_all, np.repeat(np.array(places, np.int64), counts))

    def _table(self, payload: bytes | None) -> tuple[list[pa.Array], str | None]:
        if payload is None:
            return self._empty, None
        try:
            table = ARROW.decode(payload)
            if table.num_rows > _MOST_ROWS:
                raise _BadColumn(f"{table.num_rows} rows, of {_MOST_ROWS} allowed")
            columns = [self._column(table, field) for field in self._fields]
        except Exception as error:  # of many kinds
            name = "" if isinstance(error, _BadColumn) else f"{type(error).__name__}: "
            return self._empty, f"{name}{error}"[:_MOST_ERROR]
        return (columns, None) if table.num_rows else (self._empty, None)

    @staticmethod
    def _column(table: pa.Table, field: TypedField) -> pa.Array:
        found = table.schema.get_all_field_indices(field.name)
        if not found:
            return pa.nulls(table.num_rows, field.type)
        if len(found) > 1:
            raise _BadColumn(f"field {field.name}: the table has {len(found)} columns of this name")
        return _converted(table.column(found[0]), field)


def _converted(column: pa.ChunkedArray, field: TypedField) -> pa.Array:
    """Return a column with the type of its field. Raises `_BadColumn`."""
    given, wanted = column.type, field.type
    if not is_convertible(given):
        raise _BadColumn(f"field {field.name}: a {given} is no {wanted}")
    octets = sum(unfolded_octets(chunk) for chunk in column.chunks)
    if octets > MOST_UNPACKED_OCTETS:
        raise _BadColumn(f"field {field.name}: {octets} octets, of {MOST_UNPACKED_OCTETS} allowed")
    if pa.types.is_dictionary(given):
        column = column.cast(given.value_type)
        given = column.type
    if given != wanted:
        if not any(takes(given) and gives(wanted) for takes, gives in _CASTS):
            raise _BadColumn(f"field {field.name}: a {given} is no {wanted}")
        options = pc.CastOptions(
            target_type=wanted,
            allow_time_truncate=True,  # nanoseconds are cut
            allow_float_truncate=pa.types.is_floating(wanted),  # whole numbers are rounded
        )
        try:
            column = column.cast(options=options)
        except pa.ArrowException as error:
            raise _BadColumn(f"field {field.name}: {error}") from None
    whole = column.combine_chunks()
    array = whole if isinstance(whole, pa.Array) else pa.concat_arrays(whole.chunks)
    if has_strange_times(array):
        raise _BadColumn(f"field {field.name}: a time is not in the years 1 to 9999")
    return array
