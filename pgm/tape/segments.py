"""Segments of a tape: files of a folder, the newest of which is written, in a ring of a number of octets.

A segment has two files. `NUMBER.tape` has a head that describes the node, and records. `NUMBER.state` has the state of
the core before the first of them. Records of consecutive segments follow each other, so a replay begins at any state
and goes on to the end. The file of records is mapped into memory: what was written survives the end of the process.
"""

from __future__ import annotations

import mmap
import os
import struct
from collections import deque
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs
import cbor2

from pgm.errors import TapeError
from pgm.tape import records
from pgm.units import KIB

MAGIC = b"PGMTAPE1"
_HEAD = struct.Struct("<8sI")  # magic, octets of the description
_SEGMENTS = 8  # of a full ring, if states are small
_RECORD_SHARE = 8  # and a record beyond the size of a segment one in so many
LEAST_OCTETS = 512 * KIB
_TAPE, _STATE, _UNFINISHED = ".tape", ".state", ".part"


@attrs.frozen
class TapeSegment:
    """One segment on disk."""

    number: int
    folder: Path

    @property
    def path(self) -> Path:
        """Path of the records."""
        return self.folder / f"{self.number:08d}{_TAPE}"

    @property
    def state_path(self) -> Path:
        """Path of the state."""
        return self.folder / f"{self.number:08d}{_STATE}"

    @property
    def has_state(self) -> bool:
        """Whether a replay may begin here."""
        return self.state_path.exists()

    @property
    def octets(self) -> int:
        """Octets on disk."""
        return sum(path.stat().st_size for path in (self.path, self.state_path) if path.exists())


def folder_name(node: str) -> str:
    """Return the name of a node as the name of a folder."""
    return node.replace("/", "_")


def segments_of(folder: Path) -> list[TapeSegment]:
    """Return the segments of a folder, the oldest first."""
    numbers = sorted(int(path.stem) for path in folder.glob(f"*{_TAPE}") if path.stem.isdecimal())
    return [TapeSegment(number, folder) for number in numbers]


class SegmentRing:
    """Ring of segments of at most `most_octets`. The last one is open, and has room for records."""

    def __init__(self, folder: Path, most_octets: int) -> None:
        """Make the folder. Raises `TapeError`."""
        self.folder = folder
        self._most_octets = max(most_octets, LEAST_OCTETS)
        self.segment_octets = self._most_octets // _SEGMENTS // mmap.PAGESIZE * mmap.PAGESIZE
        self._segments: deque[tuple[TapeSegment, int]] = deque()  # with the time of its begin
        self._mapped: mmap.mmap | None = None
        self.view = memoryview(b"")
        self.at = 0
        self._number = 0
        try:
            folder.mkdir(parents=True)
            folder.chmod(0o700)
        except OSError as error:
            raise TapeError(
                f"no tape can be written into {folder}: {error.strerror}", remedy="name another folder: --tape DIR"
            ) from None

    @property
    def most_state_octets(self) -> int:
        """Octets of the largest state that leaves enough room for records."""
        return self._most_octets // 2 - self.segment_octets  # the state before it stays until it is written

    @property
    def most_record_octets(self) -> int:
        """Octets of the largest record."""
        return self._most_octets // _RECORD_SHARE

    @property
    def begun_ns(self) -> int:
        """When the open segment began."""
        return self._segments[-1][1]

    def open(
        self, description: Mapping[str, Any], state: list[bytes | memoryview], now_ns: int, least_octets: int = 0
    ) -> None:
        """Begin the next segment with a state. It has room for `least_octets`. Raises OSError if the disk is full."""
        self.close_segment()
        head = cbor2.dumps(dict(description) | {"number": self._number + 1})
        octets = max(self.segment_octets, records.padded(_HEAD.size + len(head)) + least_octets)
        self._make_room(octets + sum(map(len, state)))
        self._number += 1
        segment = TapeSegment(self._number, self.folder)
        with segment.path.open("xb+") as file:
            # Blocks of the disk are reserved: a write into mapped memory of a full disk would end the process.
            os.posix_fallocate(file.fileno(), 0, octets)
            self._mapped = mmap.mmap(file.fileno(), octets)
        self._segments.append((segment, now_ns))
        self.view = memoryview(self._mapped)
        self.view[: _HEAD.size] = _HEAD.pack(MAGIC, len(head))
        self.view[_HEAD.size : _HEAD.size + len(head)] = head
        self.at = records.padded(_HEAD.size + len(head))
        unfinished = segment.state_path.with_suffix(_UNFINISHED)
        with unfinished.open("xb") as file:
            file.writelines(state)
        unfinished.rename(segment.state_path)

    def _make_room(self, octets: int) -> None:
        used = sum(segment.octets for segment, _ in self._segments)
        while len(self._segments) > 1 and used + octets > self._most_octets:
            oldest, _ = self._segments.popleft()
            used -= oldest.octets
            _remove(oldest)

    def drop_older(self, begun_ns: int) -> None:
        """Drop segments that ended before a time: the next one had begun by then."""
        while len(self._segments) > 1 and self._segments[1][1] < begun_ns:
            _remove(self._segments.popleft()[0])

    def close_segment(self) -> None:
        """End the open segment, whose file shrinks to its records."""
        if self._mapped is None:
            return
        self.view.release()
        self._mapped.close()
        self._mapped, self.view = None, memoryview(b"")
        os.truncate(self._segments[-1][0].path, self.at)
        self.at = 0


def _remove(segment: TapeSegment) -> None:
    segment.state_path.unlink(missing_ok=True)
    segment.path.unlink(missing_ok=True)


@attrs.frozen
class ReadSegment:
    """TapeSegment that was read: the description of its node, its octets, and where its records begin."""

    segment: TapeSegment
    description: Mapping[str, Any]
    view: memoryview
    at: int

    def records(self) -> Iterator[records.TapeRecord]:
        """Yield the records."""
        return records.read_untrusted(self.view, self.at)


def read_segment(segment: TapeSegment) -> ReadSegment:
    """Return a segment of a tape. Raises `TapeError`."""
    try:
        octets = segment.path.read_bytes()
        magic, size = _HEAD.unpack_from(octets)
        description = cbor2.loads(octets[_HEAD.size : _HEAD.size + size])
    except (OSError, struct.error, cbor2.CBORDecodeError) as error:
        raise TapeError(f"{segment.path} cannot be read: {error}", remedy="name a folder of --tape") from None
    if magic != MAGIC or not isinstance(description, dict):
        raise TapeError(f"{segment.path} is no tape of this version", remedy="name a folder of --tape")
    return ReadSegment(segment, description, memoryview(octets), records.padded(_HEAD.size + size))
