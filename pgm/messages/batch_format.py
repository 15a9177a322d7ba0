"""Wire format of a batch: one CBOR map (RFC 8949) whose arrays are typed arrays (RFC 8746).

    {"v": 1, "n": messages, "size": octets of each | "offsets": typed array of n + 1,
     "subjects": [text, ...], "subject": one number | typed array of n,
     "nodes": [text, ...], "to": one number | typed array of n,
     "at": microseconds since 1970 as a number of 64 bits, if the stream has batch times,
     "data": octets}

Any CBOR reader can read a batch. This module has a reader of its own, because input from a network must be bounded and
simple: definite lengths, and only these keys, each at most once. The octets after the last message are padding, which makes
the packets of a train equally long.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

from pgm.errors import PgmError
from pgm.messages.columns import Columns, Indexes, Octets, Offsets
from pgm.messages.subjects import is_absolute

VERSION = 1
MOST_MESSAGES = 0xFFFF  # of one batch; the bound makes a false count in an empty batch cheap
MOST_NAME_OCTETS = 1024
TIME_OCTETS = 12  # a time with its key
_MOST_US = 253_402_300_800_000_000  # the year 10000: a later time is invalid
# Typed arrays of the format: tag -> type of the items.
DTYPES: Mapping[int, str] = {64: "<u1", 69: "<u2", 70: "<u4"}
_TAGS = {1: 64, 2: 69, 4: 70}

_UNSIGNED, _OCTETS, _TEXT, _ARRAY, _MAP, _TAG = 0, 2, 3, 4, 5, 6
_LONG = 27
_WIDTHS = {24: 1, 25: 2, 26: 4, _LONG: 8}  # additional information -> octets of the argument that follow


class BadBatch(PgmError):
    """Octets that are not a batch."""

    code = "PGM-BATCH"


def head(major: int, value: int) -> bytes:
    """Return the head of a CBOR item in its shortest form. Raises ValueError above 64 bits."""
    if value < 24:
        return bytes((major << 5 | value,))
    for information, width in _WIDTHS.items():
        if value < 1 << 8 * width:
            return bytes((major << 5 | information,)) + value.to_bytes(width, "big")
    raise ValueError(f"{value} has more than 64 bits")


def text(value: str) -> bytes:
    """Return a CBOR text string."""
    octets = value.encode()
    return head(_TEXT, len(octets)) + octets


def typed(values: npt.NDArray[Any], width: int) -> bytes:
    """Return a CBOR typed array of unsigned integers of `width` octets."""
    octets = values.astype(DTYPES[_TAGS[width]]).tobytes()
    return head(_TAG, _TAGS[width]) + head(_OCTETS, len(octets)) + octets


def width_of(most: int) -> int:
    """Return the octets of the narrowest items that hold numbers up to `most`."""
    return 1 if most < 1 << 8 else 2 if most < 1 << 16 else 4


_KEYS = {
    key: text(key) for key in ("v", "n", "size", "offsets", "subjects", "subject", "nodes", "to", "at", "data")
}  # fmt: skip


@functools.lru_cache(maxsize=256)
def table_octets(key: str, names: tuple[str, ...]) -> bytes:
    """Return a table of names with its key."""
    return _KEYS[key] + head(_ARRAY, len(names)) + b"".join(map(text, names))


def compose(columns: Columns, pad_to: int = 0, at_us: int | None = None) -> bytes:
    """Return one batch of all messages.

    `pad_to` pads the batch to this many octets, if CBOR can express that length. `at_us` is the time of the batch in us since
    1970, or None for none.
    """
    pieces = [_KEYS["v"], head(_UNSIGNED, VERSION), _KEYS["n"], head(_UNSIGNED, columns.count)]
    keys = 4
    if columns.offsets is None:
        pieces += (_KEYS["size"], head(_UNSIGNED, columns.size))
    else:
        pieces += (_KEYS["offsets"], typed(columns.offsets, width_of(columns.octets)))
    for table_key, names, key, indexes in (
        ("subjects", columns.subjects, "subject", columns.subject),
        ("nodes", columns.nodes, "to", columns.to),
    ):
        if isinstance(indexes, int):
            if not indexes:
                continue
            pieces += (table_octets(table_key, names), _KEYS[key], head(_UNSIGNED, indexes))
        else:
            pieces += (table_octets(table_key, names), _KEYS[key], typed(indexes, width_of(len(names))))
        keys += 2
    if at_us is not None:
        # The time is always in 64 bits and after all other keys, so that batches differ in nothing else.
        pieces += (_KEYS["at"], bytes((_UNSIGNED << 5 | _LONG,)), at_us.to_bytes(_WIDTHS[_LONG], "big"))
        keys += 1
    front = head(_MAP, keys) + b"".join(pieces) + _KEYS["data"]
    length = max(columns.octets, _filling(pad_to - len(front)))
    padding = bytes(length - columns.octets)
    return b"".join((front, head(_OCTETS, length), columns.data[: columns.octets].tobytes(), padding))


def _filling(room: int) -> int:
    """Return the length of the octets that take `room` with their head, or 0 if no length fits."""
    for width in (0, *_WIDTHS.values()):
        length = room - 1 - width
        if length >= 0 and len(head(_OCTETS, length)) == 1 + width:
            return length
    return 0


@attrs.frozen
class BatchField:
    """Place of octets or of a typed array in a batch: octets `begin` to `end - 1`."""

    begin: int
    end: int
    dtype: str = "<u1"

    def of(self, rows: Octets) -> npt.NDArray[Any]:
        """Return the array of each batch of one layout: a (batches, items) view or copy."""
        columns = rows[:, self.begin : self.end]
        return columns if self.dtype == "<u1" else np.ascontiguousarray(columns).view(self.dtype)


@attrs.frozen
class BatchLayout:
    """Layout of a batch: all of it except the contents of its arrays."""

    octets: int
    count: int
    size: int  # 0 if there are offsets
    offsets: BatchField | None
    subjects: tuple[str, ...]
    subject: BatchField | int
    nodes: tuple[str, ...]
    to: BatchField | int
    data: BatchField
    sample: Octets = attrs.field(eq=False, repr=False)  # one batch of this layout
    at: BatchField | None = None  # time of the batch

    @functools.cached_property
    def fixed(self) -> tuple[tuple[int, int], ...]:
        """Return the ranges of octets in which all batches of this layout are equal."""
        places = (self.offsets, self.subject, self.to, self.at, self.data)
        free = sorted((place.begin, place.end) for place in places if isinstance(place, BatchField))
        begins = (0, *(end for _, end in free))
        ends = (*(begin for begin, _ in free), self.octets)
        return tuple((begin, end) for begin, end in zip(begins, ends, strict=True) if begin < end)

    @functools.cached_property
    def fixed_octets(self) -> list[bytes]:
        """Return the octets in the ranges of `fixed`."""
        return [self.sample[begin:end].tobytes() for begin, end in self.fixed]

    def fits(self, octets: Octets) -> bool:
        """Return whether a batch of the same length has this layout."""
        return [octets[begin:end].tobytes() for begin, end in self.fixed] == self.fixed_octets


class _Reader:
    """Reader of the item types in a batch. Raises `BadBatch`, or IndexError after the end."""

    def __init__(self, octets: bytes) -> None:
        self.octets = octets
        self.at = 0

    def item(self) -> tuple[int, int]:
        first = self.octets[self.at]
        self.at += 1
        major, information = first >> 5, first & 31
        if information < 24:
            return major, information
        width = _WIDTHS.get(information)
        if width is None or self.at + width > len(self.octets):
            raise BadBatch("an item without a definite length")
        value = int.from_bytes(self.octets[self.at : self.at + width], "big")
        self.at += width
        return major, value

    def expect(self, major: int) -> int:
        kind, value = self.item()
        if kind != major:
            raise BadBatch(f"an item of kind {kind} instead of {major}")
        return value

    def stretch(self, length: int) -> tuple[int, int]:
        begin = self.at
        self.at += length
        if self.at > len(self.octets):
            raise BadBatch("longer than its packet")
        return begin, self.at

    def text(self) -> str:
        begin, end = self.stretch(self.expect(_TEXT))
        if end - begin > MOST_NAME_OCTETS:
            raise BadBatch("a name is too long")
        try:
            return self.octets[begin:end].decode()
        except UnicodeDecodeError:
            raise BadBatch("a name is not text") from None

    def names(self) -> tuple[str, ...]:
        count = self.expect(_ARRAY)
        if count > len(self.octets) - self.at:
            raise BadBatch("more names than octets")
        return tuple(self.text() for _ in range(count))

    def typed(self, tag: int) -> BatchField:
        dtype = DTYPES.get(tag)
        begin, end = self.stretch(self.expect(_OCTETS))
        if dtype is None or (end - begin) % int(dtype[2:]):
            raise BadBatch(f"an array of tag {tag}")
        return BatchField(begin, end, dtype)

    def number_or_array(self) -> BatchField | int:
        major, value = self.item()
        if major == _UNSIGNED:
            return value
        if major != _TAG:
            raise BadBatch(f"an item of kind {major} instead of an array")
        return self.typed(value)

    def value(self, key: str) -> Any:
        if key in ("v", "n", "size"):
            return self.expect(_UNSIGNED)
        if key in ("subjects", "nodes"):
            return self.names()
        if key in ("subject", "to"):
            return self.number_or_array()
        if key == "offsets":
            return self.typed(self.expect(_TAG))
        if key == "at":
            begin = self.at
            if self.item()[0] != _UNSIGNED or self.at - begin != 1 + _WIDTHS[_LONG]:
                raise BadBatch("a time that is no number of 64 bits")
            return BatchField(begin + 1, self.at, ">u8")
        if key == "data":
            return BatchField(*self.stretch(self.expect(_OCTETS)))
        raise BadBatch(f"unknown key {key!r}")


def read_layout(octets: bytes) -> BatchLayout:
    """Return the layout of a batch, without a check of the arrays' values. Raises `BadBatch`."""
    reader = _Reader(octets)
    values: dict[str, Any] = {}
    try:
        for _ in range(reader.expect(_MAP)):
            key = reader.text()
            if key in values:
                raise BadBatch(f"key {key!r} twice")
            values[key] = reader.value(key)
    except IndexError:
        raise BadBatch("shorter than its lengths") from None
    if reader.at != len(octets):
        raise BadBatch("octets after its end")
    if values.get("v") != VERSION:
        raise BadBatch(f"version {values.get('v')}")
    return _layout_of(values, np.frombuffer(octets, np.uint8))


def _layout_of(values: dict[str, Any], octets: Octets) -> BatchLayout:
    count, data = values.get("n", 0), values.get("data")
    offsets, size = values.get("offsets"), values.get("size", 0)
    if data is None or not 1 <= count <= MOST_MESSAGES or (offsets is None) != (size > 0):
        raise BadBatch("without messages, or without their sizes")
    if count * size > data.end - data.begin:
        raise BadBatch("fewer octets than its messages need")
    if offsets is not None and _items(offsets) != count + 1:
        raise BadBatch("the number of offsets is not one more than the messages")
    subjects, subject = _table(values, "subjects", "subject", count)
    nodes, to = _table(values, "nodes", "to", count)
    if not all(map(is_absolute, subjects)):
        raise BadBatch("a subject is invalid")
    return BatchLayout(len(octets), count, size, offsets, subjects, subject, nodes, to, data, octets, values.get("at"))


def _table(values: dict[str, Any], names_key: str, key: str, count: int) -> tuple[tuple[str, ...], BatchField | int]:
    names, indexes = values.get(names_key, ()), values.get(key, 0)
    if (key in values) != (names_key in values):
        raise BadBatch(f"{key} without {names_key}, or the reverse")
    if isinstance(indexes, BatchField):
        if _items(indexes) != count:
            raise BadBatch(f"{key} not for each of its messages")
    elif indexes > len(names):
        raise BadBatch(f"{key} beyond its table")
    return names, indexes


def _items(place: BatchField) -> int:
    return (place.end - place.begin) // int(place.dtype[2:])


def equal_rows(rows: Octets, layout: BatchLayout) -> int:
    """Return the number of leading rows with this layout, which row 0 has. Each row is a batch."""
    if len(rows) == 1 or not layout.fits(rows[1]):
        return 1
    count = len(rows)
    for (begin, end), octets in zip(layout.fixed, layout.fixed_octets, strict=True):
        actual, expected = rows[:count, begin:end].tobytes(), octets * count
        if actual != expected:
            differ = np.frombuffer(actual, np.uint8) != np.frombuffer(expected, np.uint8)
            count = int(differ.argmax()) // (end - begin)
    return count


def columns_of(rows: Octets, layout: BatchLayout, take: Callable[[int], Octets]) -> Columns:
    """Return the messages of batches of one layout, (batches, octets), in memory of `take`. Raises `BadBatch`."""
    count = len(rows) * layout.count
    subject = _indexes(rows, layout.subject, len(layout.subjects))
    to = _indexes(rows, layout.to, len(layout.nodes))
    names: dict[str, Any] = {"subjects": layout.subjects, "subject": subject, "nodes": layout.nodes, "to": to}
    begin = layout.data.begin
    if layout.offsets is None:
        octets = layout.count * layout.size
        data = take(len(rows) * octets)
        as_items(data.reshape(len(rows), octets))[:] = as_items(rows[:, begin : begin + octets])
        return Columns(count, data, layout.size, None, **names)
    ends: Offsets = layout.offsets.of(rows).astype(np.int64)
    sizes = ends[:, 1:] - ends[:, :-1]
    if ends[:, 0].any() or (sizes < 0).any() or (ends[:, -1] > layout.data.end - begin).any():
        raise BadBatch("offsets decrease, or exceed its octets")
    stretches = [rows[row, begin : begin + end] for row, end in enumerate(ends[:, -1].tolist())]
    data = np.concatenate(stretches, out=take(int(ends[:, -1].sum())))
    return Columns.of_sizes(data, sizes.reshape(-1), **names)


def times_of(rows: Octets, layout: BatchLayout) -> npt.NDArray[np.int64] | None:
    """Return the times of batches of one layout in us since 1970, or None without times. Raises `BadBatch`."""
    if layout.at is None:
        return None
    times = layout.at.of(rows).reshape(-1)
    if int(times.max()) >= _MOST_US:
        raise BadBatch("a time after the year 9999")
    return times.astype(np.int64)


def as_items(rows: Octets) -> npt.NDArray[np.void]:
    """Return each row as one item. numpy copies items faster than single octets."""
    items: npt.NDArray[np.void] = rows.view(f"V{rows.shape[-1]}")
    return items[..., 0]


def _indexes(rows: Octets, place: BatchField | int, names: int) -> Indexes | int:
    if isinstance(place, int):
        return place
    indexes = place.of(rows).flatten()
    if int(indexes.max()) > names:
        raise BadBatch("an index beyond its table")
    return indexes
