"""Columns of a JSON value are those of the general path, whichever values come beside it."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pgm.messages.typed.fields import TypedField
from pgm.messages.typed.json_rows import JsonRows

_BAD = b"x"  # Arrow refuses it, and the general path then decodes its neighbours
_TIME = pa.timestamp("us", "UTC")
_TYPES = (
    pa.int8(), pa.int64(), pa.float64(), pa.float32(), pa.bool_(), pa.string(), _TIME, pa.timestamp("us"),
    pa.list_(pa.float32()), pa.struct([("a", pa.float64()), ("b", pa.string())]), pa.list_(pa.struct([("a", pa.int32())])),
)  # fmt: skip

_digits = st.text("0123456789", min_size=1, max_size=12)
_numbers = st.builds(
    "{}{}{}{}".format, st.sampled_from(("", "-", "+")), _digits, st.just("") | _digits.map(".{}".format),
    st.just("") | st.integers(-400, 400).map("e{}".format),
)  # fmt: skip
_odd_numbers = st.sampled_from(
    ("-0", "-0.0", "-0e1", "1e400", "-" + "9" * 400, "1" * 5000, "NaN", "-Infinity", "01", "1.", ".5", "16777217", "7.038531e-26")
)  # fmt: skip
_times = st.builds(
    "{}{}{}{}".format, st.sampled_from(("2026-11-26", "0000-01-01", "9999-12-31", "20261126", "2026-W48-4", "2026-02-29")),
    st.sampled_from(("", "T", " ", "t")), st.sampled_from(("", "12", "12:30", "12:30:15", "23:59:60", "24:00:00", "12:30:15.1234567")),
    st.sampled_from(("", "Z", "z", "+01", "+01:30", "-14:00", "+24:00", "+01:00:30", " ")),
)  # fmt: skip
_texts = st.one_of(st.text(max_size=5).map(json.dumps), _times.map(json.dumps)).map(str.encode) | st.sampled_from(
    (
        b'"\xff"',
        b'"\\ud800"',
        b'"\\ude00"',
        b'"\\ud83d\\ude00"',
        b'"\\u0000"',
        b'"a\nb"',
        b'"\x00"',
        b'"open',
        b'"\\/"',
        b'"[[["',
    )
)
_single = st.one_of(
    _numbers.map(str.encode), _odd_numbers.map(str.encode), _texts, st.sampled_from((b"null", b"true", b"False"))
)


def _object(members: list[tuple[bytes, bytes]]) -> bytes:
    return b"{" + b", ".join(b'"%b":%b' % member for member in members) + b"}"


_names = st.sampled_from((b"a", b"b", b"A", b"\\u0061", b"", b"\xff", b"v"))
_any = st.recursive(
    _single,
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda items: b"[" + b",".join(items) + b"]")
        | st.lists(st.tuples(_names, inner), max_size=3).map(_object)
    ),
    max_leaves=6,
)
_tails = st.sampled_from(
    (b"", b"", b"", b" ", b"\n", b",", b"}", b"]", b'}{"v":{}', b'},"w":{', b',"w":1', b',"v":{}', b"\x00")
)
_values = st.builds(bytes.__add__, st.lists(st.tuples(_names, _any), max_size=3).map(_object), _tails)


def _told(kind: pa.DataType, values: list[bytes]) -> list[tuple[str, Any]]:
    """Return column and error of each value; nan and -0 are told as text."""
    rows = JsonRows([TypedField.of("a", kind)]).decode(pa.array(values, pa.binary()))
    [column] = rows.columns
    column.validate(full=True)
    assert column.type == kind
    return [(repr(value), error) for value, error in zip(column.to_pylist(), rows.errors.to_pylist(), strict=True)]


@given(st.sampled_from(_TYPES), st.lists(_values, min_size=1, max_size=3))
@example(pa.int64(), [b'{"a":1},"w":{}', b"{}"])
@example(pa.int64(), [b'{"a":1, "b":' + b"[" * 2000 + b"]" * 2000 + b"}"])
@example(pa.int64(), [b'{"a":1, "b":' + b'["]]",' * 2000 + b"1" + b"]" * 2000 + b"}"])
@example(pa.int64(), [b'{"a":1, "b":[' + b"[1]," * 300 + b"1]}"])
@example(pa.int64(), [b'{"a":1, "b":' + b"1" * 5000 + b"}"])
@example(pa.float64(), [b'{"a":' + b"1" * 5000 + b"}", b'{"a":-' + b"9" * 400 + b"}", b'{"a":-0}', b'{"a":-0.0}'])
@example(pa.float32(), [b'{"a":7.038531e-26}', b'{"a":1.000000059604644775390625000000000001}', b'{"a":1e39}'])
@example(pa.int8(), [b'{"a":-0}'])
@example(pa.int64(), [b'{"a":1,"b":"\xff"}', b'{"a":2}'])
def test_a_json_value_has_its_columns_beside_any_others(kind: pa.DataType, values: list[bytes]) -> None:
    general = _told(kind, [*values, _BAD])[:-1]
    assert _told(kind, values) == general
    assert [one for value in values for one in _told(kind, [value])] == general


@pytest.mark.parametrize("kind", [pa.float32(), pa.list_(pa.float32()), pa.struct([("b", pa.float32())])])
def test_long_nested_and_float_values_are_on_the_fast_path(monkeypatch: pytest.MonkeyPatch, kind: pa.DataType) -> None:
    monkeypatch.setattr("pgm.messages.typed.json_rows.plain_rows", None)
    value: Any = [0.1] if pa.types.is_list(kind) else {"b": 0.1} if pa.types.is_struct(kind) else 0.1
    whole = {"book": [{"bid": [1, 2], "size": row} for row in range(500)], "a": value, "more": {"x": 1}}
    [(found, error)] = set(_told(kind, [json.dumps(whole).encode()] * 3))
    assert (found, error) == (repr(pa.array([value], kind)[0].as_py()), None)
