"""File with the positions of one durable receiver.

The file has two slots, which are written by turns. A slot counts if its checksum is right, and the newer one counts. A crash
during a write damages one slot only, so the positions of the write before remain. A write costs one fdatasync.
"""

from __future__ import annotations

import fcntl
import json
import os
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import attrs

from pgm.crc32 import crc32
from pgm.errors import ProcessError, UsageError
from pgm.net.durable.position import Position
from pgm.own_files import sync_folder
from pgm.wire.formats import tsi_text

MOST_SESSIONS = 1024  # the sessions whose positions moved last are kept
_SLOT_OCTETS = 256 * 1024  # room for them
_HEAD = struct.Struct("<8sQII")  # magic, number of the write, octets of the body, CRC-32 of number and body
_MAGIC = b"PGMDUR01"
_FILE_MODE = 0o600


@attrs.frozen
class SavedSession:
    """Line of the file about one session. All sqns are the source's own."""

    position: Position
    data_port: int
    lead: int  # the newest sqn that the receiver knew to be sent
    is_closed: bool = False  # the source has announced the end, behind `lead`

    @property
    def is_done(self) -> bool:
        """Return whether the application has taken everything of the session."""
        return self.is_closed and self.position.sqn > self.lead

    def to_json(self) -> list[Any]:
        """Return the line of the session."""
        return [str(self.position), self.data_port, self.lead, self.is_closed]

    @classmethod
    def from_json(cls, line: list[Any]) -> SavedSession:
        """Read a line that `to_json` made."""
        return cls(Position.parse(line[0]), int(line[1]), int(line[2]), bool(line[3]))


def file_of(durable: str | Path) -> Path:
    """Return the file of a durable name: in the user's state folder, or the path itself. Raises `UsageError`."""
    text = os.fspath(durable)
    if os.sep in text:
        return Path(text)
    if not text or text.startswith("."):
        raise UsageError(f"durable={text!r} is no name", remedy="give a name such as desk-7, or the path of a file")
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "pgm" / "durable" / text


class PositionFile:
    """Open and locked file of positions. Only one process at a time has it."""

    def __init__(self, path: Path) -> None:
        """Open or create the file. Raises `ProcessError` if it is in use, damaged, or cannot be opened."""
        self.path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _FILE_MODE)
        except OSError as error:
            raise _failure(path, error) from error
        try:
            self._lock()
            self._writes, self.sessions = self._read()
        except BaseException:
            os.close(self._fd)
            raise

    def _lock(self) -> None:
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ProcessError(
                f"another receiver uses the positions in {self.path}",
                remedy="end that receiver, or give this one another durable name",
            ) from None

    def _read(self) -> tuple[int, tuple[SavedSession, ...]]:
        try:
            slots = [os.pread(self._fd, _SLOT_OCTETS, at * _SLOT_OCTETS) for at in (0, 1)]
        except OSError as error:
            raise _failure(self.path, error) from error
        newest = max(filter(None, map(_read_slot, slots)), default=None, key=lambda slot: slot[0])
        if newest is not None:
            return newest
        # A crash during the first write leaves the second slot empty: no position was ever saved.
        if any(slots[1]):
            raise ProcessError(
                f"{self.path} is damaged, and its positions are lost",
                remedy="restore the file, or delete it to begin anew, as start= says",
            )
        return 0, ()

    def write(self, sessions: Sequence[SavedSession]) -> None:
        """Replace the positions, and return when they are on the disk. Raises `ProcessError`."""
        self._writes += 1
        lines = [session.to_json() for session in sessions[-MOST_SESSIONS:]]
        body = json.dumps(lines, separators=(",", ":")).encode()
        octets = _HEAD.pack(_MAGIC, self._writes, len(body), _checksum(self._writes, body)) + body
        try:
            os.pwrite(self._fd, octets, (self._writes - 1) % 2 * _SLOT_OCTETS)
            os.fdatasync(self._fd)
            if self._writes == 1:
                sync_folder(self.path.parent)
        except OSError as error:
            raise _failure(self.path, error) from error
        self.sessions = tuple(sessions)

    def close(self) -> None:
        """Close the file, and let others have it."""
        os.close(self._fd)


def _checksum(number: int, body: bytes) -> int:
    return crc32(body, crc32(number.to_bytes(8, "little")))


def _read_slot(octets: bytes) -> tuple[int, tuple[SavedSession, ...]] | None:
    """Return the number of the write and its positions; None for a slot without a whole write."""
    if len(octets) < _HEAD.size:
        return None
    magic, number, length, checksum = _HEAD.unpack_from(octets)
    body = octets[_HEAD.size : _HEAD.size + length]
    if magic != _MAGIC or len(body) != length or checksum != _checksum(number, body):
        return None
    return number, tuple(map(SavedSession.from_json, json.loads(body)))


def _failure(path: Path, error: OSError) -> ProcessError:
    return ProcessError(
        f"the positions in {path} cannot be kept: {error.strerror or error}", remedy="check the folder and its disk"
    )


def describe(session: SavedSession) -> str:
    """Return a text for notices."""
    return f"session {tsi_text(session.position.tsi)}, from sqn {session.position.sqn} on"
