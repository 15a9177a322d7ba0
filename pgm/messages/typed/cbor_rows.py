"""Columns of CBOR values: all values of a batch are walked in lock-step, one numpy operation for each head.

Values of one producer have the same keys in the same order, so they share a layout. A vector holds the place of each
value, and moves from key to key. A value that does not fit its layout, or its columns, takes the general path, which
decides and names the error.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

import attrs
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pgm.messages.objects import CBOR
from pgm.messages.typed.cbor_layout import (
    INTEGERS,
    MOST_CONSTANT,
    OCTETS,
    SIMPLE,
    SKIPPED,
    TEXT,
    WIDTHS,
    CborLayout,
    layout_of,
)
from pgm.messages.typed.fields import FieldKind, TypedField, TypedRows, has_strange_times, merged, no_rows
from pgm.messages.typed.plain_rows import plain_rows

Numbers = npt.NDArray[np.int64]
_Words = npt.NDArray[np.uint64]
_Heads = npt.NDArray[np.uint8]
_Mask = npt.NDArray[np.bool_]

_LAYOUTS = 64  # layouts kept, the last used first
_NEW_LAYOUTS = 16  # looked for in one batch; further values take the general path
_PADDING = 32  # octets behind a key that words may reach
_WORD = 8
_MOST_OCTETS = 1 << 31  # of one text, as Arrow counts them
_US = 1_000_000
_EXACT = np.uint64(1 << 52)  # below, a negative number is exact as a float
_FIRST_S, _LAST_S = -62_135_596_800, 253_402_300_799  # of the years 1 to 9999
_FALSE, _TRUE, _NULL, _UNDEFINED = 0xF4, 0xF5, 0xF6, 0xF7
_SIMPLE_OCTET, _HALF, _SINGLE, _DOUBLE = 0xF8, 0xF9, 0xFA, 0xFB
_TAG_TEXT_TIME, _TAG_TIME = 0xC0, 0xC1

_WIDTH_OF = np.full(32, -1, np.int64)  # by the low bits of a head; -1: an indefinite length
_WIDTH_OF[:24] = 0
for _low, _width in WIDTHS.items():
    _WIDTH_OF[_low] = _width
_SHIFT_OF = np.array([64 - 8 * max(1, width) for width in _WIDTH_OF.tolist()], np.uint64)


@attrs.define(eq=False)
class _Octets:
    """Octets of all values, read as single ones and as words of eight at any place."""

    data: npt.NDArray[np.uint8]
    words: _Words
    last: int  # the highest place that may be read

    @classmethod
    def of(cls, data: npt.NDArray[np.uint8]) -> _Octets:
        """Copy octets, so that a walk may read a key and some words behind the last."""
        padded = np.zeros(len(data) + MOST_CONSTANT + _PADDING, np.uint8)
        padded[: len(data)] = data
        words = np.ndarray((len(padded) - _WORD,), np.dtype("<u8"), padded, strides=(1,))
        return cls(padded, words, len(data))


@attrs.define(eq=False)
class _Items:
    """Items of one key: heads, arguments, and the places behind heads and arguments."""

    head: _Heads
    argument: _Words
    behind: Numbers
    is_definite: _Mask


@attrs.define(eq=False)
class _Cell:
    """Values of one field as numbers, or as begins and ends of octets. `is_valid` None: all are."""

    values: npt.NDArray[np.generic]
    ends: Numbers | None = None
    is_valid: _Mask | None = None


@attrs.define(eq=False)
class _Walk:
    """Walk of some values through one layout. `at` holds the place in each, `is_good` whether it fits so far."""

    octets: _Octets
    at: Numbers
    is_good: _Mask

    def refuse(self, bad: _Mask) -> None:
        """Leave values to the general path."""
        if bad.any():
            self.is_good &= ~bad

    def heads_behind(self, constant: bytes) -> _Heads:
        """Pass constant octets; return the heads behind them. Values with other octets do not fit."""
        size = len(constant)
        for done in range(0, size - _WORD + 1, _WORD):
            self._compare(self.octets.words[self.at + done], constant[done : done + _WORD])
        left = size % _WORD
        words = self.octets.words[self.at + (size - left)]
        if left:
            self._compare(words, constant[size - left :])
        self.at = self.at + size
        heads: _Heads = (words >> np.uint64(8 * left)).astype(np.uint8)
        return heads

    def _compare(self, words: _Words, constant: bytes) -> None:
        mask = np.uint64((1 << 8 * len(constant)) - 1)
        self.refuse((words & mask) != np.uint64(int.from_bytes(constant, "little")))

    def items(self, head: _Heads) -> _Items:
        """Return the items whose heads are at the present places."""
        low = head & np.uint8(31)
        first = int(head[0])
        if (head == first).all():
            width = int(_WIDTH_OF[first & 31])
            argument = (
                low.astype(np.uint64)
                if width <= 0
                else self.octets.words[self.at + 1].byteswap() >> np.uint64(64 - 8 * width)
            )
            return _Items(head, argument, self.at + (1 + max(0, width)), np.full(len(head), width >= 0))
        if int(low.max()) < 24:
            return _Items(head, low.astype(np.uint64), self.at + 1, np.ones(len(head), bool))
        widths = _WIDTH_OF[low]
        words = self.octets.words[self.at + 1].byteswap() >> _SHIFT_OF[low]
        argument = np.where(widths == 0, low.astype(np.uint64), words)
        return _Items(head, argument, self.at + 1 + np.maximum(widths, 0), widths >= 0)

    def move(self, to: Numbers) -> None:
        """Go to places behind items. A place behind its own value is found at the end of the walk."""
        last = self.octets.last
        if int(to.max()) > last:
            self.refuse(to > last)
            to = np.minimum(to, last)
        self.at = to


def _nulls(head: _Heads) -> _Mask | None:
    """Return which items are null or undefined; None if none is."""
    found = (head | 1) == _UNDEFINED
    return found if found.any() else None


def _valid(nulls: _Mask | None) -> _Mask | None:
    return None if nulls is None else ~nulls


def _integers(walk: _Walk, head: _Heads, field: TypedField) -> _Cell:
    items = walk.items(head)
    walk.move(items.behind)
    values: Numbers = items.argument.view(np.int64)
    major = head >> 5
    nulls = None
    too_large = values < 0
    if major.max():
        values = np.where(major == INTEGERS[1], ~values, values)
        nulls = _nulls(head)
        others = major > INTEGERS[1]
        walk.refuse(others if nulls is None else others & ~nulls)
    walk.refuse(too_large | ~items.is_definite)
    bits = field.type.bit_width
    if bits < 64:
        low, high = -(1 << (bits - 1)), (1 << (bits - 1)) - 1
        walk.refuse((values < low) | (values > high))
    return _Cell(values, is_valid=_valid(nulls))


def _floats(walk: _Walk, head: _Heads, _: TypedField) -> _Cell:
    if (head == _DOUBLE).all():
        values = walk.octets.words[walk.at + 1].byteswap().view(np.float64)
        walk.move(walk.at + 1 + _WORD)
        return _Cell(values)
    items = walk.items(head)
    walk.move(items.behind)
    major = head >> 5
    values = items.argument.astype(np.float64)
    negative = major == INTEGERS[1]
    if negative.any():
        values[negative] = -1.0 - values[negative]
        walk.refuse(negative & (items.argument > _EXACT))
    for code, whole, dtype in (
        (_HALF, np.uint16, np.float16),
        (_SINGLE, np.uint32, np.float32),
        (_DOUBLE, np.uint64, np.float64),
    ):
        chosen = head == code
        if chosen.any():
            values[chosen] = items.argument[chosen].astype(whole).view(dtype)
    nulls = _nulls(head)
    fits = (major <= INTEGERS[1]) | ((head >= _HALF) & (head <= _DOUBLE))
    walk.refuse(~(fits if nulls is None else fits | nulls) | ~items.is_definite)
    return _Cell(values, is_valid=_valid(nulls))


def _pieces(walk: _Walk, head: _Heads, major: int) -> _Cell:
    items = walk.items(head)
    nulls = None
    sizes = items.argument.view(np.int64)
    if (head >> 5 != major).any():
        nulls = _nulls(head)
        others = head >> 5 != major
        walk.refuse(others if nulls is None else others & ~nulls)
        sizes = np.where(others, 0, sizes)
    bad = (sizes < 0) | (sizes >= _MOST_OCTETS) | ~items.is_definite
    if bad.any():
        walk.refuse(bad)
        sizes = np.where(bad, 0, sizes)
    ends = items.behind + sizes
    walk.move(ends)
    return _Cell(items.behind, ends, _valid(nulls))


def _texts(walk: _Walk, head: _Heads, _: TypedField) -> _Cell:
    return _pieces(walk, head, TEXT)


def _binaries(walk: _Walk, head: _Heads, _: TypedField) -> _Cell:
    return _pieces(walk, head, OCTETS)


def _booleans(walk: _Walk, head: _Heads, _: TypedField) -> _Cell:
    walk.move(walk.at + 1)
    nulls = _nulls(head)
    fits = (head | 1) == _TRUE
    walk.refuse(~(fits if nulls is None else fits | nulls))
    return _Cell(head == _TRUE, is_valid=_valid(nulls))


def _times(walk: _Walk, head: _Heads, field: TypedField) -> _Cell:
    """Read times with the tag 1 as numbers of seconds, and those with the tag 0 as text."""
    nulls = _nulls(head)
    is_null = np.zeros(len(head), bool) if nulls is None else nulls
    tag = _TAG_TIME if (head == _TAG_TIME).any() else _TAG_TEXT_TIME  # those with another one take the general path
    walk.move(walk.at + 1)
    behind, was_good = walk.at, walk.is_good.copy()
    inner = walk.octets.data[walk.at]
    values = _text_times(walk, inner, ~is_null) if tag == _TAG_TEXT_TIME else _number_times(walk, inner, field)
    walk.at = np.where(is_null, behind, walk.at)
    walk.is_good = np.where(is_null, was_good, walk.is_good & (head == tag))
    return _Cell(values, is_valid=_valid(nulls))


def _number_times(walk: _Walk, head: _Heads, field: TypedField) -> Numbers:
    """Return microseconds since 1970 of numbers of seconds."""
    walk.refuse((head | 1) == _UNDEFINED)
    seconds = np.asarray(_floats(walk, head, field).values, np.float64)
    is_time = (seconds >= _FIRST_S) & (seconds <= _LAST_S)  # not for NaN
    walk.refuse(~is_time)
    seconds = np.where(is_time, seconds, 0.0)
    whole = np.trunc(seconds)
    microseconds: Numbers = (whole * _US + np.rint((seconds - whole) * _US)).astype(np.int64)
    return microseconds


def _text_times(walk: _Walk, head: _Heads, wanted: _Mask) -> Numbers:
    """Return microseconds since 1970 of texts. One text that Arrow cannot read leaves all to the general path."""
    values = np.zeros(len(head), np.int64)
    begin = walk.at
    cell = _pieces(walk, head, TEXT)
    chosen = wanted & walk.is_good & (head >> 5 == TEXT)
    texts = _texts_of(walk, cell, chosen)
    if texts is not None:
        with contextlib.suppress(pa.ArrowException):  # another form of ISO 8601, or no time
            times = texts.cast(pa.timestamp("us", "UTC"))
            if not has_strange_times(times):
                values[chosen] = times.view(pa.int64()).to_numpy()
                walk.refuse(~chosen)
                return values
    walk.at = begin
    walk.refuse(np.ones(len(head), bool))
    return values


def _texts_of(walk: _Walk, cell: _Cell, chosen: _Mask) -> pa.Array | None:
    """Return the chosen texts; None if one is not UTF-8, or lies in another value."""
    assert cell.ends is not None
    begins, ends = np.asarray(cell.values, np.int64)[chosen], cell.ends[chosen]
    if not len(begins):
        return pa.array([], pa.string())
    if not (ends[:-1] <= begins[1:]).all() or int(ends[-1]) > walk.octets.last:
        return None
    texts = _pieces_as_array(walk.octets, begins, ends, None, pa.string())
    try:
        texts.validate(full=True)
    except pa.ArrowInvalid:
        return None
    return texts


_TIME = TypedField.of("", pa.timestamp("us", "UTC"))


def _skip(walk: _Walk, head: _Heads) -> None:
    """Pass items that no column takes, but check them as the general path does."""
    if ((head | 1) == _TAG_TIME).all():
        _times(walk, head, _TIME)
        return
    major = head >> 5
    is_text = major == TEXT
    items = walk.items(head)
    sizes = np.where(is_text | (major == OCTETS), items.argument.view(np.int64), 0)
    walk.refuse((sizes < 0) | ~items.is_definite | ((major > TEXT) & (major != SIMPLE)) | (head == _SIMPLE_OCTET))
    ends = items.behind + np.clip(sizes, 0, _MOST_OCTETS)
    if is_text.any() and _texts_of(walk, _Cell(items.behind, ends), is_text & walk.is_good) is None:
        walk.refuse(is_text)
    walk.move(ends)


_READERS = {
    FieldKind.INTEGER: _integers,
    FieldKind.FLOAT: _floats,
    FieldKind.TEXT: _texts,
    FieldKind.OCTETS: _binaries,
    FieldKind.BOOLEAN: _booleans,
    FieldKind.TIME: _times,
}


def _pieces_as_array(
    octets: _Octets, begins: Numbers, ends: Numbers, is_valid: _Mask | None, kind: pa.DataType
) -> pa.Array:
    """Return pieces of octets as an array. The array with the gaps between the pieces is free; Arrow takes the pieces."""
    count = len(begins)
    offsets = np.empty(2 * count + 1, np.int32)
    offsets[0:-1:2], offsets[1::2] = begins, ends
    offsets[-1] = ends[-1] if count else 0
    both = pa.Array.from_buffers(kind, 2 * count, [None, pa.py_buffer(offsets), pa.py_buffer(octets.data)])
    mask = None if is_valid is None else ~is_valid
    return both.take(pa.array(np.arange(0, 2 * count, 2, dtype=np.int32), mask=mask))


@attrs.define(eq=False)
class _BatchWalk:
    """Values of a batch: those that a layout has decoded, and the rows that remain."""

    fields: tuple[TypedField, ...]
    octets: _Octets
    ends: Numbers  # one more than values: begins, and the last end
    rest: Numbers  # rows that no layout fits yet
    slow: list[int] = attrs.field(factory=list)  # rows for the general path
    cells: dict[int, _Cell] = attrs.field(factory=dict)  # by the place of the field

    def walk(self, layout: CborLayout) -> bool:
        """Decode the remaining values that have a layout; return whether any has."""
        rows = self.rest
        one = _Walk(self.octets, self.ends[rows], np.ones(len(rows), bool))
        cells: dict[int, _Cell] = {}
        for constant, place in zip(layout.constants, layout.places, strict=True):
            head = one.heads_behind(constant)
            if not one.is_good.any():
                return False
            if place == SKIPPED:
                _skip(one, head)
            else:
                cells[place] = _READERS[self.fields[place].kind](one, head, self.fields[place])
        good = one.is_good & (one.at <= self.ends[rows + 1])
        hits = rows[good]
        if not len(hits):
            return False
        for place, cell in cells.items():
            self._store(place, cell, hits, good)
        self.rest = rows[~good]
        return True

    def first_payload(self) -> bytes:
        """Return the first value that remains."""
        row = int(self.rest[0])
        return self.octets.data[self.ends[row] : self.ends[row + 1]].tobytes()

    def pass_over_first(self) -> None:
        """Leave the first value that remains to the general path."""
        self.slow.append(int(self.rest[0]))
        self.rest = self.rest[1:]

    def _store(self, place: int, cell: _Cell, hits: Numbers, good: _Mask) -> None:
        count = len(self.ends) - 1
        if len(hits) == count:
            self.cells[place] = cell
            return
        full = self.cells.get(place)
        if full is None:
            is_piece = cell.ends is not None
            values = self.ends[:-1].copy() if is_piece else np.zeros(count, cell.values.dtype)
            full = _Cell(values, values.copy() if is_piece else None, np.zeros(count, bool))
            self.cells[place] = full
        full.values[hits] = cell.values[good]
        if full.ends is not None and cell.ends is not None:
            full.ends[hits] = cell.ends[good]
        if full.is_valid is not None:
            full.is_valid[hits] = True if cell.is_valid is None else cell.is_valid[good]

    def rows(self, values: pa.Array) -> TypedRows:
        """Return the columns of all values."""
        count = len(values)
        columns = [
            self._array(self.cells[place], field) if place in self.cells else pa.nulls(count, field.type)
            for place, field in enumerate(self.fields)
        ]
        found = TypedRows(columns, pa.nulls(count, pa.string()))
        slow = np.unique(np.concatenate([self.rest, np.array(self.slow, np.int64)]))
        if not len(slow):
            return found
        payloads = values.take(pa.array(slow)).to_pylist()
        return merged(found, plain_rows(payloads, self.fields, CBOR.decode), slow)

    def _array(self, cell: _Cell, field: TypedField) -> pa.Array:
        if cell.ends is not None:
            array = _pieces_as_array(
                self.octets, np.asarray(cell.values, np.int64), cell.ends, cell.is_valid, field.type
            )
            return self._checked(array) if field.kind is FieldKind.TEXT else array
        mask = None if cell.is_valid is None else ~cell.is_valid
        if field.kind is FieldKind.TIME:
            return pa.array(cell.values, mask=mask).view(field.type)
        with np.errstate(over="ignore"):  # a number that exceeds 32 bits becomes infinite, as in Arrow
            numbers = cell.values.astype(field.type.to_pandas_dtype(), copy=False)
        return pa.array(numbers, mask=mask)

    def _checked(self, texts: pa.Array) -> pa.Array:
        """Return texts; one that is not UTF-8 becomes null, and its value takes the general path."""
        try:
            texts.validate(full=True)
        except pa.ArrowInvalid:
            for row, text in enumerate(texts.cast(pa.binary()).to_pylist()):
                try:
                    (text or b"").decode()
                except UnicodeDecodeError:
                    self.slow.append(row)
            mask = np.zeros(len(texts), bool)
            mask[self.slow] = True
            places = pa.array(np.arange(len(texts)), mask=mask)
            return texts.cast(pa.binary()).take(places).cast(pa.string())
        return texts


class CborRows:
    """Decoder of CBOR values into columns. It remembers the layouts of earlier values."""

    def __init__(self, fields: Sequence[TypedField]) -> None:
        self._fields = tuple(fields)
        self._places = {field.name: place for place, field in enumerate(fields)}
        self._is_fast = all(field.kind in _READERS for field in fields)
        self._layouts: list[CborLayout] = []

    def decode(self, values: pa.Array) -> TypedRows:
        """Return the columns of binary values without nulls."""
        if not self._is_fast:
            return plain_rows(values.to_pylist(), self._fields, CBOR.decode)
        if not len(values):
            return no_rows(self._fields)
        _, buffer, data = values.buffers()
        count = len(values)
        ends = np.frombuffer(buffer, np.int32)[values.offset : values.offset + count + 1].astype(np.int64)
        raw = np.empty(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)[ends[0] : ends[-1]]
        batch = _BatchWalk(self._fields, _Octets.of(raw), ends - ends[0], np.arange(count))
        for layout in tuple(self._layouts):
            if not len(batch.rest):
                break
            if batch.walk(layout):
                self._remember(layout)
        for _ in range(_NEW_LAYOUTS):
            if not len(batch.rest):
                break
            found = layout_of(batch.first_payload(), self._places)
            if found is not None and batch.walk(found):
                self._remember(found)
            else:
                batch.pass_over_first()
        return batch.rows(values)

    def _remember(self, layout: CborLayout) -> None:
        """Put a layout before all others; drop the one that was not used for the longest time."""
        if layout in self._layouts:
            self._layouts.remove(layout)
        self._layouts.insert(0, layout)
        del self._layouts[_LAYOUTS:]
