"""File with the synced extent of an archive, for readers of a growing archive.

The writer updates the file after every sync. The file itself is not synced. After a crash of the machine the recorded
extent may be behind the true one, never ahead.
"""

from __future__ import annotations

import os
import struct
import zlib
from pathlib import Path

import attrs

NAME = "committed"
_FORMAT = struct.Struct("<8sQQ")
_SUM = struct.Struct("<I")
_MAGIC = b"pgm-arc1"


@attrs.frozen(order=True)
class CommitPoint:
    """Synced extent: all segments before `segment`, and its first `offset` octets."""

    segment: int = 0
    offset: int = 0


class CommitFile:
    """Writer's side of the file."""

    def __init__(self, directory: Path) -> None:
        self._fd = os.open(directory / NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)

    def write(self, value: CommitPoint) -> None:
        """Write the extent. Overwriting takes no new disk space, so a full disk only matters for the first call."""
        octets = _FORMAT.pack(_MAGIC, value.segment, value.offset)
        os.pwrite(self._fd, octets + _SUM.pack(zlib.crc32(octets)), 0)

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)


def read_committed(directory: Path) -> CommitPoint | None:
    """Return the recorded extent; None if the file is absent or damaged."""
    for _ in range(2):  # a reader may catch the writer in the middle
        try:
            octets = (directory / NAME).read_bytes()
        except OSError:
            return None
        if len(octets) == _FORMAT.size + _SUM.size:
            magic, segment, offset = _FORMAT.unpack_from(octets)
            if magic == _MAGIC and _SUM.unpack_from(octets, _FORMAT.size)[0] == zlib.crc32(octets[: _FORMAT.size]):
                return CommitPoint(segment, offset)
    return None
