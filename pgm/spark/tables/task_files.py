"""Files that tasks write for a table. The driver commits them; files of other attempts never count."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import attrs
import pyarrow as pa

from pgm.archive.requests import SessionExtent
from pgm.archive.store.schema import SCHEMA
from pgm.archive.tables.files import TableFile, write_files
from pgm.archive.tables.state import TableState, extents_of, lacked_rows

TOLD = "files string, sessions string"  # the columns that tasks return
_TOLD_SCHEMA = pa.schema([("files", pa.string()), ("sessions", pa.string())])


@attrs.frozen
class TaskFiles:
    """Function of `mapInArrow`: write the rows that the table lacks, and return what was written."""

    folder: str
    state: TableState
    most_octets: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield a row for each group of files. A group has `most_octets` of rows, or the rest. Raises OSError."""
        held: list[pa.RecordBatch] = []
        octets = 0
        for batch in batches:
            held.append(batch)
            octets += batch.nbytes
            if octets >= self.most_octets:
                yield from self._written(held)
                held, octets = [], 0
        if held:
            yield from self._written(held)

    def _written(self, batches: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = pa.Table.from_batches(batches).select(SCHEMA.names).cast(SCHEMA)
        rows = lacked_rows(rows, self.state)
        if rows.num_rows:
            files = write_files(rows, Path(self.folder))
            names = json.dumps([one.as_json(Path(self.folder)) for one in files])
            sessions = json.dumps([one.as_json() for one in extents_of(rows)])
            yield pa.RecordBatch.from_pydict({"files": [names], "sessions": [sessions]}, schema=_TOLD_SCHEMA)


def told_files(text: str, folder: Path) -> list[TableFile]:
    """Return the files of a row of tasks, which wrote them in `folder`."""
    return [TableFile.from_json(one, folder) for one in json.loads(text)]


def told_sessions(text: str) -> list[SessionExtent]:
    """Return the extents of a row of tasks."""
    return [SessionExtent.from_json(one) for one in json.loads(text)]
