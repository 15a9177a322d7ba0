"""Up to where an archive is synced to the disk: a few octets beside the segments, for whoever reads while it grows.

They are written after every sync, and are themselves not synced: after a crash of the machine they may be behind, never ahead.
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
    """Everything in segments before `segment` is synced, and that segment's first `offset` octets."""

    segment: int = 0
    offset: int = 0


class CommitFile:
    """The file that says so, as its writer has it."""

    def __init__(self, directory: Path) -> None:
        self._fd = os.open(directory / NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)

    def write(self, value: CommitPoint) -> None:
        """Tell. It takes no room that is not there already, so a full disk does not matter after the first time."""
        octets = _FORMAT.pack(_MAGIC, value.segment, value.offset)
        os.pwrite(self._fd, octets + _SUM.pack(zlib.crc32(octets)), 0)

    def close(self) -> None:
        """Let the file go."""
        os.close(self._fd)


def read_committed(directory: Path) -> CommitPoint | None:
    """What the file says; None if there is none, or it is damaged."""
    for _ in range(2):  # a reader may meet the writer in the middle
        try:
            octets = (directory / NAME).read_bytes()
        except OSError:
            return None
        if len(octets) == _FORMAT.size + _SUM.size:
            magic, segment, offset = _FORMAT.unpack_from(octets)
            if magic == _MAGIC and _SUM.unpack_from(octets, _FORMAT.size)[0] == zlib.crc32(octets[: _FORMAT.size]):
                return CommitPoint(segment, offset)
    return None
