"""Values that no honest producer sends: each is an error of its own row, and takes little memory."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import cbor2
import numpy as np
import pyarrow as pa
import pytest

from pgm.messages.objects import ARROW
from pgm.messages.typed.decoder import ValueDecoder
from pgm.messages.typed.fields import TypedField, ValueCodec

_TIME = pa.timestamp("us", "UTC")
_ROWS = 1 << 17


def _decoded(codec: ValueCodec, kind: pa.DataType, *values: bytes) -> tuple[list[Any], list[str | None]]:
    [rows] = ValueDecoder(codec, [TypedField.of("a", kind)]).parts(pa.array(values, pa.binary()))
    rows.columns[0].validate(full=True)
    return rows.columns[0].to_pylist(), rows.errors.to_pylist()


def _table(column: pa.Array) -> bytes:
    return ARROW.encode(pa.table({"a": column}))


@pytest.mark.parametrize("text", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"])
@pytest.mark.parametrize("kind", [_TIME, pa.timestamp("us"), pa.list_(_TIME)])
def test_times_outside_of_the_calendar_are_errors(text: str, kind: pa.DataType) -> None:
    value: Any = [text] if pa.types.is_list(kind) else text
    good: Any = ["2026-11-26T00:00:00Z"] if pa.types.is_list(kind) else "2026-11-26T00:00:00Z"
    found, errors = _decoded(ValueCodec.JSON, kind, *(json.dumps({"a": one}).encode() for one in (good, value)))
    assert found[0] is not None
    assert (found[1], errors[0]) == (None, None)
    assert str(errors[1]).startswith("field a: ")
    tagged = b"\xa1\x61a" + (b"\x81" if pa.types.is_list(kind) else b"") + b"\xc0" + cbor2.dumps(text)
    assert _decoded(ValueCodec.CBOR, kind, tagged)[0] == [None]


def test_times_and_dates_of_tables_stay_within_the_calendar() -> None:
    far = (
        pa.array([1 << 62], _TIME),
        pa.array([10**15], pa.timestamp("s", "UTC")),
        pa.array([10**15], pa.timestamp("ms")),
    )
    for column in far:
        found, errors = _decoded(ValueCodec.ARROW, _TIME, _table(column))
        assert found == [None]
        assert str(errors[0]).startswith("field a: ")
    assert _decoded(ValueCodec.ARROW, pa.date32(), _table(pa.array([10**7], pa.date32())))[0] == [None]
    parts = pa.array([[{"at": 1 << 62}]], pa.list_(pa.struct([("at", _TIME)])))
    assert _decoded(ValueCodec.ARROW, parts.type, _table(parts))[0] == [None]


def test_whole_numbers_of_tables_fit_floats_and_times_are_cut() -> None:
    assert _decoded(ValueCodec.ARROW, pa.float64(), _table(pa.array([2**53 + 1]))) == ([2.0**53], [None])
    [at], errors = _decoded(ValueCodec.ARROW, pa.timestamp("us"), _table(pa.array([1501], pa.timestamp("ns"))))
    assert (at.microsecond, errors) == (1, [None])


def test_few_octets_that_stand_for_many_are_refused() -> None:
    folded = pa.DictionaryArray.from_arrays(pa.array(np.zeros(_ROWS, np.int8)), pa.array(["x" * 1000]))
    text = pa.string()
    length = np.int32(1000).tobytes() + b"xxxx" + bytes(8)  # a view of the octets 0 to 999 of the first buffer
    buffers = [None, pa.py_buffer(length * _ROWS), pa.py_buffer(b"x" * 1000)]
    views = pa.Array.from_buffers(pa.string_view(), _ROWS, buffers)
    for column, kind in (
        (folded, text),
        (pa.StructArray.from_arrays([folded], ["q"]), pa.struct([("q", text)])),
        (pa.array([[]], pa.list_(folded.type)).cast(pa.list_(folded.type)), pa.list_(text)),
        (views, text),
    ):
        before = pa.total_allocated_bytes()
        payload = _table(column)
        found, errors = _decoded(ValueCodec.ARROW, kind, payload)
        assert pa.total_allocated_bytes() - before < 1 << 24
        if len(column) == 1:
            assert (found, errors) == ([[]], [None])
        else:
            assert errors == [f"field a: {1000 * _ROWS} octets, of {64 << 20} allowed"]
    few = pa.array(["a", None, "b"]).cast(pa.string_view())
    assert _decoded(ValueCodec.ARROW, text, _table(few[1:]))[0] == [None, "b"]


def test_layouts_that_arrow_converts_wrongly_are_refused() -> None:
    views = pa.ListViewArray.from_arrays(pa.array([0, 0], pa.int32()), pa.array([2, 2], pa.int32()), pa.array([1, 2]))
    column = pa.ListArray.from_arrays(pa.array([0, 1, 2], pa.int32()), views)
    found, errors = _decoded(ValueCodec.ARROW, pa.list_(pa.list_(pa.int64())), _table(column))
    assert found == [None]
    assert str(errors[0]).startswith("field a: a list<")


def test_decimals_have_all_their_digits() -> None:
    kind, number = pa.decimal128(38, 9), Decimal("12345678901234567890.123456789")
    huge = b"\xa1\x61a\xc4\x82\x1a\x3f\xff\xff\xff\x01"  # 10 to the 1,073,741,823
    found, errors = _decoded(ValueCodec.CBOR, kind, cbor2.dumps({"a": number}), huge, cbor2.dumps({"a": "dear"}))
    assert found == [number, None, None]
    assert errors == [None, "field a: a Decimal is no decimal128(38, 9)", "field a: a str is no decimal128(38, 9)"]
