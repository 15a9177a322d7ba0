"""Several archives served as one: the subdirectories of a directory, each written by a recorder of its own."""

from __future__ import annotations

import threading
from pathlib import Path

from pgm.archive.errors import ArchiveError, BadRequest, CorruptSegment, UnknownSession
from pgm.archive.requests import RangeRequest, SessionExtent
from pgm.archive.store.committed import NAME
from pgm.archive.store.index import SessionEntries
from pgm.archive.store.reader import ArchiveReader, RangeRead
from pgm.archive.store.segment import SUFFIX


def _is_archive(directory: Path) -> bool:
    return (directory / NAME).exists() or any(path.suffix == SUFFIX for path in directory.iterdir())


class Archives:
    """One archive, or all that lie in a directory. What appears there later is found by `refresh`."""

    def __init__(self, directory: Path) -> None:
        """Look through them. Raises `ArchiveError`, `SchemaTooNew`."""
        self.directory = directory
        self._lock = threading.Lock()
        self._readers: dict[Path, ArchiveReader] = {}
        if not directory.is_dir():
            raise ArchiveError(f"{directory} is no directory", remedy="name the directory of an archive, or of several")
        self._is_one = False
        self.refresh()

    @property
    def readers(self) -> list[ArchiveReader]:
        """The archives, by name."""
        with self._lock:
            return [self._readers[path] for path in sorted(self._readers)]

    @property
    def damage(self) -> list[CorruptSegment]:
        """What could not be read of any of them."""
        return [error for reader in self.readers for error in reader.damage]

    def refresh(self) -> bool:
        """Take in what was written and dropped since; returns whether anything was. Raises `ArchiveError`."""
        with self._lock:
            # A service may start before the recorder has written anything.
            self._is_one = self._is_one or (not self._readers and _is_archive(self.directory))
            found = [self.directory] if self._is_one else [path for path in self.directory.iterdir() if path.is_dir()]
            new = [path for path in found if path not in self._readers and _is_archive(path)]
            for path in new:
                self._readers[path] = ArchiveReader(path)
            known = list(self._readers.values())
        return sum(reader.refresh() for reader in known) + len(new) > 0

    def holdings(self) -> list[SessionExtent]:
        """What is held of every session at every node."""
        found = [holding for reader in self.readers for holding in reader.holdings()]
        return sorted(found, key=lambda one: (one.tsi, one.epoch_us or 0, one.node))

    def sessions(self, tsi: str | None = None) -> list[tuple[ArchiveReader, SessionEntries]]:
        """All sessions, or those of a TSI, and where they are."""
        return [(reader, session) for reader in self.readers for session in reader.sessions(tsi)]

    def read(self, request: RangeRequest) -> RangeRead:
        """Prepare to read a range. Raises `RangeDropped`, `UnknownSession`, `BadRequest`."""
        readers = self.readers
        if len(readers) == 1 and request.node is None:
            return readers[0].read(request)
        found = {
            session.session.node: reader
            for reader, session in self.sessions(request.tsi)
            if request.node in (None, session.session.node)
        }
        if len(found) > 1:
            raise BadRequest(
                f"several nodes have recorded session {request.tsi}", remedy=f"name a node: {', '.join(sorted(found))}"
            )
        for reader in found.values():
            return reader.read(request)
        for error in self.damage:
            raise error
        where = "" if request.node is None else f" of node {request.node!r}"
        raise UnknownSession(
            f"nothing is held of session {request.tsi}{where}",
            remedy="see what is held: pgm archive ls, or the action holdings",
        )
