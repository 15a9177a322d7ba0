"""Schema of a sample of values, as a text for Spark's parser, and how many values differ from it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import attrs
import numpy as np
import pyarrow as pa

from pgm.errors import UsageError
from pgm.messages.objects import ARROW, CBOR, BadObject
from pgm.messages.typed.decoder import ValueDecoder
from pgm.messages.typed.fields import TypedField, ValueCodec

_ARROW_BEGINNING = b"\xff\xff\xff\xff"  # of every IPC stream
_CBOR_MAPS = range(0xA0, 0xC0)
_TIME = pa.timestamp("us", "UTC")
_DEEPEST = 16  # nested types; deeper values are text in no column
_MOST_REASONS = 10

_NAMES: dict[pa.DataType, str] = {
    pa.bool_(): "BOOLEAN", pa.int8(): "TINYINT", pa.int16(): "SMALLINT", pa.int32(): "INT", pa.int64(): "BIGINT",
    pa.float32(): "FLOAT", pa.float64(): "DOUBLE", pa.string(): "STRING", pa.binary(): "BINARY", pa.date32(): "DATE",
    _TIME: "TIMESTAMP", pa.timestamp("us"): "TIMESTAMP_NTZ",
}  # fmt: skip
_WIDER: dict[pa.DataType, pa.DataType] = {
    pa.uint8(): pa.int16(), pa.uint16(): pa.int32(), pa.uint32(): pa.int64(), pa.uint64(): pa.int64(), pa.float16(): pa.float32(),
    pa.large_string(): pa.string(), pa.string_view(): pa.string(), pa.large_binary(): pa.binary(),
    pa.binary_view(): pa.binary(), pa.date64(): pa.date32(),
}  # fmt: skip


@attrs.frozen
class SampledSchema:
    """Fields of the values of a sample. `differing` values have other fields than most, or other types."""

    codec: ValueCodec
    fields: tuple[TypedField, ...]
    sampled: int
    differing: int
    reasons: dict[str, int]

    @property
    def ddl(self) -> str:
        """Return the fields as a text for Spark's parser."""
        return ", ".join(f"{quoted(field.name)} {ddl_of(field.type)}" for field in self.fields)


def quoted(name: str) -> str:
    """Return a name as Spark's parser reads it."""
    is_plain = name.isascii() and name.isidentifier()
    return name if is_plain else f"`{name.replace('`', '``')}`"


def ddl_of(kind: pa.DataType) -> str:
    """Return the name of a type for Spark's parser."""
    if pa.types.is_list(kind):
        return f"ARRAY<{ddl_of(kind.value_type)}>"
    if pa.types.is_map(kind):
        return f"MAP<{ddl_of(kind.key_type)}, {ddl_of(kind.item_type)}>"
    if pa.types.is_struct(kind):
        parts = (kind.field(place) for place in range(kind.num_fields))
        return f"STRUCT<{', '.join(f'{quoted(part.name)}: {ddl_of(part.type)}' for part in parts)}>"
    if pa.types.is_decimal(kind):
        return f"DECIMAL({kind.precision}, {kind.scale})"
    return _NAMES[kind]


def sampled_schema(payloads: Sequence[bytes], codec: ValueCodec | None = None) -> SampledSchema:
    """Return the schema of values; the codec of most of them by default. Raises `UsageError` if none has fields."""
    codec = codec or _codec_of(payloads)
    values = [_decoded(payload, codec) for payload in payloads]
    maps = [value for value in values if isinstance(value, dict)]
    types = _fields_of_tables(values) if codec is ValueCodec.ARROW else _fields_of_maps(maps, 0)
    if not types:
        raise UsageError(
            f"{len(payloads)} values, and none has fields as {codec.value}",
            remedy="name the codec (--decode), or other messages (--subject): values are CBOR maps, JSON objects or Arrow tables",
        )
    fields = tuple(TypedField.of(name, kind) for name, kind in types.items())
    reasons: Counter[str] = Counter()
    usual, decoder = _usual_names(values), ValueDecoder(codec, fields)
    for payload, value in zip(payloads, values, strict=True):
        reason = _difference(payload, value, usual, decoder)
        if reason is not None:
            reasons["".join(letter if letter.isprintable() else "?" for letter in reason)] += 1  # it goes to a terminal
    return SampledSchema(codec, fields, len(payloads), sum(reasons.values()), dict(reasons.most_common(_MOST_REASONS)))


def _codec_of(payloads: Iterable[bytes]) -> ValueCodec:
    found = Counter(codec for codec in map(_likely_codec, payloads) if codec is not None)
    if not found:
        raise UsageError(
            "no value is a CBOR map, a JSON object or an Arrow table",
            remedy="name other messages (--subject); other values stay octets in the column value",
        )
    return found.most_common(1)[0][0]


def _likely_codec(payload: bytes) -> ValueCodec | None:
    if payload.startswith(_ARROW_BEGINNING):
        return ValueCodec.ARROW
    if payload.lstrip()[:1] == b"{":
        return ValueCodec.JSON
    return ValueCodec.CBOR if payload[:1] and payload[0] in _CBOR_MAPS else None


def _decoded(payload: bytes, codec: ValueCodec) -> Any:
    """Return a value, or None for octets that are none."""
    try:
        if codec is ValueCodec.JSON:
            return json.loads(payload.decode())
        return (CBOR if codec is ValueCodec.CBOR else ARROW).decode(payload)
    except (BadObject, ValueError, RecursionError):
        return None


def _names_of(value: Any) -> list[Any]:
    return list(value.schema.names) if isinstance(value, pa.Table) else list(value) if isinstance(value, dict) else []


def _usual_names(values: Sequence[Any]) -> list[Any]:
    """Return the names of the fields that more than half of the values have."""
    named = [names for names in map(_names_of, values) if names]
    counts = Counter(name for names in named for name in names)
    return [name for name, count in counts.items() if 2 * count > len(named)]


def _difference(payload: bytes, value: Any, usual: Sequence[Any], decoder: ValueDecoder) -> str | None:
    """Return how a value differs from the usual fields; None if it has exactly these, with their types."""
    for rows in decoder.parts(pa.array([payload], pa.binary())):
        error: str | None = rows.errors[0].as_py()
        if error is not None:
            return error
    names = _names_of(value)
    lacking = [str(name) for name in usual if name not in names]
    others = [str(name) for name in names if name not in usual]
    told = [f"lacks {', '.join(lacking)}"] * bool(lacking) + [f"also has {', '.join(others)}"] * bool(others)
    return "; ".join(told)[:200] or None


def _fields_of_tables(values: Sequence[Any]) -> dict[str, pa.DataType]:
    found: dict[str, Counter[pa.DataType]] = {}
    for table in values:
        if isinstance(table, pa.Table):
            for field in table.schema:
                kind = _spark_type(field.type)
                if kind is not None and field.name.isprintable():
                    found.setdefault(field.name, Counter())[kind] += 1
    return _distinct({name: kinds.most_common(1)[0][0] for name, kinds in found.items()})


def _spark_type(kind: pa.DataType) -> pa.DataType | None:
    """Return the type of Spark that takes an Arrow type; None if none does."""
    if pa.types.is_dictionary(kind):
        return _spark_type(kind.value_type)
    if pa.types.is_timestamp(kind):
        return _TIME if kind.tz is not None else pa.timestamp("us")
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        item = _spark_type(kind.value_type)
        return None if item is None else pa.list_(item)
    if pa.types.is_struct(kind):
        parts = {kind.field(place).name: _spark_type(kind.field(place).type) for place in range(kind.num_fields)}
        return pa.struct([(name, part) for name, part in parts.items() if part is not None]) if parts else None
    if pa.types.is_map(kind):
        key, item = _spark_type(kind.key_type), _spark_type(kind.item_type)
        return None if key is None or item is None else pa.map_(key, item)
    kind = _WIDER.get(kind, kind)
    return kind if kind in _NAMES or pa.types.is_decimal128(kind) else None


def _fields_of_maps(maps: Sequence[dict[Any, Any]], depth: int) -> dict[str, pa.DataType]:
    found: dict[str, list[Any]] = {}
    for one in maps:
        for name, value in one.items():
            if isinstance(name, str) and name.isprintable():
                found.setdefault(name, []).append(value)
    types = {name: _type_of(values, depth) for name, values in found.items()}
    return _distinct({name: kind for name, kind in types.items() if kind is not None})


def _distinct(types: dict[str, pa.DataType]) -> dict[str, pa.DataType]:
    """Leave out names that differ from an earlier one only by their case, which Spark does not tell apart."""
    firsts: dict[str, str] = {}
    for name in types:
        firsts.setdefault(name.lower(), name)
    return {name: types[name] for name in firsts.values()}


def _type_of(values: Sequence[Any], depth: int) -> pa.DataType | None:
    """Return the type of most values; None without any."""
    kinds: dict[str, list[Any]] = {}
    for value in values:
        kind = _kind_of(value)
        if kind is not None:
            kinds.setdefault(kind, []).append(value)
    if "integer" in kinds and "float" in kinds:
        kinds["float"] += kinds.pop("integer")
    if not kinds or depth > _DEEPEST:
        return None
    kind = max(kinds, key=lambda name: len(kinds[name]))
    if kind == "integer":
        return pa.int64() if all(-(1 << 63) <= value < 1 << 63 for value in kinds[kind]) else pa.decimal128(20, 0)
    if kind == "decimal":
        return pa.decimal128(
            38, max(0, min(18, max(-int(value.as_tuple().exponent) for value in kinds[kind] if value.is_finite())))
        )
    if kind == "list":
        item = _type_of([item for value in kinds[kind] for item in value], depth + 1)
        return None if item is None else pa.list_(item)
    if kind == "map":
        fields = _fields_of_maps(kinds[kind], depth + 1)
        return pa.struct(list(fields.items())) if fields else None
    return _SIMPLE[kind]


_SIMPLE = {
    "boolean": pa.bool_(), "float": pa.float64(), "text": pa.string(), "octets": pa.binary(), "time": _TIME, "date": pa.date32()
}  # fmt: skip
_KINDS: tuple[tuple[type | tuple[type, ...], str], ...] = (
    (bool, "boolean"), (int, "integer"), (float, "float"), (str, "text"), ((bytes, bytearray), "octets"), (datetime, "time"),
    (date, "date"), (Decimal, "decimal"), ((list, tuple, set, frozenset, np.ndarray), "list"), (dict, "map"),
)  # fmt: skip


def _kind_of(value: Any) -> str | None:
    return next((kind for types, kind in _KINDS if isinstance(value, types)), None)
