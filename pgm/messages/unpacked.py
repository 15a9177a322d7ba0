"""Size of an Arrow IPC message after its buffers are unpacked, from its metadata alone.

pyarrow reports the octets of a message, not those of its unpacked buffers. The metadata is a flatbuffer (Arrow's
Message.fbs): a table holds offsets to its fields by number, in little-endian order. A packed buffer begins with its unpacked
length in 8 octets, or with -1 if it is not packed.
"""

from __future__ import annotations

import struct

_HEADER_TYPE, _HEADER = 1, 2  # of Message
_DICTIONARY, _BATCH = 2, 3  # types of header: DictionaryBatch, RecordBatch
_DATA = 1  # of DictionaryBatch: a RecordBatch
_ROWS, _BUFFERS, _COMPRESSION = 0, 2, 3  # of RecordBatch
_BUFFER = struct.Struct("<qq")  # begin in the body, and octets
_LENGTH = struct.Struct("<q")


def unpacked_size(metadata: memoryview, body: memoryview) -> tuple[int, int]:
    """Return the rows of a message, and the octets of its packed buffers after unpacking.

    A message without a record batch gives (0, 0). Raises `struct.error` or ValueError for metadata that lead outside.
    """
    message = _u32(metadata, 0)
    header = _field(metadata, message, _HEADER)
    kind_at = _field(metadata, message, _HEADER_TYPE)
    kind = metadata[kind_at] if kind_at else 0
    if not header or kind not in (_DICTIONARY, _BATCH):
        return 0, 0
    batch = _followed(metadata, header)
    if kind == _DICTIONARY:
        data = _field(metadata, batch, _DATA)
        if not data:
            return 0, 0
        batch = _followed(metadata, data)
    rows_at = _field(metadata, batch, _ROWS)
    rows = _LENGTH.unpack_from(metadata, rows_at)[0] if rows_at else 0
    buffers = _field(metadata, batch, _BUFFERS)
    if not buffers or not _field(metadata, batch, _COMPRESSION):
        return rows, 0
    vector = _followed(metadata, buffers)
    octets, first = 0, vector + 4
    for number in range(_u32(metadata, vector)):
        begin, length = _BUFFER.unpack_from(metadata, first + number * _BUFFER.size)
        if length >= _LENGTH.size:
            octets += max(0, _LENGTH.unpack_from(body, _inside(body, begin))[0])
    return rows, octets


def _inside(view: memoryview, at: int) -> int:
    if not 0 <= at <= len(view):  # `struct` counts a negative offset from the end
        raise ValueError("metadata that lead outside")
    return at


def _u32(view: memoryview, at: int) -> int:
    return int(struct.unpack_from("<I", view, _inside(view, at))[0])


def _followed(view: memoryview, at: int) -> int:
    return at + _u32(view, at)


def _field(view: memoryview, table: int, number: int) -> int:
    """Return the place of a field of a table, or 0 for an absent field."""
    back = int(struct.unpack_from("<i", view, _inside(view, table))[0])
    vtable = _inside(view, table - back)
    size = struct.unpack_from("<H", view, vtable)[0]
    at = 4 + 2 * number
    offset = struct.unpack_from("<H", view, _inside(view, vtable + at))[0] if at + 2 <= size else 0
    return _inside(view, table + offset) if offset else 0
