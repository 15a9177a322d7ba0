"""Files of Iceberg's metadata that are on the disk when they are closed.

The catalog names them in its next transaction, which SQLite syncs. Without this, a crash of the machine could leave a catalog
that names an empty file. pyiceberg loads the class by its name, the property `py-io-impl`.
"""

from __future__ import annotations

import os
from pathlib import Path
from types import TracebackType
from typing import Any

from pyiceberg.io import OutputStream
from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO

from pgm.own_files import sync_folder


class SyncedFileIO(PyArrowFileIO):
    """Files of a local file system."""

    def new_output(self, location: str) -> PyArrowFile:
        """Return a file to write."""
        scheme, host, path = self.parse_location(location, self.properties)
        return _SyncedFile(location, path, self.fs_by_scheme(scheme, host))


class _SyncedFile(PyArrowFile):
    def create(self, overwrite: bool = False) -> OutputStream:
        """Return a stream into the file."""
        return _SyncedStream(super().create(overwrite), Path(self.location.removeprefix("file://")))


class _SyncedStream:
    def __init__(self, stream: Any, path: Path) -> None:
        self._stream = stream
        self._path = path

    def write(self, octets: bytes) -> int:
        """Write octets; return their number."""
        count: int = self._stream.write(octets)
        return count

    def tell(self) -> int:
        """Return the octets written so far."""
        place: int = self._stream.tell()
        return place

    def close(self) -> None:
        """Wait until the file and its name are on the disk. Raises OSError."""
        if self._stream.closed:
            return
        self._stream.close()
        descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        sync_folder(self._path.parent)

    def __enter__(self) -> OutputStream:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
