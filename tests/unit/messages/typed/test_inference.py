"""Schemas of samples: the fields of all values, and how many values differ from most."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import cbor2
import pyarrow as pa
import pytest

from pgm.errors import UsageError
from pgm.messages.objects import ARROW
from pgm.messages.typed.fields import ValueCodec
from pgm.messages.typed.inference import sampled_schema

_ORDER = {
    "symbol": "IBM",
    "price": 1.5,
    "size": 7,
    "is open": True,
    "at": datetime(2026, 11, 26, tzinfo=UTC),
    "legs": [{"side": "buy", "n": 1}],
    "raw": b"x",
    "fee": Decimal("1.25"),
    "day": date(2026, 11, 26),
    "note": None,
}


def test_types_of_cbor_values() -> None:
    found = sampled_schema([cbor2.dumps(_ORDER)] * 3 + [cbor2.dumps(_ORDER | {"price": 2})])
    assert found.codec is ValueCodec.CBOR
    assert found.ddl == (
        "symbol STRING, price DOUBLE, size BIGINT, `is open` BOOLEAN, at TIMESTAMP, legs ARRAY<STRUCT<side: STRING, n: BIGINT>>, "
        "raw BINARY, fee DECIMAL(38, 2), day DATE"
    )
    assert found.reasons == {}
    assert sampled_schema([cbor2.dumps({"n": 2**63})]).ddl == "n DECIMAL(20, 0)"


def test_values_that_differ_are_counted_by_their_difference() -> None:
    usual: list[Any] = [{"symbol": "A", "price": 1.0}] * 20
    strange = [{"symbol": "A", "price": "dear"}, {"symbol": "A"}, {"symbol": "A", "price": 2, "Price": 1}, [1]]
    for encode in (cbor2.dumps, lambda one: json.dumps(one, indent=1).encode()):
        found = sampled_schema([encode(value) for value in usual + strange])
        assert (found.sampled, found.differing) == (24, 4)
        assert found.ddl == "symbol STRING, price DOUBLE"  # Spark does not tell price and Price apart
        assert found.reasons == {
            "field price: a str is no double": 1,
            "lacks price": 1,
            "also has Price": 1,
            "the value is of type list, and no map of fields": 1,
        }


def test_types_of_arrow_tables() -> None:
    table = pa.table({
        "symbol": pa.array(["A"]).dictionary_encode(), "size": pa.array([1], pa.uint32()), "half": pa.array([1.0], pa.float16()),
        "at": pa.array([1], pa.timestamp("ns", "Europe/Zurich")), "local": pa.array([1], pa.timestamp("s")),
        "tags": pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int8())), "gap": pa.nulls(1), "wait": pa.array([1], pa.duration("s")),
    })  # fmt: skip
    found = sampled_schema([ARROW.encode(table)])
    assert (
        found.ddl
        == "symbol STRING, size BIGINT, half FLOAT, at TIMESTAMP, local TIMESTAMP_NTZ, tags MAP<STRING, TINYINT>"
    )


def test_values_without_fields_are_refused() -> None:
    with pytest.raises(UsageError, match="no value is a CBOR map, a JSON object or an Arrow table"):
        sampled_schema([b"text", b"", b"\x01"])
    found = sampled_schema([cbor2.dumps({"a": 1, "\x1b[2J": 1})] * 2 + [cbor2.dumps({"a": 1, "\x07": 2})])
    assert (found.ddl, found.reasons) == ("a BIGINT", {"lacks ?[2J; also has ?": 1})
    with pytest.raises(UsageError, match="1 values, and none has fields as json"):
        sampled_schema([b"text"], ValueCodec.JSON)
