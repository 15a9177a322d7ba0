"""Decoder of values into typed columns. Bad values give an error and nulls; no value raises an exception."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from pgm.messages.typed.arrow_rows import ArrowRows
from pgm.messages.typed.cbor_rows import CborRows
from pgm.messages.typed.fields import TypedField, TypedRows, ValueCodec
from pgm.messages.typed.json_rows import JsonRows


class ValueDecoder:
    """Decoder of one codec into columns of at least one field.

    Fields that a value lacks are null, and other parts of a value are ignored. A value that is no map of fields, or has a
    field of another type, gives an error and nulls in all columns.
    """

    def __init__(self, codec: ValueCodec, fields: Sequence[TypedField]) -> None:
        self._arrow = ArrowRows(fields) if codec is ValueCodec.ARROW else None
        self._lines = JsonRows(fields) if codec is ValueCodec.JSON else CborRows(fields)

    def parts(self, values: pa.Array) -> Iterator[TypedRows]:
        """Yield the columns of binary values, null for a null, in parts that together have all values."""
        if self._arrow is not None:
            yield from self._arrow.parts(values)
        elif not values.null_count:
            yield self._lines.decode(values)
        else:
            found = self._lines.decode(values.drop_null())
            is_null = values.is_null().to_numpy(zero_copy_only=False)
            places = pa.array(np.cumsum(~is_null) - 1, mask=is_null)
            yield TypedRows([column.take(places) for column in found.columns], found.errors.take(places))
