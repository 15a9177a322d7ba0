"""Typed columns of CBOR, JSON and Arrow values: the fast paths give what the general path gives."""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import cbor2
import pyarrow as pa
import pytest

from pgm.messages.objects import ARROW, CBOR
from pgm.messages.typed.cbor_rows import CborRows
from pgm.messages.typed.decoder import ValueDecoder
from pgm.messages.typed.fields import TypedField, TypedRows, ValueCodec
from pgm.messages.typed.json_rows import JsonRows
from pgm.messages.typed.plain_rows import plain_rows

_TIME = pa.timestamp("us", "UTC")
TRADE = [
    TypedField.of(name, kind)
    for name, kind in (("symbol", pa.string()), ("price", pa.float64()), ("size", pa.int32()), ("ts", pa.int64()))
]
ALL = [
    *TRADE,
    TypedField.of("is_open", pa.bool_()),
    TypedField.of("raw", pa.binary()),
    TypedField.of("at", _TIME),
    TypedField.of("ratio", pa.float32()),
    TypedField.of("level", pa.int8()),
]


def trade(row: int) -> dict[str, Any]:
    return {
        "symbol": ("IBM", "AAPL", "A")[row % 3],
        "price": row / 8,
        "size": row % 3000,
        "ts": 1_700_000_000 * 10**9 + row,
    }


def octets(values: Sequence[bytes | None]) -> pa.Array:
    return pa.array(values, pa.binary())


def told(rows: TypedRows) -> tuple[list[list[Any]], list[Any]]:
    """Return columns with nan as text, which equals itself."""
    columns = [["nan" if one != one else one for one in column.to_pylist()] for column in rows.columns]
    return columns, rows.errors.to_pylist()


def of_cbor(payloads: list[bytes], fields: list[TypedField]) -> TypedRows:
    found = CborRows(fields).decode(octets(payloads))
    for column, field in zip(found.columns, fields, strict=True):
        column.validate(full=True)
        assert column.type == field.type
    assert told(found) == told(plain_rows(payloads, fields, CBOR.decode))
    return found


def _head(major: int, argument: int, low: int) -> bytes:
    return bytes([major << 5 | low]) + argument.to_bytes(1 << (low - 24), "big")


def _drawn_value(draw: random.Random) -> bytes:
    number = draw.choice((0, 1, 23, 24, 255, 256, 65535, 65536, 2**31 - 1, 2**31, 2**32, 2**53 + 1, 2**63 - 1, 2**63))
    kinds = (
        lambda: cbor2.dumps(draw.choice((number, -number, -1 - number))),
        lambda: _head(draw.choice((0, 1)), number % 256, draw.choice((24, 25, 26, 27))),  # longer than it must be
        lambda: cbor2.dumps(draw.choice((1.5, -0.0, float("inf"), float("nan"), 1e300, 3.14159)), canonical=draw.random() < 0.5),
        lambda: cbor2.dumps(draw.choice(("", "x", "Zürich", "y" * 23, "z" * 24, "long " * 60))),
        lambda: cbor2.dumps(draw.choice((b"", b"\xff\xfe", bytes(300)))),
        lambda: draw.choice((b"\xf4", b"\xf5", b"\xf6", b"\xf7", b"\xf0", b"\xf8\xff", b"\xff", b"\x1c", b"\x7f\x61a\xff")),
        lambda: cbor2.dumps(datetime.fromtimestamp(draw.randrange(2**32), UTC)),
        lambda: b"\xc1" + draw.choice((b"\xfb" + struct.pack(">d", draw.choice((1.7e9 + 0.123456, -5.25, 1e300, float("nan")))), b"\x1a\x65\x00\x00\x00", b"\xf6")),
        lambda: cbor2.dumps(draw.choice(([1, 2], {"a": 1}, 2**70))),
        lambda: b"\x62\xff\xfe",
        lambda: b"\x7b" + b"\xff" * 8,
    )  # fmt: skip
    return draw.choice(kinds)()


@pytest.mark.parametrize("seed", range(6))
def test_drawn_cbor_is_as_by_the_general_path(seed: int) -> None:
    draw = random.Random(seed)
    names = [[field.name for field in ALL] + ["other", "another one"] for _ in range(3)]
    for order in names:
        draw.shuffle(order)
    likely = {field.name: cbor2.dumps(value) for field, value in zip(ALL, ("IBM", 1.5, 7, 2**40, True, b"r", datetime(2026, 1, 1, tzinfo=UTC), 0.5, -3), strict=True)}  # fmt: skip
    payloads = []
    for _ in range(400):
        order = draw.choice(names)[: draw.randrange(1, 12)]
        strange = draw.choice(order) if draw.random() < 0.3 else ""
        items = [
            cbor2.dumps(name) + (_drawn_value(draw) if name == strange else likely.get(name, b"\x18\x63"))
            for name in order
        ]
        payload = bytes([5 << 5 | len(items)]) + b"".join(items)
        if draw.random() < 0.1:
            at = draw.randrange(len(payload))
            payload = payload[:at] + draw.randbytes(1) + payload[at + 1 :]
        if draw.random() < 0.05:
            payload = draw.choice((payload[: draw.randrange(len(payload))], payload + b"tail", b"", b"\xa0", b"\xff"))
        payloads.append(payload)
    decoder = CborRows(ALL)
    for first in range(0, 400, 100):  # layouts of earlier batches are remembered
        part = payloads[first : first + 100]
        assert told(decoder.decode(octets(part))) == told(plain_rows(part, ALL, CBOR.decode))
    of_cbor(payloads, ALL)


def test_trades_become_columns_without_an_object_for_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pgm.messages.typed.cbor_rows.plain_rows", None)
    monkeypatch.setattr("pgm.messages.typed.json_rows.plain_rows", None)
    values = [trade(row) for row in range(5000)]
    for decoder, encode in (
        (CborRows(TRADE), cbor2.dumps),
        (JsonRows(TRADE), lambda value: json.dumps(value, indent=1).encode()),
    ):
        rows = decoder.decode(octets([encode(value) for value in values])[10:])
        table = pa.table(rows.columns, [field.name for field in TRADE])
        assert table.to_pylist() == values[10:]
        assert rows.errors.null_count == len(values) - 10


@pytest.mark.parametrize("as_number", [False, True])
def test_nulls_and_ignored_fields_are_on_the_fast_path(monkeypatch: pytest.MonkeyPatch, as_number: bool) -> None:
    at = datetime(2026, 11, 26, 12, 0, 0, 5, tzinfo=UTC)
    types = {"n": pa.int16(), "s": pa.string(), "at": _TIME, "f": pa.float64()}
    fields = [TypedField.of(name, kind) for name, kind in types.items()]
    whole = {"n": 1, "s": "a", "at": at, "f": 1, "x": "\u00e9", "y": at}
    payloads = [
        cbor2.dumps(whole | {name: None}, datetime_as_timestamp=as_number) for name in ("n", "s", "at", "f", "x", "z")
    ]
    of_cbor(payloads, fields)
    monkeypatch.setattr("pgm.messages.typed.cbor_rows.plain_rows", None)
    rows = CborRows(fields).decode(octets(payloads))
    assert [column.null_count for column in rows.columns] == [1] * 4
    assert rows.columns[2].to_pylist() == [at, at, None, at, at, at]


def test_a_truncated_last_value_is_an_error_of_its_row() -> None:
    whole = cbor2.dumps({"symbol": "IBM", "price": 1.0})
    for size in range(len(whole)):
        rows = of_cbor([whole, whole[:size]], TRADE)
        assert rows.errors[0].as_py() is None
        assert rows.errors[1].as_py() is not None
        assert rows.columns[0].to_pylist() == ["IBM", None]


def test_the_error_names_field_and_types() -> None:
    rows = of_cbor([cbor2.dumps({"price": "dear"}), cbor2.dumps([1]), cbor2.dumps({"size": 2**31})], TRADE)
    assert rows.errors.to_pylist() == [
        "field price: a str is no double",
        "the value is of type list, and no map of fields",
        "field size: 2147483648 exceeds int32",
    ]


@pytest.mark.parametrize(
    "bad",
    [
        b'{"symbol":"a"}{"symbol":"b"}', b'{"symbol":"a"}},{"v":{"symbol":"b"}', b'{"symbol":"a', b"", b"null", b"5", b"[]",
        b'{"symbol":"a\x00"}', b'{"symbol":"a"}}\x00', b'{"symbol":"\xff"}', b'{"size":1.5}', b'{"size":3000000000}', b'{"symbol":5}',
        b'{"a":[{"b":1', b'{"symbol":"a"}}{"v":{"symbol":"b"}',
    ],
)  # fmt: skip
def test_bad_json_is_an_error_of_its_row_alone(bad: bytes) -> None:
    good = [json.dumps({"symbol": f"s{row}", "size": row}).encode() for row in range(200)]
    payloads = [*good[:70], bad, *good[70:]]
    rows = JsonRows(TRADE).decode(octets(payloads))
    symbols = rows.columns[0].to_pylist()
    assert symbols[:70] + symbols[71:] == [f"s{row}" for row in range(200)]
    assert symbols[70] is None
    errors = rows.errors.to_pylist()
    assert errors.pop(70)
    assert set(errors) == {None}


def test_nested_types_and_times_of_both_codecs() -> None:
    kind = pa.struct([("bid", pa.float64()), ("sizes", pa.list_(pa.int64()))])
    fields = [
        TypedField.of("book", kind), TypedField.of("at", _TIME), TypedField.of("tags", pa.map_(pa.string(), pa.int64())),
        TypedField.of("fee", pa.decimal128(10, 2)), TypedField.of("day", pa.date32()),
    ]  # fmt: skip
    at = datetime(2026, 11, 26, 12, tzinfo=UTC)
    value = {
        "book": {"bid": 1.5, "sizes": [1, 2], "more": 1},
        "at": at.isoformat(),
        "tags": {"a": 1},
        "fee": "1.25",
        "day": "2026-11-26",
    }
    for codec, encode in ((ValueCodec.CBOR, cbor2.dumps), (ValueCodec.JSON, lambda one: json.dumps(one).encode())):
        [rows] = ValueDecoder(codec, fields).parts(octets([encode(value), None, encode({})]))
        assert rows.errors.to_pylist() == [None] * 3
        assert rows.columns[0].to_pylist() == [{"bid": 1.5, "sizes": [1, 2]}, None, None]
        assert rows.columns[1].to_pylist() == [at, None, None]
        assert [str(column[0].as_py()) for column in rows.columns[2:]] == ["[('a', 1)]", "1.25", "2026-11-26"]


def test_arrow_tables_give_a_row_for_each_of_theirs() -> None:
    prices = pa.table({"symbol": pa.array(["A", "B"]).dictionary_encode(), "price": pa.array([1, 2]), "x": [0, 0]})
    wrong = pa.table({"size": ["many"]})
    values = [ARROW.encode(prices), None, ARROW.encode(prices.slice(0, 0)), ARROW.encode(wrong), b"no stream"]
    [rows] = ValueDecoder(ValueCodec.ARROW, TRADE).parts(octets(values))
    assert rows.places is not None
    assert rows.places.tolist() == [0, 0, 1, 2, 3, 4]
    assert rows.columns[0].to_pylist() == ["A", "B", None, None, None, None]
    assert rows.columns[1].to_pylist() == [1.0, 2.0, None, None, None, None]
    errors = rows.errors.to_pylist()
    assert errors[:5] == [None] * 4 + ["field size: a string is no int32"]
    assert errors[5].startswith("BadObject: ")
