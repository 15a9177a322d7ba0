"""Writer of an archive: appends batches, syncs, begins segments, drops old ones.

Only synced batches count as recorded. When the disk refuses data, everything since the last sync is cut off and handed
back. The caller records it as lost once there is room. No incomplete batch ever stays.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Callable
from pathlib import Path

import attrs
import pyarrow as pa

from pgm.archive.errors import ArchiveError
from pgm.archive.session import RecordedSession
from pgm.archive.store.committed import CommitFile, CommitPoint, read_committed
from pgm.archive.store.index import Index
from pgm.archive.store.recovery import Log, recover
from pgm.archive.store.segment import END_OF_STREAM, HEAD, BatchEntry, encode, path_of
from pgm.archive.store.subject_filter import has_losses, subject_filter
from pgm.own_files import sync_folder
from pgm.parameters import Parameters

_MICROSECOND_NS = 1000
_LOCK_POLL_S = 0.02
_RESERVE, _RESERVE_OCTETS = "reserve", 1 << 18  # room for the rows of losses at the end, if the disk is full then


class WriteFailed(Exception):
    """Error of a disk that refused data written since the last sync. `entries` are not in the archive."""

    def __init__(self, error: OSError, entries: list[BatchEntry]) -> None:
        super().__init__(f"{error.filename or 'write'}: {error.strerror}")
        self.error = error
        self.entries = entries


@attrs.define(eq=False)
class _OpenSegment:
    """Segment that is being written."""

    number: int
    fd: int
    begun_ns: int
    offset: int = 0
    synced: int = 0


class ArchiveWriter:
    """Only writer of a directory, for one thread at a time."""

    def __init__(
        self, directory: Path, parameters: Parameters, log: Log, wall_ns: Callable[[], int] = time.time_ns
    ) -> None:
        """Lock the directory, create it if needed, and recover it. Raises `ArchiveError`."""
        self.directory = directory
        self.index = Index()
        self._parameters = parameters
        self._log = log
        self._wall_ns = wall_ns
        try:
            directory.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise ArchiveError(
                f"{directory}: {error.strerror}", remedy="name a directory that can be written"
            ) from None
        try:
            self._take_lock()
            self._sizes = recover(directory, self.index, log)
            last = read_committed(directory) or CommitPoint()
            self._next_number = max([last.segment, *self._sizes], default=0) + 1
            self._committed = CommitFile(directory)
            # The data that recovery kept is on disk now. The number is that of the next segment.
            self._committed.write(CommitPoint(self._next_number, 0))
        except (ArchiveError, OSError):
            os.close(self._lock)
            raise
        self._keep_reserve()
        self._open: _OpenSegment | None = None
        self._unsynced: list[BatchEntry] = []
        self._unsynced_since_ns = 0
        self.octets = 0  # of batches written and synced
        self.syncs = 0

    def _take_lock(self) -> None:
        """Lock the directory; the former writer may still be writing its last items."""
        end_ns = time.monotonic_ns() + self._parameters.record_lock_ivl
        is_logged = False
        while True:
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except OSError:
                if time.monotonic_ns() >= end_ns:
                    raise ArchiveError(
                        f"another process records into {self.directory}",
                        remedy="give each recorder a directory of its own",
                    ) from None
            if not is_logged:
                self._log("archive-waits", f"another process writes {self.directory}: waiting for it to exit")
                is_logged = True
            time.sleep(_LOCK_POLL_S)

    def _keep_reserve(self) -> None:
        """Take the room of the reserve, unless the disk is full already."""
        path = self.directory / _RESERVE
        try:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                os.posix_fallocate(fd, 0, _RESERVE_OCTETS)
            finally:
                os.close(fd)
        except OSError:
            self.free_reserve()

    def free_reserve(self) -> None:
        """Give the room of the reserve to the last rows."""
        with contextlib.suppress(OSError):
            (self.directory / _RESERVE).unlink()

    # Appending

    def append(
        self,
        session: RecordedSession,
        batch: pa.RecordBatch,
        first: int,
        end: int,
        received_us: tuple[int, int],
        *,
        closes: bool = False,
    ) -> None:
        """Write a batch that covers the sqns `first` to `end - 1`. Raises `WriteFailed`."""
        entry = BatchEntry(
            0, 0, 0, session, first, end, batch.num_rows, received_us, closes, subject_filter(batch), has_losses(batch)
        )
        octets = encode(batch, entry)
        try:
            target = self._segment_for(len(octets))
            self._write(target, octets)
            # Despite its name the hint makes the kernel start writing now, which shortens the next sync.
            os.posix_fadvise(target.fd, target.offset, len(octets), os.POSIX_FADV_DONTNEED)
        except OSError as error:
            raise self._failed(error, entry) from error
        entry = attrs.evolve(entry, segment=target.number, offset=target.offset, octets=len(octets))
        target.offset += len(octets)
        if not self._unsynced:
            self._unsynced_since_ns = self._wall_ns()
        self._unsynced.append(entry)
        if target.offset - target.synced >= self._parameters.record_sync_bytes:
            self.sync()

    def _segment_for(self, octets: int) -> _OpenSegment:
        open_segment = self._open
        if open_segment is not None and open_segment.offset > len(HEAD):
            is_full = open_segment.offset + octets > self._parameters.record_segment_bytes
            is_old = self._wall_ns() - open_segment.begun_ns >= self._parameters.record_segment_ivl
            if is_full or is_old:
                self._seal()
        if self._open is None:
            self._begin_segment()
        assert self._open is not None
        return self._open

    @staticmethod
    def _write(target: _OpenSegment, octets: bytes | memoryview) -> None:
        view, at = memoryview(octets), target.offset
        while view:
            written = os.pwrite(target.fd, view, at)
            view, at = view[written:], at + written

    def _begin_segment(self) -> None:
        path = path_of(self.directory, self._next_number)
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        new_segment = _OpenSegment(self._next_number, fd, self._wall_ns())
        try:
            self._write(new_segment, HEAD)
            os.fsync(fd)
            sync_folder(self.directory)
        except OSError:
            os.close(fd)
            with contextlib.suppress(OSError):
                path.unlink()
            raise
        new_segment.offset = new_segment.synced = len(HEAD)
        self._next_number += 1
        self._open = new_segment
        self._sizes[new_segment.number] = new_segment.offset
        self._committed.write(CommitPoint(new_segment.number, new_segment.offset))

    # Syncing

    @property
    def sync_due_ns(self) -> int | None:
        """Wall-clock time at which the next sync is due, ns; None if all is synced."""
        return self._unsynced_since_ns + self._parameters.record_sync_ivl if self._unsynced else None

    def sync(self) -> None:
        """Sync all batches written. Raises `WriteFailed`."""
        open_segment = self._open
        if open_segment is None or open_segment.synced == open_segment.offset:
            return
        try:
            os.fdatasync(open_segment.fd)
            self._committed.write(CommitPoint(open_segment.number, open_segment.offset))
        except OSError as error:
            raise self._failed(error) from error
        self.syncs += 1
        self.octets += open_segment.offset - open_segment.synced
        open_segment.synced = open_segment.offset
        self._sizes[open_segment.number] = open_segment.offset
        for entry in self._unsynced:
            self.index.add(entry)
        self._unsynced.clear()
        self._retain()

    def _failed(self, error: OSError, entry: BatchEntry | None = None) -> WriteFailed:
        """Cut off and return all unsynced batches."""
        lost = [*self._unsynced, *([entry] if entry is not None else [])]
        self._unsynced.clear()
        open_segment = self._open
        if open_segment is not None:
            open_segment.offset = open_segment.synced
            try:
                os.ftruncate(open_segment.fd, open_segment.synced)
            # then the segment takes no more data: readers stop at the synced extent, recovery cuts the rest
            except OSError:
                os.close(open_segment.fd)
                self._open = None
        return WriteFailed(error, lost)

    def _seal(self) -> None:
        """End a segment. Raises `WriteFailed`."""
        self.sync()
        open_segment, self._open = self._open, None
        if open_segment is None:
            return
        try:
            self._write(open_segment, END_OF_STREAM)
            os.fdatasync(open_segment.fd)
        except OSError as error:
            self._log(
                "archive-full",
                f"{path_of(self.directory, open_segment.number)} stays without its end mark: {error.strerror}",
            )
        finally:
            os.close(open_segment.fd)

    # Retention

    def _retain(self) -> None:
        """Drop the oldest segments while the archive exceeds its size or age limit."""
        too_old_us = (self._wall_ns() - self._parameters.record_secs) // _MICROSECOND_NS
        while len(self._sizes) > 1:
            oldest = min(self._sizes)
            is_too_much = sum(self._sizes.values()) > self._parameters.record_bytes
            if not is_too_much and self._newest_row_us(oldest) >= too_old_us:
                return
            with contextlib.suppress(FileNotFoundError):
                path_of(self.directory, oldest).unlink()
            octets = self._sizes.pop(oldest)
            self.index.drop_segment(oldest)
            why = "record_bytes" if is_too_much else "record_secs"
            self._log("archive-dropped", f"segment {oldest} of {octets} octets: {why}")

    def _newest_row_us(self, number: int) -> int:
        newest = 0
        for session in self.index.sessions.values():
            for entry in session.entries:
                if entry.segment > number:
                    break
                newest = max(newest, entry.received_us[1])
        return newest

    def close(self) -> None:
        """Sync, end the segment, release the directory. Raises `WriteFailed`, after releasing the directory."""
        try:
            self._seal()
        finally:
            if self._open is not None:
                os.close(self._open.fd)
                self._open = None
            self._committed.close()
            os.close(self._lock)
