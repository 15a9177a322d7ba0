"""Conversion of the arguments of `send_batch` into columns: lists of octets, numpy arrays, Arrow arrays."""

from __future__ import annotations

import functools
import reprlib
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from pgm.errors import UsageError
from pgm.messages.batch_format import MOST_NAME_OCTETS, width_of
from pgm.messages.columns import MIXED, Columns, Indexes
from pgm.messages.subjects import require_absolute

Payload = bytes | bytearray | memoryview
Payloads: TypeAlias = "Sequence[Payload] | npt.NDArray[np.uint8] | Any"  # Any: an Arrow array
# One name for all messages, one for each, or a table and each message's index in it, from 0.
Names: TypeAlias = "str | Sequence[str | None] | tuple[Sequence[str], npt.NDArray[Any]] | Any | None"

_OCTETS = frozenset((bytes, bytearray))
_INDEXES = {width: np.dtype(f"<u{width}") for width in (1, 2, 4)}
_TEXT = frozenset((str,))
_CACHED_TABLES = 64  # tables of names whose check is cached


def is_arrow(value: object) -> bool:
    """Return whether a value is an Arrow object, without an import of pyarrow."""
    return type(value).__module__.partition(".")[0] == "pyarrow"


def columns_of_arguments(payloads: Payloads, subject: Names, to: Names) -> Columns:
    """Return the messages of one call as columns. Raises `UsageError`, or ValueError for a view of other items."""
    columns = _columns_of(payloads)
    if subject is None and to is None:
        return columns
    count = columns.count
    subjects, subject_of = _table(subject, count, "subject")
    nodes, to_of = _table(to, count, "node")
    _require(subjects, nodes)
    return Columns(count, columns.data, columns.size, columns.offsets, subjects, subject_of, nodes, to_of)


def _columns_of(payloads: Payloads) -> Columns:
    if not isinstance(payloads, np.ndarray):
        if is_arrow(payloads):
            return _of_arrow(payloads)
        _refuse_strings(payloads)
        return Columns.of_list(payloads)
    if payloads.ndim != 2 or payloads.dtype != np.uint8:
        raise UsageError(
            f"an array of {payloads.ndim} dimensions of {payloads.dtype} is no batch",
            remedy="give a (count, size) array of numpy.uint8: array.view(numpy.uint8)",
        )
    return Columns.of_rows(payloads)


def _require(subjects: tuple[str, ...], nodes: tuple[str, ...]) -> None:
    """Raise `UsageError` unless all names are valid; cached, because names usually recur from call to call."""
    if _TEXT.issuperset(map(type, subjects)) and _TEXT.issuperset(map(type, nodes)):
        _require_once(subjects, nodes)
    else:  # some name may be a subclass of str
        _require_each(subjects, nodes)


def _require_each(subjects: tuple[str, ...], nodes: tuple[str, ...]) -> None:
    for name in subjects:
        require_absolute(name)
    for name in nodes:
        require_node(name)


_require_once = functools.lru_cache(maxsize=_CACHED_TABLES)(_require_each)


@functools.lru_cache(maxsize=_CACHED_TABLES)
def longest_of(names: tuple[str, ...]) -> int:
    """Return the octets of the longest name, or 0 without names."""
    return max((len(name.encode()) for name in names), default=0)


def _refuse_strings(payloads: Sequence[Payload]) -> None:
    if not _OCTETS.issuperset(map(type, payloads)):
        require_octets(payloads)


def require_octets(payloads: Iterable[object]) -> None:
    """Raise `UsageError` if a message is no octet string."""
    for payload in payloads:
        if isinstance(payload, Payload):
            continue
        raise UsageError(
            f"{reprlib.repr(payload)} is no message",
            remedy='send octets: b"text" or "text".encode(); or send_object, which takes any value',
        )


def require_node(name: object) -> None:
    """Raise `UsageError` unless `name` can be the name of a node."""
    if not isinstance(name, str) or not 0 < len(name.encode()) <= MOST_NAME_OCTETS:
        raise UsageError(f"{name!r} is no name of a node", remedy='name one node of the topology, as in to="desk-7"')


def _table(names: Names, count: int, noun: str) -> tuple[tuple[str, ...], Indexes | int]:
    """Return a table of names, and each message's index in it from 1; 0 means no name.

    `noun` names the entries in errors. Raises `UsageError`.
    """
    if names is None or isinstance(names, str):
        return ((), 0) if names is None else ((names,), 1)
    if isinstance(names, tuple) and len(names) == 2 and isinstance(names[1], np.ndarray):
        return _places(names[0], names[1], count, noun)
    if is_arrow(names):
        return _places(*_arrow_table(names), count, noun)
    if len(names) != count:
        raise UsageError(
            f"{len(names)} {noun}s for {count} messages", remedy=f"give one {noun} for all, or one for each"
        )
    places: dict[str, int] = {}
    chosen = [0 if name is None else places.setdefault(name, len(places) + 1) for name in names]
    if chosen and min(chosen) == max(chosen):
        return tuple(places), chosen[0]
    return tuple(places), np.array(chosen, f"<u{width_of(len(places))}")


def _places(
    names: Sequence[str] | None, indexes: npt.NDArray[Any], count: int, noun: str
) -> tuple[tuple[str, ...], Indexes]:
    table: tuple[str, ...] = tuple(names or ())
    if indexes.shape != (count,) or (count and not _are_places(indexes, len(table))):
        raise UsageError(
            f"{indexes.size} places in a table of {len(table)} {noun}s for {count} messages",
            remedy="give each message one place, from 0 on, or -1 for none",
        )
    # The sum is computed in the narrow type: -1 is its greatest number, which wraps to 0.
    return table, np.add(indexes, 1, dtype=_INDEXES[width_of(len(table))], casting="unsafe")


def _are_places(indexes: npt.NDArray[Any], names: int) -> bool:
    has_sign = indexes.dtype.kind != "u"
    return int(np.maximum.reduce(indexes)) < names and not (has_sign and int(np.minimum.reduce(indexes)) < -1)


def _arrow_table(names: Any) -> tuple[Sequence[str], npt.NDArray[Any]]:
    import pyarrow as pa

    array = names.combine_chunks() if isinstance(names, pa.ChunkedArray) else names
    if not isinstance(array, pa.DictionaryArray):
        array = array.dictionary_encode()
    return array.dictionary.to_pylist(), array.indices.fill_null(-1).to_numpy(zero_copy_only=False)


def _of_arrow(array: Any) -> Columns:
    """Return the columns of a binary, string or fixed-size binary array; a null is empty. Raises `UsageError`."""
    import pyarrow as pa

    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    if isinstance(array, pa.ChunkedArray):  # an array without chunks
        array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], pa.binary())
    kind = array.type
    if array.null_count:
        array = array.fill_null(b"" if not pa.types.is_fixed_size_binary(kind) else bytes(kind.byte_width))
    if pa.types.is_fixed_size_binary(kind):
        octets = np.frombuffer(array.buffers()[1], np.uint8)
        size = kind.byte_width
        return Columns.of_rows(octets[array.offset * size : (array.offset + len(array)) * size].reshape(-1, size))
    large = pa.types.is_large_binary(kind) or pa.types.is_large_string(kind)
    if not (large or pa.types.is_binary(kind) or pa.types.is_string(kind)):
        raise UsageError(
            f"an array of {kind} is no batch", remedy="cast it: array.cast(pyarrow.binary()), or send its Arrow table"
        )
    if not len(array):
        return Columns(0, np.empty(0, np.uint8), MIXED, np.zeros(1, np.int64))
    _, ends, data = array.buffers()
    offsets = np.frombuffer(ends, np.int64 if large else np.int32)[array.offset : array.offset + len(array) + 1]
    octets = np.empty(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
    sizes = offsets[1:].astype(np.int64) - offsets[:-1].astype(np.int64)
    return Columns.of_sizes(octets[int(offsets[0]) : int(offsets[-1])], sizes)
