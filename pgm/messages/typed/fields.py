"""Fields of values that become columns, and the columns that a decoder returns."""

from __future__ import annotations

import enum
from collections.abc import Sequence

import attrs
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

NAMES = ("subject", "to")  # columns of rows to be published that are not in their values

_DAY_US = 86_400_000_000
_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896  # of the years 1 and 9999, since 1970


class ValueCodec(enum.Enum):
    """Codec of the values that are decoded or encoded."""

    CBOR = "cbor"
    JSON = "json"
    ARROW = "arrow"


class FieldKind(enum.Enum):
    """Kind of a column's type, which decides the values that the column takes."""

    INTEGER = "integer"
    FLOAT = "float"
    TEXT = "text"
    OCTETS = "octets"
    BOOLEAN = "boolean"
    TIME = "time"
    OTHER = "other"  # nested types, dates and decimals: one Python object for each value


def kind_of(kind: pa.DataType) -> FieldKind:
    """Return the kind of an Arrow type."""
    if pa.types.is_signed_integer(kind):
        return FieldKind.INTEGER
    if pa.types.is_float64(kind) or pa.types.is_float32(kind):
        return FieldKind.FLOAT
    if pa.types.is_string(kind):
        return FieldKind.TEXT
    if pa.types.is_binary(kind):
        return FieldKind.OCTETS
    if pa.types.is_boolean(kind):
        return FieldKind.BOOLEAN
    return FieldKind.TIME if pa.types.is_timestamp(kind) and kind.unit == "us" else FieldKind.OTHER


def is_decodable(kind: pa.DataType) -> bool:
    """Return whether values can become a column of a type."""
    if pa.types.is_list(kind):
        return is_decodable(kind.value_type)
    if pa.types.is_struct(kind):
        return all(is_decodable(kind.field(place).type) for place in range(kind.num_fields))
    if pa.types.is_map(kind):
        return is_decodable(kind.key_type) and is_decodable(kind.item_type)
    return kind_of(kind) is not FieldKind.OTHER or pa.types.is_decimal(kind) or pa.types.is_date32(kind)


def has_strange_times(array: pa.Array) -> bool:
    """Return whether an array has times or dates outside of the years 1 to 9999, which neither SQL nor Python knows.

    Times are in microseconds, and dates in days.
    """
    kind = array.type
    if pa.types.is_timestamp(kind):
        return _exceeds(array.view(pa.int64()), _FIRST_DAY * _DAY_US, (_LAST_DAY + 1) * _DAY_US - 1)
    if pa.types.is_date32(kind):
        return _exceeds(array.view(pa.int32()), _FIRST_DAY, _LAST_DAY)
    if pa.types.is_map(kind):
        return has_strange_times(array.keys) or has_strange_times(array.items)
    if pa.types.is_list(kind) or pa.types.is_struct(kind):
        parts = array.flatten()
        return any(map(has_strange_times, parts if isinstance(parts, list) else [parts]))
    return False


def _exceeds(numbers: pa.Array, first: int, last: int) -> bool:
    found = pc.min_max(numbers).as_py()
    return found["min"] is not None and not first <= found["min"] <= found["max"] <= last


@attrs.frozen
class TypedField:
    """Field of a value: the key of a map, and the type of its column."""

    name: str
    type: pa.DataType
    kind: FieldKind

    @classmethod
    def of(cls, name: str, kind: pa.DataType) -> TypedField:
        """Return the field of a name and an Arrow type."""
        return cls(name, kind, kind_of(kind))


@attrs.frozen(eq=False)
class TypedRows:
    """Columns of decoded values, in the order of the fields, and an error for each row, or null.

    `places` gives the value of each row by its index, if values have several rows. None: each value has one row.
    """

    columns: list[pa.Array]
    errors: pa.Array
    places: npt.NDArray[np.int64] | None = None


def no_rows(fields: Sequence[TypedField]) -> TypedRows:
    """Return the columns of no values."""
    return TypedRows([pa.nulls(0, field.type) for field in fields], pa.nulls(0, pa.string()))


def merged(first: TypedRows, second: TypedRows, rows: npt.NDArray[np.int64]) -> TypedRows:
    """Return `first` with those of its `rows` replaced by all of `second`."""
    places = np.arange(len(first.errors), dtype=np.int64)
    places[rows] = len(first.errors) + np.arange(len(rows))
    taken = pa.array(places)
    columns = [pa.concat_arrays([a, b]).take(taken) for a, b in zip(first.columns, second.columns, strict=True)]
    return TypedRows(columns, pa.concat_arrays([first.errors, second.errors]).take(taken))
