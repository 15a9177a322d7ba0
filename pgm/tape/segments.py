"""Segments of a tape: files of a folder, the newest of which is written, in a ring of a number of octets.

A segment has two files. `NUMBER.tape` has a head that describes the node, and records. `NUMBER.state` has the state of
the core before the first of them. Records of consecutive segments follow each other, so a replay begins at any state
and goes on to the end.
"""

from __future__ import annotations

import os
import struct
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
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
_MOST_PIECES = 512  # of one call: below IOV_MAX
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
    """Ring of segments of at most `most_octets`, the last of which is written.

    Records go to the kernel with each input, so they survive the end of the process.
    """

    def __init__(self, folder: Path, most_octets: int) -> None:
        """Make the folder. Raises `TapeError`."""
        self.folder = folder
        self._most_octets = max(most_octets, LEAST_OCTETS)
        self._segments: deque[tuple[TapeSegment, int]] = deque()  # with the time of its begin
        self._descriptor = -1
        self._pending: list[bytes | memoryview] = []
        self._number = 0
        self.at = 0  # octets of the open segment
        self.limit = 0  # octets of the open segment at which the next one begins
        try:
            folder.mkdir(parents=True)
            folder.chmod(0o700)
        except OSError as error:
            raise TapeError(
                f"no tape can be written into {folder}: {error.strerror}", remedy="name another folder: --tape DIR"
            ) from None

    @property
    def most_state_octets(self) -> int:
        """Octets of the largest state: the state before it stays until it is written."""
        return self._most_octets // 2 - self._most_octets // _SEGMENTS

    @property
    def most_record_octets(self) -> int:
        """Octets of the largest input."""
        return self._most_octets // _SEGMENTS

    @property
    def begun_ns(self) -> int:
        """When the open segment began."""
        return self._segments[-1][1]

    def open(self, description: Mapping[str, Any], now_ns: int, state_octets: int) -> TapeSegment:
        """Begin the next segment, and make room for its state. Raises OSError, and `TapeError` without room."""
        self.close_segment()
        # A large state is followed by many records, since it takes as long to save as they do.
        longest = min(2 * state_octets, self._most_octets // 2 - state_octets)
        self.limit = max(self._most_octets // _SEGMENTS, longest)
        self._make_room(self.limit + state_octets)
        self._number += 1
        segment = TapeSegment(self._number, self.folder)
        self._descriptor = os.open(segment.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        self._segments.append((segment, now_ns))
        head = cbor2.dumps(dict(description) | {"number": self._number})
        self.at = 0
        self.put(_HEAD.pack(MAGIC, len(head)) + head + records.padding(_HEAD.size + len(head)))
        self.flush()
        return segment

    def _make_room(self, octets: int) -> None:
        """Drop the oldest segments. A segment with a state must stay, from which a replay begins."""
        used = sum(segment.octets for segment, _ in self._segments)
        while self._segments and used + octets > self._most_octets:
            if len(self._segments) == 1 or not any(segment.has_state for segment, _ in islice(self._segments, 1, None)):
                raise TapeError("the state of the node has become too large for tape_bytes", remedy="raise tape_bytes")
            used -= self._drop_oldest()

    def _drop_oldest(self) -> int:
        """Drop the oldest segment. Return its octets."""
        oldest, _ = self._segments.popleft()
        octets = oldest.octets
        oldest.state_path.unlink(missing_ok=True)
        oldest.path.unlink(missing_ok=True)
        return octets

    def drop_older(self, begun_ns: int) -> None:
        """Drop segments that ended before a time: a later one with a state had begun by then."""
        while len(self._segments) > 1 and self._segments[1][1] < begun_ns and self._segments[1][0].has_state:
            self._drop_oldest()

    def put(self, *pieces: bytes | memoryview) -> None:
        """Add octets to the open segment, which leave with the next `flush`."""
        self._pending += pieces
        self.at += sum(map(len, pieces))

    def flush(self) -> None:
        """Give all octets to the kernel. Raises OSError."""
        pending, self._pending = self._pending, []
        while pending:
            written = os.writev(self._descriptor, pending[:_MOST_PIECES])
            pending = _rest_of(pending, written)

    def close_segment(self) -> None:
        """End the open segment."""
        if self._descriptor >= 0:
            descriptor, self._descriptor = self._descriptor, -1
            os.close(descriptor)
        self._pending.clear()


def write_state(segment: TapeSegment, pieces: Sequence[bytes | memoryview]) -> None:
    """Write the state of a segment. It has its name when it is whole. Raises OSError."""
    unfinished = segment.state_path.with_suffix(_UNFINISHED)
    with unfinished.open("xb") as file:
        file.writelines(pieces)
    unfinished.rename(segment.state_path)


def _rest_of(pieces: list[bytes | memoryview], written: int) -> list[bytes | memoryview]:
    """Return what is left of pieces of which so many octets are written."""
    for index, piece in enumerate(pieces):
        if written < len(piece):
            return [memoryview(piece)[written:], *pieces[index + 1 :]]
        written -= len(piece)
    return []


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
