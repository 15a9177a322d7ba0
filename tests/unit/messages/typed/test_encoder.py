"""Values made of columns: a decoder of the same codec returns the columns."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from pgm.errors import UsageError
from pgm.messages.typed.decoder import ValueDecoder
from pgm.messages.typed.encoder import encoded_rows
from pgm.messages.typed.fields import TypedField, ValueCodec

_AT = datetime(2026, 11, 26, 12, 0, 0, 5, tzinfo=UTC)
_COLUMNS = {
    "symbol": pa.array(["A", None, "B", "B", "C"]),
    "subject": pa.array(["/a", "/a", None, "/b", "/b"]),
    "price": pa.array([1.5, 2.0, None, 3.25, 4.0]),
    "at": pa.array([_AT] * 5, pa.timestamp("us", "UTC")),
    "book": pa.array([{"bid": 1, "sizes": [1, 2]}] * 5),
    "tags": pa.array([[("x", 1)]] * 5, pa.map_(pa.string(), pa.int64())),
    "fee": pa.array([Decimal("1.25")] * 5, pa.decimal128(10, 2)),
    "day": pa.array([date(2026, 11, 26)] * 5),
}


@pytest.mark.parametrize("codec", list(ValueCodec))
def test_encoded_columns_are_decoded(codec: ValueCodec) -> None:
    batch = pa.RecordBatch.from_pydict(_COLUMNS)
    rows = encoded_rows(batch, codec)
    subjects = rows["subject"].to_pylist()
    assert subjects == (["/a", None, "/b"] if codec is ValueCodec.ARROW else batch["subject"].to_pylist())
    fields = [TypedField.of(field.name, field.type) for field in batch.schema if field.name != "subject"]
    [found] = ValueDecoder(codec, fields).parts(rows["value"].combine_chunks())
    assert found.errors.to_pylist() == [None] * 5
    for field, column in zip(fields, found.columns, strict=True):
        assert column.to_pylist() == batch[field.name].to_pylist()


def test_values_of_arrow_are_small() -> None:
    batch = pa.RecordBatch.from_pydict({"octets": [bytes(10_000)] * 50, "to": ["desk-1"] * 50})
    rows = encoded_rows(batch, ValueCodec.ARROW)
    assert [len(value) < 40_000 for value in rows["value"].to_pylist()] == [True] * 17
    assert encoded_rows(batch.slice(0, 0), ValueCodec.ARROW).num_rows == 0


def test_octets_have_no_form_in_json() -> None:
    with pytest.raises(UsageError, match="JSON has no such value: a bytes"):
        encoded_rows(pa.RecordBatch.from_pydict({"raw": [b"x"]}), ValueCodec.JSON)
