"""Journal of the batch that is being published: its rows, and its progress.

The journal is on disk. A service that was killed continues with the same rows, and knows which of them may already have
been sent.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import attrs
import pyarrow as pa

from pgm.archive.errors import ArchiveError
from pgm.own_files import sync_folder

# Rows that are published: a message, and its subject and destination node, or null.
PUBLISHED = pa.schema([("value", pa.binary()), ("subject", pa.string()), ("to", pa.string())])

_DESCRIPTION = b"pgm.batch"
_REMEDY = "make room, or choose another file with --publish-state"


@attrs.frozen
class PublicationStep:
    """Step of a publication: rows before `row` are sent; `row` to `to - 1` follow, from `sqn` on in session `tsi`."""

    row: int
    to: int
    tsi: str
    sqn: int


@attrs.frozen
class PendingPublication:
    """Batch whose publication has begun and not ended."""

    writer: str
    batch: int
    stream: str
    rows: pa.Table  # of `PUBLISHED`
    last: PublicationStep | None


def completed_rows(rows: pa.Table) -> pa.Table:
    """Return rows of the columns that are published, null where they are missing."""
    columns = [
        rows.column(field.name) if field.name in rows.schema.names else pa.nulls(len(rows), field.type)
        for field in PUBLISHED
    ]
    return pa.Table.from_arrays(columns, schema=PUBLISHED)


class PublicationJournal:
    """Journal of at most one batch, on disk when a method returns. Each method may raise `ArchiveError`."""

    def __init__(self, rows: Path) -> None:
        self._rows = rows
        self._steps = rows.with_name(rows.name + ".steps")
        self._fd: int | None = None

    def begin(self, writer: str, batch: int, stream: str, rows: pa.Table) -> None:
        """Store the rows of a batch; from now on the batch will be published in any case."""
        description = json.dumps({"writer": writer, "batch": batch, "stream": stream}).encode()
        schema = PUBLISHED.with_metadata({_DESCRIPTION: description})
        new = self._rows.with_name(self._rows.name + ".new")
        try:
            self._close()
            self._steps.unlink(missing_ok=True)
            with new.open("wb") as file:
                with pa.ipc.new_stream(file, schema) as stream_writer:
                    stream_writer.write_table(rows.replace_schema_metadata(schema.metadata))
                file.flush()
                os.fsync(file.fileno())
            new.replace(self._rows)
            sync_folder(self._rows.parent)
        except OSError as error:
            raise self._error(error) from error

    def step(self, step: PublicationStep) -> None:
        """Store the step that is sent next."""
        try:
            if self._fd is None:
                self._fd = os.open(self._steps, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
                sync_folder(self._rows.parent)
            os.write(self._fd, json.dumps(attrs.asdict(step)).encode() + b"\n")
            os.fdatasync(self._fd)
        except OSError as error:
            raise self._error(error) from error

    def end(self) -> None:
        """Delete the journal, after the end of the publication is on disk."""
        try:
            self._close()
            self._rows.unlink(missing_ok=True)
            self._steps.unlink(missing_ok=True)
        except OSError as error:
            raise self._error(error) from error

    def read(self) -> PendingPublication | None:
        """Return the batch in the journal, or None. Raises `ArchiveError`, also for an unreadable journal."""
        if not self._rows.exists():
            return None
        try:
            with pa.OSFile(str(self._rows)) as file:
                table = pa.ipc.open_stream(file).read_all()
            description: dict[str, Any] = json.loads(table.schema.metadata[_DESCRIPTION])
            lines = self._steps.read_bytes().split(b"\n")[:-1] if self._steps.exists() else []
            # an incomplete last line was never acted upon
            last = PublicationStep(**json.loads(lines[-1])) if lines else None
            rows = completed_rows(table.replace_schema_metadata(None))
            return PendingPublication(description["writer"], description["batch"], description["stream"], rows, last)
        except (pa.ArrowException, OSError, ValueError, KeyError, TypeError) as error:
            raise ArchiveError(
                f"{self._rows} does not say which batch was on its way: {error}",
                remedy=f"restore it and {self._steps.name}, or remove both: the batch is then published again from its first row",
            ) from None

    def _close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _error(self, error: OSError) -> ArchiveError:
        return ArchiveError(f"{self._rows}: {error.strerror}; the batch is not published", remedy=_REMEDY)
