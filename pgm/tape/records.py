"""Records of a tape: their octets, written into a buffer and read back.

Each record has a head: its length, a CRC-32 of the head, the hash of the effects before it, its kind, a flag, and the
time by the core's clock. A process that is killed may leave a part of its last record, which is then left out. The CRC-32
covers the head, and all of the body but datagrams: what they cause is hashed.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Iterator
from typing import Any

import attrs
import cbor2
import numpy as np

from pgm.crc32 import crc32
from pgm.errors import TapeError
from pgm.wire.train import Octets


class TapeRecordKind(enum.IntEnum):
    """Kind of a record of a tape."""

    RECEIVE = 1  # a read: a train of datagrams
    DEADLINE = 2  # the core's timer
    CALL = 3  # another call of the core, by its name
    NESTED = 4  # a call of the core during a call, by an object outside of it
    RESULT = 5  # the answer of an object outside of the core
    PEER = 6  # the address that a number stands for
    CHECK = 7  # the digest of all effects since the segment's start
    OUTSIDE = 8  # a value of an object outside of the core, which the core reads
    END = 9  # the node's last words


HEAD = struct.Struct("<IIIBBHq")  # length, CRC-32, hash, kind, flag, number of a peer, time
_FRONT, _REST = struct.Struct("<II"), struct.Struct("<IBBHq")  # the two parts of a head
Tag = tuple[int, int]  # flag and number of a peer
NO_TAG: Tag = (0, 0)
# Identity and octets of the chunk, place and length of the train, stride, end and room, and the octets that name a part.
TRAIN = struct.Struct("<QQQIIqqH")
ALIGNMENT = 8
MOST_PEERS = 0xFFFF

_ARRAY_TAG, _ROWS_TAG = 40_001, 40_002


@attrs.frozen
class TapeRecord:
    """One record: its place on the tape, its head and its body."""

    at: int
    kind: TapeRecordKind
    flag: int
    peer: int
    now_ns: int
    fold: int
    body: memoryview


@attrs.define(eq=False)
class TrainRecord:
    """A train of a tape, and its place in the memory of the node."""

    identity: int
    chunk_octets: int
    offset: int
    length: int
    stride: int
    end: int
    room: int
    part: bytes  # of the items that the core got, by number, if others got the rest; empty: all
    octets: memoryview


@attrs.frozen
class GivenRows:
    """Payloads of equal size that a source's application writes in place."""

    array: Octets

    @property
    def count(self) -> int:
        """Number of payloads."""
        return len(self.array)

    @property
    def octets(self) -> int:
        """Octets of each payload."""
        return int(self.array.shape[1])

    def write(self, rows: Octets, first: int) -> None:
        """Write payloads from `first` on into the rows."""
        rows[...] = self.array[first : first + len(rows)]


def padded(octets: int) -> int:
    """Return the octets of a record with its padding."""
    return -(-octets // ALIGNMENT) * ALIGNMENT


def build(kind: int, tag: Tag, now_ns: int, fold: int, body: bytes, data_octets: int = 0) -> bytes:
    """Return the head and body of a record. Data of so many octets, and padding, follow it."""
    rest = _REST.pack(fold, kind, *tag, now_ns) + body
    length = _FRONT.size + len(rest) + data_octets
    return _FRONT.pack(length, crc32(rest, length)) + rest


def padding(octets: int) -> bytes:
    """Return the octets behind a record of a length."""
    return bytes(-octets % ALIGNMENT)


def checked_octets(kind: int, octets: int) -> int:
    """Return how many octets of a body its head's CRC-32 covers: not the datagrams, whose effects are hashed."""
    return TRAIN.size if kind == TapeRecordKind.RECEIVE else octets


def read_untrusted(view: memoryview, at: int = 0) -> Iterator[TapeRecord]:
    """Yield the records of a segment, up to the first that is not whole."""
    size = len(view)
    while at + HEAD.size <= size:
        length, crc, fold, kind, flag, peer, now_ns = HEAD.unpack_from(view, at)
        if length < HEAD.size or at + length > size or kind not in _KINDS:
            return
        checked = checked_octets(kind, length - HEAD.size)
        if checked > length - HEAD.size:
            return
        if crc32(view[at + _FRONT.size : at + HEAD.size + checked], length) != crc:
            return
        yield TapeRecord(at, TapeRecordKind(kind), flag, peer, now_ns, fold, view[at + HEAD.size : at + length])
        at += padded(length)


_KINDS = frozenset(int(kind) for kind in TapeRecordKind)


def train_untrusted(body: memoryview) -> TrainRecord:
    """Return the train of a record. Raises `TapeError` if its numbers contradict each other."""
    identity, chunk_octets, offset, length, stride, end, room, part = TRAIN.unpack_from(body)
    octets = body[TRAIN.size + part :]
    is_inside = offset + length <= chunk_octets and 0 <= end <= chunk_octets and 0 <= room <= chunk_octets - end
    if not is_inside or len(octets) != length or not stride:
        raise TapeError("a read on the tape is damaged", remedy="replay until there: --until")
    return TrainRecord(
        identity, chunk_octets, offset, length, stride, end, room, bytes(body[TRAIN.size : TRAIN.size + part]), octets
    )


def encode(value: Any) -> bytes:
    """Return the octets of the arguments of a call, or of a result."""
    return cbor2.dumps(_without_views(value), default=_encode_other)


def _without_views(value: Any) -> Any:
    """Return a value with octets in place of memoryviews, which would become lists of numbers."""
    kind = type(value)
    if kind is memoryview:
        return value.tobytes()
    if kind in (list, tuple):
        return [item if type(item) is bytes else _without_views(item) for item in value]
    if kind is dict:
        return {key: _without_views(item) for key, item in value.items()}
    return value


def _encode_other(encoder: cbor2.CBOREncoder, value: Any) -> None:
    if isinstance(value, np.ndarray):
        octets = np.ascontiguousarray(value)
        encoder.encode(cbor2.CBORTag(_ARRAY_TAG, [octets.dtype.str, list(octets.shape), octets.tobytes()]))
    elif isinstance(value, np.integer):
        encoder.encode(int(value))
    elif isinstance(value, enum.Enum):
        encoder.encode(value.value)
    elif isinstance(value, (bytes, bytearray, memoryview)):
        encoder.encode(memoryview(value).tobytes())
    elif all(hasattr(value, name) for name in ("count", "octets", "write")):
        rows = np.empty((value.count, value.octets), np.uint8)
        value.write(rows, 0)
        encoder.encode(cbor2.CBORTag(_ROWS_TAG, [list(rows.shape), rows.tobytes()]))
    elif hasattr(value, "__iter__"):
        encoder.encode(list(value))
    else:
        raise TapeError(f"a call with {type(value).__qualname__} cannot be kept on a tape")


def decode_untrusted(octets: bytes | memoryview) -> Any:
    """Return the value that `encode` took. Raises `TapeError`."""
    try:
        return _restored(cbor2.loads(bytes(octets)))
    except (cbor2.CBORDecodeError, ValueError, TypeError, OverflowError) as error:
        raise TapeError(f"a call on the tape is damaged: {error}", remedy="replay until there: --until") from None


def _restored(value: Any) -> Any:
    """Return a value with arrays in place of their tags. Hooks of the decoder differ between its versions."""
    if isinstance(value, (list, tuple)):
        return [_restored(item) for item in value]
    if isinstance(value, dict):
        return {key: _restored(item) for key, item in value.items()}
    if not isinstance(value, cbor2.CBORTag):
        return value
    if value.tag == _ARRAY_TAG:
        dtype, shape, octets = value.value
        return np.frombuffer(octets, np.dtype(dtype)).reshape(shape)
    if value.tag == _ROWS_TAG:
        shape, octets = value.value
        return GivenRows(np.frombuffer(octets, np.uint8).reshape(shape))
    raise ValueError(f"unknown tag {value.tag}")
