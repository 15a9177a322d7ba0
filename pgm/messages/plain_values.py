"""Values of Python as CBOR values: objects with fields, enumerations, arrays of numpy, and times without a zone.

| value | in CBOR |
|---|---|
| dataclass, attrs class | map of its fields by name |
| `enum.Enum` | its value |
| `datetime` without a zone, `numpy.datetime64` | text in the form of ISO 8601, because tag 0 needs a zone |
| number of numpy | number |
| array of numbers of numpy | typed array (RFC 8746), little-endian; with several dimensions inside tag 40 |
| other array of numpy | nested lists |

`uuid.UUID` is tag 37 already. A reader of CBOR in any language can read all of these.
"""

from __future__ import annotations

import dataclasses
from datetime import datetime
from enum import Enum
from typing import Any

import attrs
import cbor2
import numpy as np
import numpy.typing as npt

# Tags of typed arrays are 64, plus these bits and the logarithm of the item's octets (RFC 8746, 2.1).
_TYPED = 64
_FLOAT, _SIGNED, _LITTLE = 16, 8, 4
_MULTI_DIMENSIONAL = 40
_DTYPES = {
    _TYPED + bits + size: np.dtype(f"{order}{letter}{(2 if bits & _FLOAT else 1) << size}")
    for kind, letter, sizes in ((0, "u", range(4)), (_SIGNED, "i", range(4)), (_FLOAT, "f", range(3)))
    for bits, order in ((kind, ">"), (kind | _LITTLE, "<"))
    for size in sizes
    if (bits, size) != (_SIGNED | _LITTLE, 0)  # reserved
}
_TAGS = {dtype: tag for tag, dtype in _DTYPES.items() if tag & _LITTLE or dtype.itemsize == 1}
_TAGS[np.dtype(np.uint8)] = _TYPED  # and not that of clamped arithmetic


def plain_value(value: Any) -> Any:
    """Return a value with all parts that CBOR does not know replaced; others remain, as an encoder refuses them.

    Raises TypeError if a replaced key of a table is not hashable.
    """
    if isinstance(value, dict):
        return {plain_value(key): plain_value(item) for key, item in value.items()}
    if isinstance(value, list):
        return [plain_value(item) for item in value]
    if isinstance(value, tuple):
        return tuple(map(plain_value, value))
    if isinstance(value, (set, frozenset)):
        items = [plain_value(item) for item in value]
        try:
            return frozenset(items)
        except TypeError:  # objects became tables, which no set can hold
            return items
    if isinstance(value, datetime):
        return value if value.tzinfo is not None else value.isoformat()
    if isinstance(value, np.ndarray):
        return _array(value)
    if isinstance(value, np.datetime64):
        return str(value)
    if isinstance(value, np.generic) and not isinstance(value, np.timedelta64):
        return value.item()
    if isinstance(value, Enum):
        return plain_value(value.value)
    if isinstance(value, type):
        return value
    if attrs.has(type(value)):
        return {field.name: plain_value(getattr(value, field.name)) for field in attrs.fields(type(value))}
    if dataclasses.is_dataclass(value):
        return {field.name: plain_value(getattr(value, field.name)) for field in dataclasses.fields(value)}
    return value


def _array(array: npt.NDArray[Any]) -> Any:
    tag = _TAGS.get(array.dtype.newbyteorder("<"))
    if array.dtype.kind == "m":
        return array  # CBOR has no durations: an encoder refuses the array
    if tag is None:
        items = np.datetime_as_string(array) if array.dtype.kind == "M" else array
        return plain_value(items.tolist())
    octets = array.astype(_DTYPES[tag], copy=False).tobytes()
    typed = cbor2.CBORTag(tag, octets)
    return typed if array.ndim == 1 else cbor2.CBORTag(_MULTI_DIMENSIONAL, [list(array.shape), typed])


def array_of_tag(first: Any, second: Any) -> Any:
    """Return the array of an untrusted tag; the tag itself if it is no array. Raises ValueError, TypeError.

    The tag comes second in cbor2 5, after the decoder, and first in cbor2 6. The array shares the memory of its octets,
    and is read-only.
    """
    tag = first if isinstance(first, cbor2.CBORTag) else second
    dtype = _DTYPES.get(tag.tag)
    if dtype is not None:
        return np.frombuffer(tag.value, dtype)
    if tag.tag == _MULTI_DIMENSIONAL:
        shape, array = tag.value
        if isinstance(array, np.ndarray) and all(type(length) is int and length >= 0 for length in shape):
            return array.reshape(tuple(shape))
    return tag
