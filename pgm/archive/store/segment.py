"""Segments: files of Arrow record batches in Arrow's stream format.

Any Arrow library reads a segment. Each batch belongs to one session. The metadata of its message holds a line of JSON:
session, sqns, length, and the checksum of all octets. A segment is therefore its own index, and a scan reads only a few
hundred octets of each batch.

A finished segment ends with Arrow's end-of-stream mark. Segment numbers ascend.
"""

from __future__ import annotations

import functools
import json
import os
import struct
from pathlib import Path
from typing import Any, Self

import attrs
import numpy as np
import pyarrow as pa

from pgm.archive.errors import ArchiveError, CorruptSegment, DirectoryGone, SchemaTooNew
from pgm.archive.session import MESSAGES, RecordedSession
from pgm.archive.store.schema import EARLIER_SCHEMA, STORED_SCHEMA, VERSION, check_version, completed
from pgm.crc32 import crc32

SUFFIX = ".arrows"
_KEY = "pgm"
_CONTINUATION = 0xFFFF_FFFF
_PREFIX = struct.Struct("<II")  # of every message: the continuation mark, and the length of its metadata
END_OF_STREAM = _PREFIX.pack(_CONTINUATION, 0)
_MOST_METADATA = 1 << 20
_FIRST_READ = 4096  # of a message: usually enough for its metadata
_LENGTH_MARK = b'"octets":"'
_LENGTH_DIGITS = 12
_SUM_MARK = b'"crc32":"'
_SUM_DIGITS = 8
_ROOM = 1024  # upper bound of the octets that Arrow adds to the metadata text


_SESSION_FIELDS = tuple(field.name for field in attrs.fields(RecordedSession) if field.name != "kind")


@functools.lru_cache(maxsize=1024)
def _session_of(*values: Any) -> RecordedSession:
    """Return one object for all batches of a session: an index has an entry for each batch."""
    return RecordedSession(*values)


@attrs.frozen
class BatchEntry:
    """One batch of a segment."""

    segment: int
    offset: int
    octets: int
    session: RecordedSession
    first: int
    end: int
    rows: int
    received_us: tuple[int, int]  # earliest and latest row
    closes: bool = False
    subjects: bytes = b""  # see `subject_filter`
    has_losses: bool = True  # earlier versions do not say

    @property
    def after(self) -> int:
        """Octet at which the next batch begins."""
        return self.offset + self.octets


def path_of(directory: Path, number: int) -> Path:
    """Return the file of a segment."""
    return directory / f"{number:012d}{SUFFIX}"


def numbers_in(directory: Path) -> list[int]:
    """Return the segments of an archive, oldest first. Raises `DirectoryGone`."""
    try:
        names = [path.stem for path in directory.iterdir() if path.suffix == SUFFIX]
    except OSError as error:
        raise DirectoryGone(f"{directory}: {error.strerror}", remedy="name the directory of an archive") from None
    return sorted(int(name) for name in names if name.isdigit())


HEAD: bytes = STORED_SCHEMA.serialize().to_pybytes()
_EARLIER_HEAD: bytes = EARLIER_SCHEMA.serialize().to_pybytes()


def encode(batch: pa.RecordBatch, entry: BatchEntry) -> memoryview:
    """Encode a batch as the octets of a segment."""
    description = attrs.asdict(entry.session) | {
        "first": entry.first,
        "end": entry.end,
        "rows": entry.rows,
        "received_us": entry.received_us,
        "closes": entry.closes,
        "subjects": entry.subjects.hex(),
        "losses": entry.has_losses,
    }
    text = json.dumps(description | {"octets": "0" * _LENGTH_DIGITS, "crc32": "0" * _SUM_DIGITS}, separators=(",", ":"))
    buffer = pa.allocate_buffer(len(HEAD) + _ROOM + len(text) + pa.ipc.get_record_batch_size(batch))
    sink = pa.FixedSizeBufferWriter(buffer)
    sink.set_memcopy_threads(1)
    pa.ipc.new_stream(sink, STORED_SCHEMA).write_batch(batch, custom_metadata={_KEY: text})
    octets = np.frombuffer(buffer, np.uint8).data[len(HEAD) : sink.tell()]
    head = bytes(octets[: _PREFIX.size + _PREFIX.unpack_from(octets)[1]])
    length_at = head.index(_LENGTH_MARK) + len(_LENGTH_MARK)
    octets[length_at : length_at + _LENGTH_DIGITS] = b"%0*d" % (_LENGTH_DIGITS, len(octets))
    sum_at = head.index(_SUM_MARK, length_at) + len(_SUM_MARK)
    octets[sum_at : sum_at + _SUM_DIGITS] = b"%08x" % crc32(octets)
    return octets


class SegmentFile:
    """Reader of one segment; close it, or use it in a `with` statement."""

    def __init__(self, directory: Path, number: int) -> None:
        """Open the file. Raises FileNotFoundError if the file is gone, `ArchiveError` if it cannot be read."""
        self.path = path_of(directory, number)
        self.number = number
        try:
            self._fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise ArchiveError(f"{self.path}: {error.strerror}", remedy="check its permissions") from None
        self.head_octets = 0
        self._schema = STORED_SCHEMA

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)

    @property
    def octets(self) -> int:
        """Present length of the file."""
        return os.fstat(self._fd).st_size

    def corrupt(self, offset: int, problem: str) -> CorruptSegment:
        """Return the error for damage at an octet."""
        return CorruptSegment(
            f"{self.path} is damaged at octet {offset}: {problem}",
            remedy="restore the file from a copy, or move it away: its rows are then missing, and reads of them fail",
        )

    def _read(self, offset: int, octets: int) -> bytes:
        try:
            return os.pread(self._fd, octets, offset)
        except OSError as error:
            raise self.corrupt(offset, error.strerror or "it cannot be read") from error

    def read_head(self) -> int:
        """Check the schema; return where the batches begin, or 0. Raises `SchemaTooNew`, `CorruptSegment`."""
        if not self.head_octets:
            start = self._read(0, len(HEAD))
            if start == HEAD:
                self.head_octets = len(HEAD)
            elif HEAD.startswith(start) or _EARLIER_HEAD.startswith(start):
                return 0
            else:
                self.head_octets = self._read_foreign_head()
        return self.head_octets

    def _read_foreign_head(self) -> int:
        """Return the length of another Arrow version's head. Raises `SchemaTooNew`, `CorruptSegment`."""
        mark, length = _PREFIX.unpack(self._read(0, _PREFIX.size).ljust(_PREFIX.size, b"\0"))
        if mark != _CONTINUATION or not 0 < length < _MOST_METADATA:
            raise self.corrupt(0, "it does not begin like a stream of Arrow record batches")
        try:
            schema = pa.ipc.read_schema(pa.py_buffer(self._read(0, _PREFIX.size + length)))
        except (pa.ArrowException, OSError, ValueError) as error:
            raise self.corrupt(0, f"its schema cannot be read: {error}") from None
        check_version(schema, str(self.path))
        if not (schema.equals(STORED_SCHEMA) or schema.equals(EARLIER_SCHEMA)):
            raise SchemaTooNew(
                f"{self.path} has other columns than the versions 1 to {VERSION}",
                remedy="read it with the program that wrote it",
            )
        self._schema = schema
        return _PREFIX.size + int(length)

    def entry_at(self, offset: int, limit: int) -> BatchEntry | None:
        """Return the batch at an octet; None at the end. Raises `CorruptSegment`, also for an end after `limit`."""
        start = self._read(offset, min(_FIRST_READ, limit - offset))
        if len(start) < _PREFIX.size:
            raise self.corrupt(offset, "it ends in the middle of a batch")
        mark, length = _PREFIX.unpack_from(start)
        if mark != _CONTINUATION or length > _MOST_METADATA:
            raise self.corrupt(offset, "no batch begins here")
        if not length:
            return None
        if _PREFIX.size + length > len(start):
            start = self._read(offset, min(_PREFIX.size + length, limit - offset))
        return self._entry_of(start[: _PREFIX.size + length], offset, limit)

    def _entry_of(self, start: bytes, offset: int, limit: int) -> BatchEntry:
        try:
            at = start.index(b'{"tsi":')
            description = json.JSONDecoder().raw_decode(start[at:].decode("utf-8", "replace"))[0]
            octets = int(description["octets"])
            fields = (description[name] for name in _SESSION_FIELDS)
            session = _session_of(*fields, description.get("kind", MESSAGES))
            received = (int(description["received_us"][0]), int(description["received_us"][1]))
            entry = BatchEntry(
                self.number,
                offset,
                octets,
                session,
                description["first"],
                description["end"],
                description["rows"],
                received,
                description["closes"],
                bytes.fromhex(description.get("subjects", "")),
                bool(description.get("losses", True)),
            )
        except (ValueError, KeyError, TypeError, IndexError):
            raise self.corrupt(offset, "the description of a batch cannot be read") from None
        if octets < len(start) or offset + octets > limit:
            raise self.corrupt(offset, f"a batch of {octets} octets begins and {limit - offset} are there")
        return entry

    def octets_of(self, offset: int, length: int) -> memoryview:
        """Return the octets of a batch with a verified checksum. Raises `CorruptSegment`."""
        # Arrow's memory is reused by the next batch; Python's goes back to the kernel.
        view = memoryview(pa.allocate_buffer(length))
        try:
            count = os.preadv(self._fd, [view], offset)
        except OSError as error:
            raise self.corrupt(offset, error.strerror or "it cannot be read") from error
        at = bytes(view[:_FIRST_READ]).find(_SUM_MARK) + len(_SUM_MARK)
        checksum = crc32(view[at + _SUM_DIGITS :], crc32(b"0" * _SUM_DIGITS, crc32(view[:at])))
        if count < length or bytes(view[at : at + _SUM_DIGITS]) != b"%08x" % checksum:
            raise self.corrupt(offset, "the checksum of a batch is wrong")
        return view

    def batch_of(self, entry: BatchEntry) -> pa.RecordBatch:
        """Return a batch as stored. Raises `CorruptSegment`."""
        return self._batch_in(self.octets_of(entry.offset, entry.octets), entry.offset)

    def batch_at(self, offset: int, octets: int) -> tuple[BatchEntry, pa.RecordBatch]:
        """Return a batch as stored, and its description. Raises `CorruptSegment`, also for another length."""
        batch_octets = self.octets_of(offset, octets)
        entry = self._entry_of(bytes(batch_octets[:_FIRST_READ]), offset, offset + octets)
        return entry, self._batch_in(batch_octets, offset)

    def _batch_in(self, octets: memoryview, offset: int) -> pa.RecordBatch:
        self.read_head()
        try:
            return completed(pa.ipc.read_record_batch(pa.ipc.read_message(pa.py_buffer(octets)), self._schema))
        except (pa.ArrowException, OSError, ValueError) as error:
            raise self.corrupt(offset, f"a batch cannot be read: {error}") from None
