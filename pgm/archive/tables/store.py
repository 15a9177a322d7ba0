"""What a table of any kind does: give its state and files, and exchange files in one commit."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import attrs

from pgm.archive.errors import TableError
from pgm.archive.tables.files import TableFile
from pgm.archive.tables.state import TableState

LOCK = "_pgm.lock"  # readers of folders pass over names that begin with _


@attrs.frozen
class TableContent:
    """One version of a table."""

    state: TableState
    files: tuple[TableFile, ...]


class TableStore(Protocol):
    """Table that one process at a time writes."""

    folder: Path  # of new files

    def content(self) -> TableContent:
        """Return the present version."""

    def commit(self, state: TableState, added: Sequence[TableFile], removed: Sequence[TableFile] = ()) -> None:
        """Exchange files and progress at once. Raises `TableError`."""

    def sweep(self, keep_s: float) -> int:
        """Remove files that no version has, older than `keep_s`; return their number."""

    def close(self) -> None:
        """Release the table for other writers."""


class TableLock:
    """Lock of the only writer of a table. The kernel releases the lock when the process ends."""

    def __init__(self, folder: Path) -> None:
        """Take the lock; create the folder. Raises `TableError`."""
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._fd = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise TableError(f"{folder}: {error.strerror}", remedy="name a folder that can be written") from None
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._fd)
            raise TableError(
                f"another process writes the table {folder}", remedy="let it end first, or name another folder"
            ) from None

    def close(self) -> None:
        """Release the lock."""
        os.close(self._fd)


def check_copies(folder: Path, held: str, wanted: str) -> None:
    """Raise `TableError` unless a table counts the recordings of a session as its writer does."""
    if held != wanted:
        raise TableError(
            f"{folder} has the rows of copies = {held}, not of copies = {wanted}",
            remedy=f"write it with copies = {held}, or name another folder",
        )
