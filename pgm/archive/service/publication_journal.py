"""What is on its way out, on the disk: the rows of one batch, and how far they have gone. So whoever is killed in the middle goes on
where it was, with the same rows, and knows which of them may have gone out before.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import attrs
import pyarrow as pa

from pgm.archive.errors import ArchiveError

_ABOUT = b"pgm.batch"
_REMEDY = "make room, or name another file with --publish-state"


@attrs.frozen
class PublicationStep:
    """Rows before `row` have left; those up to `to` go out next, as what follows from `sqn` on in session `tsi`."""

    row: int
    to: int
    tsi: str
    sqn: int


@attrs.frozen
class PendingPublication:
    """A batch that is on its way."""

    writer: str
    batch: int
    stream: str
    values: pa.ChunkedArray
    last: PublicationStep | None


class PublicationJournal:
    """At most one batch. Everything is on the disk when a method returns; each raises `ArchiveError` where the disk takes nothing."""

    def __init__(self, rows: Path) -> None:
        self._rows = rows
        self._steps = rows.with_name(rows.name + ".steps")
        self._fd: int | None = None

    def begin(self, writer: str, batch: int, stream: str, values: pa.ChunkedArray) -> None:
        """Keep the rows of a batch: from now on it will be published, whatever happens."""
        about = json.dumps({"writer": writer, "batch": batch, "stream": stream}).encode()
        schema = pa.schema([("value", pa.binary())], {_ABOUT: about})
        new = self._rows.with_name(self._rows.name + ".new")
        try:
            self._close()
            self._steps.unlink(missing_ok=True)
            with new.open("wb") as file:
                with pa.ipc.new_stream(file, schema) as stream_writer:
                    for chunk in values.chunks:
                        stream_writer.write_batch(pa.RecordBatch.from_arrays([chunk], schema=schema))
                file.flush()
                os.fsync(file.fileno())
            new.replace(self._rows)
            self._sync_folder()
        except OSError as error:
            raise self._failed(error) from error

    def step(self, step: PublicationStep) -> None:
        """Say what goes out next."""
        try:
            if self._fd is None:
                self._fd = os.open(self._steps, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
                self._sync_folder()
            os.write(self._fd, json.dumps(attrs.asdict(step)).encode() + b"\n")
            os.fdatasync(self._fd)
        except OSError as error:
            raise self._failed(error) from error

    def end(self) -> None:
        """Forget the batch: it was published, and that is written down."""
        try:
            self._close()
            self._rows.unlink(missing_ok=True)
            self._steps.unlink(missing_ok=True)
        except OSError as error:
            raise self._failed(error) from error

    def read(self) -> PendingPublication | None:
        """The batch that was begun, if there is one. Raises `ArchiveError`, also where it cannot be read."""
        if not self._rows.exists():
            return None
        try:
            with pa.OSFile(str(self._rows)) as file:
                table = pa.ipc.open_stream(file).read_all()
            about: dict[str, Any] = json.loads(table.schema.metadata[_ABOUT])
            lines = self._steps.read_bytes().split(b"\n")[:-1] if self._steps.exists() else []
            last = PublicationStep(**json.loads(lines[-1])) if lines else None  # what is torn was never acted upon
            return PendingPublication(about["writer"], about["batch"], about["stream"], table["value"], last)
        except (pa.ArrowException, OSError, ValueError, KeyError, TypeError) as error:
            raise ArchiveError(
                f"{self._rows} does not say which batch was on its way: {error}",
                remedy=f"restore it and {self._steps.name}, or remove both: then that batch is published again from its beginning",
            ) from None

    def _close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _sync_folder(self) -> None:
        fd = os.open(self._rows.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def _failed(self, error: OSError) -> ArchiveError:
        return ArchiveError(f"{self._rows}: {error.strerror}; the batch is not published", remedy=_REMEDY)
