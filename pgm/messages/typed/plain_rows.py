"""General path: columns of Python values, one by one. The fast paths must give the same columns."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime
from decimal import Context, Decimal, InvalidOperation
from typing import Any

import numpy as np
import pyarrow as pa

from pgm.messages.typed.fields import FieldKind, TypedField, TypedRows, kind_of

Decode = Callable[[bytes], Any]  # raises any Exception for octets that are no value
_DECIMALS = Context(prec=76)  # digits of the largest decimal of Arrow, more than Spark's 38
_MOST_ERROR = 200  # characters of an error, which a peer's values may lengthen


class _BadField(Exception):
    """Value that its column does not take."""


def plain_rows(payloads: Sequence[bytes], fields: Sequence[TypedField], decode: Decode) -> TypedRows:
    """Return the columns of octets that `decode` makes maps of. A value that does not fit gives an error, and nulls."""
    columns: list[list[Any]] = [[] for _ in fields]
    errors: list[str | None] = []
    for payload in payloads:
        try:
            values = _row(decode(payload), fields)
            error = None
        except Exception as problem:  # decoders raise many kinds of errors
            values = [None] * len(fields)
            error = f"{type(problem).__name__}: " * (not isinstance(problem, _BadField)) + str(problem)
        errors.append(None if error is None else error[:_MOST_ERROR])
        for column, value in zip(columns, values, strict=True):
            column.append(value)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, fields, strict=True)]
    return TypedRows(arrays, pa.array(errors, pa.string()))


def _row(value: Any, fields: Sequence[TypedField]) -> list[Any]:
    if not isinstance(value, dict):
        raise _BadField(f"the value is of type {type(value).__name__}, and no map of fields")
    found = []
    for field in fields:
        try:
            item = _typed(value.get(field.name), field.type)
            if field.kind is FieldKind.OTHER:
                pa.array([item], field.type)  # the range of decimals, for example
            found.append(item)
        except (_BadField, pa.ArrowException, OverflowError, ValueError) as problem:
            raise _BadField(f"field {field.name}: {problem}") from None
    return found


def _typed(value: Any, kind: pa.DataType) -> Any:
    """Return a value as its column takes it. Raises `_BadField`, ValueError."""
    if value is None or _is_undefined(value):
        return None
    nested = _NESTED.get(kind.id)
    if nested is not None:
        return nested(value, kind)
    typed = _SINGLE[kind_of(kind)](value, kind)
    if typed is None:
        raise _BadField(f"a {type(value).__name__} is no {kind}")
    return typed


def _is_undefined(value: Any) -> bool:
    return type(value).__name__ in ("undefined_type", "UndefinedType")


def _integer(value: Any, kind: pa.DataType) -> int | None:
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    if not -(1 << (kind.bit_width - 1)) <= value < 1 << (kind.bit_width - 1):
        raise _BadField(f"{value} exceeds {kind}")
    return value


def _float(value: Any, _: pa.DataType) -> float | None:
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return None
    try:
        return float(value)
    except OverflowError:  # a whole number beyond the range
        return math.inf if value > 0 else -math.inf


def _text(value: Any, _: pa.DataType) -> str | None:
    if isinstance(value, str):
        value.encode()  # surrogates are no text
        return value
    return None


def _octets(value: Any, _: pa.DataType) -> bytes | None:
    return bytes(value) if isinstance(value, (bytes, bytearray)) else None


def _boolean(value: Any, _: pa.DataType) -> bool | None:
    return value if isinstance(value, bool) else None


def time_of_text(text: str) -> datetime:
    """Return a time in the form of ISO 8601; without a zone it is in UTC. Raises ValueError."""
    moment = datetime.fromisoformat(text)
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def _time(value: Any, kind: pa.DataType) -> datetime | None:
    if isinstance(value, str):
        value = time_of_text(value)
    if not isinstance(value, datetime):
        return None
    moment = (value if value.tzinfo is not None else value.replace(tzinfo=UTC)).astimezone(UTC)
    return moment if kind.tz is not None else moment.replace(tzinfo=None)


def _other(value: Any, kind: pa.DataType) -> Any:
    if pa.types.is_decimal(kind) and isinstance(value, (int, float, Decimal, str)) and not isinstance(value, bool):
        try:
            number = Decimal(str(value)) if not isinstance(value, Decimal) else value
            return number.quantize(Decimal(1).scaleb(-kind.scale), context=_DECIMALS) if number.is_finite() else None
        except InvalidOperation:  # no number, or one with too many digits
            return None
    if pa.types.is_date(kind):
        if isinstance(value, str):
            return date.fromisoformat(value)
        return value.date() if isinstance(value, datetime) else value if isinstance(value, date) else None
    return None


def _list(value: Any, kind: pa.DataType) -> list[Any]:
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if not isinstance(value, (list, tuple, set, frozenset)):
        raise _BadField(f"a {type(value).__name__} is no {kind}")
    return [_typed(item, kind.value_type) for item in value]


def _struct(value: Any, kind: pa.DataType) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _BadField(f"a {type(value).__name__} is no {kind}")
    return {
        kind.field(place).name: _typed(value.get(kind.field(place).name), kind.field(place).type)
        for place in range(kind.num_fields)
    }


def _map(value: Any, kind: pa.DataType) -> list[tuple[Any, Any]]:
    if not isinstance(value, dict):
        raise _BadField(f"a {type(value).__name__} is no {kind}")
    return [(_typed(key, kind.key_type), _typed(item, kind.item_type)) for key, item in value.items()]


_SINGLE: dict[FieldKind, Callable[[Any, pa.DataType], Any]] = {
    FieldKind.INTEGER: _integer,
    FieldKind.FLOAT: _float,
    FieldKind.TEXT: _text,
    FieldKind.OCTETS: _octets,
    FieldKind.BOOLEAN: _boolean,
    FieldKind.TIME: _time,
    FieldKind.OTHER: _other,
}
_NESTED: dict[int, Callable[[Any, pa.DataType], Any]] = {
    pa.lib.Type_LIST: _list,
    pa.lib.Type_STRUCT: _struct,
    pa.lib.Type_MAP: _map,
}
