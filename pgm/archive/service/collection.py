"""Archives served together: the subdirectories of a directory. Each subdirectory has a recorder of its own."""

from __future__ import annotations

import threading
from pathlib import Path

from pgm.archive.errors import ArchiveError, BadRequest, CorruptSegment, DirectoryGone, UnknownSession
from pgm.archive.requests import RangeRequest, SessionExtent
from pgm.archive.store.committed import NAME
from pgm.archive.store.index import SessionEntries
from pgm.archive.store.reader import ArchiveReader, RangeRead
from pgm.archive.store.segment import SUFFIX


def _is_archive(directory: Path) -> bool:
    return (directory / NAME).exists() or any(path.suffix == SUFFIX for path in directory.iterdir())


def _folders(directory: Path) -> list[Path]:
    return [path for path in directory.iterdir() if path.is_dir()]


class Archives:
    """One archive, or all archives in a directory. `refresh` finds archives that appear later."""

    def __init__(self, directory: Path) -> None:
        """Read the indexes of the archives. Raises `ArchiveError`, `SchemaTooNew`."""
        self.directory = directory
        self._lock = threading.Lock()
        self._readers: dict[Path, ArchiveReader] = {}
        if not directory.is_dir():
            raise ArchiveError(
                f"{directory} is no directory", remedy="give the directory of one archive, or one that holds several"
            )
        self._is_single = False
        self.refresh()

    @property
    def readers(self) -> list[ArchiveReader]:
        """Readers of the archives, by name."""
        with self._lock:
            return [self._readers[path] for path in sorted(self._readers)]

    @property
    def damage(self) -> list[CorruptSegment]:
        """Damaged segments of all archives."""
        return [error for reader in self.readers for error in reader.damage]

    def refresh(self) -> bool:
        """Read the changes since the last call; return whether there were any. Raises `ArchiveError`."""
        with self._lock:
            try:
                # A service may start before the recorder has written its first file.
                self._is_single = self._is_single or (not self._readers and _is_archive(self.directory))
                directories = [self.directory] if self._is_single else _folders(self.directory)
                new = [path for path in directories if path not in self._readers and _is_archive(path)]
            except OSError as error:
                raise DirectoryGone(
                    f"the directory {self.directory} cannot be read: {error.strerror}",
                    remedy="mount or restore it, or serve another one",
                ) from None
            for path in new:
                self._readers[path] = ArchiveReader(path)
            readers = list(self._readers.values())
        return sum(reader.refresh() for reader in readers) + len(new) > 0

    def holdings(self) -> list[SessionExtent]:
        """Return the extent of every session at every node."""
        extents = [holding for reader in self.readers for holding in reader.holdings()]
        return sorted(extents, key=lambda extent: (extent.tsi, extent.epoch_us or 0, extent.node))

    def sessions(self, tsi: str | None = None) -> list[tuple[ArchiveReader, SessionEntries]]:
        """Return all sessions, or those of a TSI, with their readers."""
        return [(reader, session) for reader in self.readers for session in reader.sessions(tsi)]

    def read(self, request: RangeRequest) -> RangeRead:
        """Prepare to read a range. Raises `RangeDropped`, `UnknownSession`, `BadRequest`."""
        readers = self.readers
        if len(readers) == 1 and request.node is None:
            return readers[0].read(request)
        readers_by_node = {
            session.session.node: reader
            for reader, session in self.sessions(request.tsi)
            if request.node in (None, session.session.node)
        }
        if len(readers_by_node) > 1:
            raise BadRequest(
                f"several nodes have recorded session {request.tsi}",
                remedy=f"name a node: {', '.join(sorted(readers_by_node))}",
            )
        for reader in readers_by_node.values():
            return reader.read(request)
        for error in self.damage:
            raise error
        where = "" if request.node is None else f" of node {request.node!r}"
        raise UnknownSession(
            f"nothing is held of session {request.tsi}{where}",
            remedy="list the sessions with pgm archive ls, or the action holdings",
        )
