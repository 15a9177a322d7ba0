"""Saved state of a core, from which a replay begins.

A core is a graph of plain objects, so pickle saves it. Three things need care. Packets lie in chunks of memory that
many runs share, and cores join runs that are adjacent in memory: arrays are therefore saved as views of blocks, and
overlapping views share their block again. Only the octets of packets are saved of a chunk: the others may be anything that
the process had in its memory before. Objects of the application or of the operating system lie outside of the
cores, and are saved as names. Keys refuse to be pickled.

Loading runs no code outside of the cores: `_Unpickler` finds names of the sans-IO layers alone.
"""

from __future__ import annotations

import enum
import functools
import importlib
import io
import operator
import pickle
import struct
import sys
import types
import weakref
import zlib
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import attrs
import numpy as np

from pgm.core.structures.arena import Arena
from pgm.core.structures.ranges import Span
from pgm.errors import TapeError
from pgm.wire.packet_run import Run
from pgm.wire.train import Octets

MAGIC = b"PGMSTAT1"
# Magic, CRC-32 of all that follows, octets of the pickle, number of blocks, number of arrays.
_HEAD, _COUNTS = struct.Struct("<8sI"), struct.Struct("<QQQ")
_BLOCK = struct.Struct("<QQ")  # octets of a block, and number of its parts that are in use
_PART = struct.Struct("<QQ")  # offset and octets of a part
# Block, offset in it, identity and octets of the saved array, writable, then its dtype, shape and strides.
_ARRAY = struct.Struct("<QQQQ?BB")
_DTYPE_OCTETS = 16

# Packages whose classes and functions a state may name. None of their modules does input or output.
_PACKAGES = ("pgm.core", "pgm.wire", "pgm.fec", "pgm.parameters", "pgm.units", "aggregator", "repairer")
_NAMES = frozenset(
    {
        ("builtins", "set"), ("builtins", "frozenset"), ("builtins", "bytearray"), ("builtins", "range"),
        ("builtins", "slice"), ("collections", "OrderedDict"), ("collections", "deque"),
        ("collections", "defaultdict"), ("collections", "Counter"), ("functools", "partial"), ("random", "Random"),
        ("itertools", "count"), ("copyreg", "_reconstructor"), ("numpy", "dtype"),
        ("numpy._core.multiarray", "scalar"), ("numpy.core.multiarray", "scalar"),
    }
)  # fmt: skip
_FUNCTIONS = (types.FunctionType, types.BuiltinFunctionType, types.MethodType)


def array(index: int) -> None:
    """Stand for an array of a state, which the loader makes."""


def view(index: int) -> None:
    """Stand for a memoryview of a state, which the loader makes."""


def named(name: str) -> None:
    """Stand for a singleton, or for an object outside of the cores, which the loader finds."""


@attrs.define
class LoadedState:
    """A loaded state: the saved value, and its arrays by their former identity and size, as far as any is in use."""

    value: Any
    arrays: weakref.WeakValueDictionary[tuple[int, int], np.ndarray[Any, Any]]


def is_core_name(module: str, name: str) -> bool:
    """Return whether a state may name an object."""
    return (module, name) in _NAMES or any(
        module == package or module.startswith(f"{package}.") for package in _PACKAGES
    )


# Saving


def _constants() -> Mapping[int, str]:
    """Return the names of the constants of all loaded modules of the cores, by identity: cores compare by identity."""
    return _constants_of(len(sys.modules))


@functools.lru_cache(maxsize=1)
def _constants_of(_modules: int) -> Mapping[int, str]:
    found = {}
    for module in tuple(sys.modules.values()):
        name = getattr(module, "__name__", "")
        if not is_core_name(name, ""):
            continue
        for key, value in vars(module).items():
            kind = type(value)
            if not isinstance(value, (type, enum.Enum)) and is_core_name(kind.__module__, kind.__qualname__):
                found[id(value)] = f"{name}:{key}"
    return found


def _constant(name: str) -> object:
    """Return the constant of a name. Raises `TapeError`."""
    module, _, key = name.partition(":")
    if not is_core_name(module, key):
        raise TapeError(f"the tape names {name}, which is no part of a core", remedy="use a tape of pgm run")
    value: object = vars(importlib.import_module(module)).get(key)
    if not is_core_name(type(value).__module__, type(value).__qualname__):
        raise TapeError(f"the tape names {name}, which is no constant of a core", remedy="use a tape of pgm run")
    return value


class _Pickler(pickle.Pickler):
    """Pickler of cores. `outsiders` has names of objects outside of the cores, by their identity."""

    def __init__(self, file: io.BytesIO, outsiders: Mapping[int, str]) -> None:
        super().__init__(file, protocol=5)
        self._names = {**_constants(), **outsiders}
        self.arrays: list[np.ndarray[Any, Any]] = []
        self.spans: list[tuple[int, int]] = []  # octets in memory that packets occupy
        self.chunks: set[int] = set()  # identities of arrays of which only those octets are saved

    def reducer_override(self, obj: Any) -> Any:
        """Return how an array, or an object outside of the cores, is saved."""
        kind = type(obj)
        if kind is Run:
            begin = obj.buffer.__array_interface__["data"][0] + obj.offset
            self.spans.append((begin, begin + obj.octets))
            self.chunks.add(id(obj.buffer))
            return NotImplemented
        if kind is Arena:
            self.chunks.update(map(id, obj.all_chunks))
            return NotImplemented
        if kind is np.ndarray and not obj.dtype.hasobject:
            self.arrays.append(obj)
            return array, (len(self.arrays) - 1,)
        if kind is memoryview:
            self.arrays.append(np.frombuffer(obj, np.uint8))
            return view, (len(self.arrays) - 1,)
        name = self._names.get(id(obj))
        if name is not None:
            return named, (name,)
        if isinstance(obj, type) or kind in _FUNCTIONS:
            return NotImplemented
        is_plain = kind.__module__ in ("numpy", "numpy.dtypes", "operator", "builtins") and kind is not object
        if is_plain or is_core_name(kind.__module__, kind.__qualname__):
            return NotImplemented
        raise TapeError(
            f"the state of this node holds a {kind.__module__}.{kind.__qualname__}, which no tape keeps",
            remedy="run the node without --tape",
        )


def save(value: Any, outsiders: Mapping[int, str]) -> list[bytes | memoryview]:
    """Return the octets of a saved value, in pieces. `outsiders` are saved as names. Raises `TapeError`."""
    file = io.BytesIO()
    pickler = _Pickler(file, outsiders)
    try:
        pickler.dump(value)
    except (pickle.PicklingError, TypeError, AttributeError) as error:
        raise TapeError(
            f"the state of this node cannot be saved: {error}", remedy="run the node without --tape"
        ) from None
    bounds = [np.lib.array_utils.byte_bounds(one) for one in pickler.arrays]
    blocks = _joined(bounds)
    whole = (one for one, array in zip(bounds, pickler.arrays, strict=True) if id(array) not in pickler.chunks)
    rows = _rows_of(pickler.arrays, bounds, blocks)
    pieces = [*_pieces_of(blocks, _joined([*pickler.spans, *whole])), *rows]
    pieces.append(file.getvalue())
    pieces.insert(0, _COUNTS.pack(len(pieces[-1]), len(blocks), len(rows)))
    checksum = 0
    for piece in pieces:
        checksum = zlib.crc32(piece, checksum)
    return [_HEAD.pack(MAGIC, checksum), *pieces]


def _joined(spans: Iterable[Span]) -> list[Span]:
    """Return spans in order, with overlapping ones as one."""
    joined: list[Span] = []
    for begin, end in sorted(spans):
        if joined and begin < joined[-1][1]:
            joined[-1] = joined[-1][0], max(joined[-1][1], end)
        else:
            joined.append((begin, end))
    return joined


def _rows_of(arrays: Sequence[np.ndarray[Any, Any]], bounds: Sequence[Span], blocks: Sequence[Span]) -> list[bytes]:
    """Return a row for each array: its place in a block, and its form."""
    begins = [begin for begin, _ in blocks]
    rows = []
    for one, (begin, _) in zip(arrays, bounds, strict=True):
        block = bisect_right(begins, begin) - 1
        offset = one.__array_interface__["data"][0] - begins[block] if one.size else 0
        head = _ARRAY.pack(block, offset, id(one), one.nbytes, one.flags.writeable, one.ndim, 0)
        dtype = one.dtype.str.encode().ljust(_DTYPE_OCTETS)
        rows.append(head + dtype + struct.pack(f"<{2 * one.ndim}q", *one.shape, *one.strides))
    return rows


def _pieces_of(blocks: Sequence[Span], used: Sequence[Span]) -> Iterator[bytes | memoryview]:
    """Yield blocks of memory, each with the parts of it that are in use."""
    parts: list[list[Span]] = [[] for _ in blocks]
    begins = [begin for begin, _ in blocks]
    for begin, end in used:
        if end > begin:
            parts[bisect_right(begins, begin) - 1].append((begin, end))
    for (low, high), own in zip(blocks, parts, strict=True):
        yield _BLOCK.pack(high - low, len(own))
        for begin, end in own:
            yield _PART.pack(begin - low, end - begin)
            yield _memory(begin, end).data


def _memory(begin: int, end: int) -> Octets:
    """Return the octets of an interval of memory, which arrays of the state keep."""
    interface = {"data": (begin, True), "shape": (end - begin,), "typestr": "|u1", "version": 3}
    return np.asarray(types.SimpleNamespace(__array_interface__=interface))


# Loading


class _Unpickler(pickle.Unpickler):
    """Unpickler of cores."""

    def __init__(self, file: io.BytesIO, loaders: Mapping[str, Callable[..., object]]) -> None:
        super().__init__(file)
        self._loaders = loaders

    def find_class(self, module: str, name: str, /) -> Any:
        """Return a class or function of the sans-IO layers. Raises `TapeError` for all other names."""
        if module == __name__ and name in self._loaders:
            return self._loaders[name]
        if (module, name) == ("builtins", "getattr"):
            return _attribute
        if (module, name) == ("operator", "attrgetter"):
            return _attrgetter
        if "__" not in name and is_core_name(module, name):
            found = functools.reduce(getattr, name.split("."), importlib.import_module(module))
            if is_core_name(getattr(found, "__module__", ""), getattr(found, "__qualname__", "")):
                return found
        raise TapeError(f"the tape names {module}.{name}, which is no part of a core", remedy="use a tape of pgm run")


def _attribute(owner: object, name: str) -> object:
    """Return a method of an object of the cores."""
    kind = owner if isinstance(owner, type) else type(owner)
    if "__" in name or not is_core_name(kind.__module__, kind.__qualname__):
        raise TapeError(f"the tape names {kind.__qualname__}.{name}", remedy="use a tape of pgm run")
    return getattr(owner, name)


def _attrgetter(name: str) -> object:
    if "_" in name or "." in name:
        raise TapeError(f"the tape reads an attribute {name}", remedy="use a tape of pgm run")
    return operator.attrgetter(name)


def load(octets: bytes | memoryview, outsiders: Mapping[str, object]) -> LoadedState:
    """Return a saved value. Raises `TapeError` if the octets are damaged."""
    octets = memoryview(octets)
    try:
        return _load(octets, outsiders)
    except TapeError:
        raise
    except Exception as error:  # the octets are of an earlier version, or damaged
        raise TapeError(
            f"the state on the tape cannot be read: {error!r}", remedy="use the version that wrote it"
        ) from None


def _load(octets: memoryview, outsiders: Mapping[str, object]) -> LoadedState:
    magic, checksum = _HEAD.unpack_from(octets)
    if magic != MAGIC or zlib.crc32(octets[_HEAD.size :]) != checksum:
        raise TapeError("a state on the tape is damaged or not complete", remedy="use another tape")
    pickled, block_count, array_count = _COUNTS.unpack_from(octets, _HEAD.size)
    at = _HEAD.size + _COUNTS.size
    blocks: list[Octets] = []
    for _ in range(block_count):
        size, parts = _BLOCK.unpack_from(octets, at)
        at += _BLOCK.size
        block = np.zeros(size, np.uint8)
        for _ in range(parts):
            offset, length = _PART.unpack_from(octets, at)
            at += _PART.size
            block.data[offset : offset + length] = octets[at : at + length]
            at += length
        blocks.append(block)
    arrays: list[np.ndarray[Any, Any]] = []
    by_identity: weakref.WeakValueDictionary[tuple[int, int], np.ndarray[Any, Any]] = weakref.WeakValueDictionary()
    for _ in range(array_count):
        block_index, offset, identity, size, is_writable, ndim, _ = _ARRAY.unpack_from(octets, at)
        at += _ARRAY.size
        dtype = bytes(octets[at : at + _DTYPE_OCTETS]).decode().strip()
        numbers = struct.unpack_from(f"<{2 * ndim}q", octets, at + _DTYPE_OCTETS)
        at += _DTYPE_OCTETS + 16 * ndim
        one = np.ndarray(numbers[:ndim], np.dtype(dtype), blocks[block_index], offset, numbers[ndim:])
        one.flags.writeable = is_writable
        by_identity[identity, size] = one
        arrays.append(one)
    del blocks
    loaders: dict[str, Callable[..., object]] = {
        "array": arrays.__getitem__,
        "view": lambda index: arrays[index].data,
        "named": lambda name: outsiders[name] if name in outsiders else _constant(name),
    }
    value = _Unpickler(io.BytesIO(octets[at : at + pickled]), loaders).load()
    return LoadedState(value, by_identity)
