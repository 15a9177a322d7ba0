"""Scan of the files and folders to send, as a manifest with the paths of its files."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

import attrs

from pgm.errors import ProcessError, UsageError
from pgm.files.manifest import MODE_BITS, Extent, FileEntry, Manifest
from pgm.files.names import BadManifest, check
from pgm.wire.train import Octets

_LEAST_HOLE_SHARE = 8  # a file is sparse if its size on the disk is smaller by an eighth
_BLOCK = 512  # octets of a block in `stat`
_MOST_EXTENTS = 10_000  # maximum of one file; a file with more is sent with its holes


@attrs.frozen
class FileOffering:
    """Files to send. `paths` are those of the manifest's files in the same order. `skipped` are links and devices."""

    manifest: Manifest
    paths: tuple[Path, ...]
    skipped: tuple[Path, ...]


@attrs.define
class _ScanResult:
    files: list[tuple[FileEntry, Path]] = attrs.field(factory=list)
    folders: list[bytes] = attrs.field(factory=list)
    skipped: list[Path] = attrs.field(factory=list)


def scan(
    files: Sequence[Path],
    folders: Sequence[Path],
    *,
    unit: int,
    block_octets: int,
    most_entries: int,
    digest_name: str = "sha256",
) -> FileOffering:
    """Scan files and folders. Each file keeps its own name. Each folder keeps its name and its contents.

    `unit` and `block_octets` are octets. Links in folders are not followed, and devices are not read. Raises `UsageError` for
    two entries with one name and for more than `most_entries`, and `ProcessError` for unreadable entries.
    """
    result = _ScanResult()
    for path in files:
        info = _stat(path)
        if not stat.S_ISREG(info.st_mode):
            raise UsageError(f"{path} is no file", remedy="name a folder with --folder")
        result.files.append((_entry(os.fsencode(path.name), path, info), path))
    for path in folders:
        if not path.is_dir():
            raise UsageError(f"{path} is no folder", remedy="name a file with --file")
        name = os.fsencode(path.resolve().name)
        _walk(path, name, result, most_entries)
    if len(result.files) + len(result.folders) > most_entries:
        raise UsageError(
            f"{len(result.files) + len(result.folders):,} files and folders are more than file_entries = {most_entries:,}",
            remedy="send them in several transfers, or raise file_entries at source and receivers",
        )
    if not result.files and not result.folders:
        raise UsageError("there is nothing to send", remedy="name files with --file and folders with --folder")
    result.files.sort(key=lambda item: item[0].name)
    entries = tuple(entry for entry, _ in result.files)
    try:
        check((entry.name for entry in entries), result.folders, most_entries)
    except BadManifest as error:
        raise UsageError(error.message, remedy="rename it, or send it by itself") from error
    block = unit * max(1, block_octets // unit)
    manifest = Manifest(entries, tuple(sorted(result.folders)), block, unit, digest_name)
    return FileOffering(manifest, tuple(path for _, path in result.files), tuple(result.skipped))


def _walk(path: Path, name: bytes, result: _ScanResult, most: int) -> None:
    result.folders.append(name)
    try:
        with os.scandir(path) as entries:
            inside = sorted(entries, key=lambda entry: entry.name)
    except OSError as error:
        raise _unreadable(path, error) from error
    for entry in inside:
        below = name + b"/" + os.fsencode(entry.name)
        if entry.is_dir(follow_symlinks=False):
            _walk(Path(entry.path), below, result, most)
        elif entry.is_file(follow_symlinks=False):
            info = _stat(Path(entry.path))
            result.files.append((_entry(below, Path(entry.path), info), Path(entry.path)))
        else:
            result.skipped.append(Path(entry.path))
        if len(result.files) > most:
            return


def _stat(path: Path) -> os.stat_result:
    try:
        return path.stat()
    except OSError as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: OSError) -> ProcessError:
    return ProcessError(f"{path}: {error.strerror}", remedy="check the path and its permissions")


def _entry(name: bytes, path: Path, info: os.stat_result) -> FileEntry:
    size = info.st_size
    whole: tuple[Extent, ...] = ((0, size),) if size else ()
    is_sparse = info.st_blocks * _BLOCK < size - size // _LEAST_HOLE_SHARE
    extents = _data_of(path, size) if is_sparse else whole
    return FileEntry(name, size, info.st_mode & MODE_BITS, info.st_mtime_ns, extents)


def _data_of(path: Path, size: int) -> tuple[Extent, ...]:
    """Return the parts of a file outside its holes, or the whole file if the parts are too many."""
    try:
        with path.open("rb") as file:
            extents = tuple(_extents(file.fileno(), size))
    except OSError as error:
        raise _unreadable(path, error) from error
    return extents if len(extents) <= _MOST_EXTENTS else ((0, size),)


def _extents(descriptor: int, size: int) -> Iterator[Extent]:
    end = 0
    for _ in range(_MOST_EXTENTS + 1):
        try:
            first = os.lseek(descriptor, end, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:  # only a hole is left
                return
            raise
        end = min(size, os.lseek(descriptor, first, os.SEEK_HOLE))
        if first >= size:
            return
        yield first, end


class FileReader:
    """Reader of the octets of a transfer by place. It keeps one file open and detects a file that changes."""

    def __init__(self, offering: FileOffering) -> None:
        self._offering = offering
        self._file = -1
        self._descriptor = -1

    def read(self, first: int, into: Octets) -> None:
        """Fill a row of octets from place `first` on. Raises `ProcessError` for a changed or unreadable file."""
        view = into.data
        for piece in self._offering.manifest.pieces(first, first + len(into)):
            self._open(piece.file)
            done = 0
            while done < piece.octets:
                part = view[piece.at + done : piece.at + piece.octets]
                try:
                    count = os.preadv(self._descriptor, [part], piece.offset + done)
                except OSError as error:
                    raise _unreadable(self._offering.paths[piece.file], error) from error
                if not count:
                    raise _changed(self._offering.paths[piece.file])
                done += count

    def _open(self, file: int) -> None:
        if file == self._file:
            return
        self.close()
        path = self._offering.paths[file]
        try:
            self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise _unreadable(path, error) from error
        self._file = file
        self._check()

    def _check(self) -> None:
        entry, info = self._offering.manifest.files[self._file], os.fstat(self._descriptor)
        if (info.st_size, info.st_mtime_ns) != (entry.size, entry.mtime_ns):
            raise _changed(self._offering.paths[self._file])

    def close(self) -> None:
        """Close the open file. Raises `ProcessError` if it has changed since the scan."""
        if self._file < 0:
            return
        try:
            self._check()
        finally:
            os.close(self._descriptor)
            self._file = -1


def _changed(path: Path) -> ProcessError:
    return ProcessError(f"{path} has changed while it was sent", remedy="send it again when no process writes to it")
