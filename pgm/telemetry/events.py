"""Telemetry rows to Parquet files: bounded, rolled by rows and age, the oldest removed.

A core's thread only appends to a queue. A thread of its own makes files of it: under a name that readers skip, then
renamed, so whoever reads the folder meets complete files only. Nothing here may stop a node: what the disk does not
take is counted, and told by a row of kind "overflow" as soon as it takes something again. The two threads share the
queue only, whose ends are safe to use without a lock; each of the numbers is written by one of them.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from pathlib import Path
from typing import Any

from pgm.errors import ProcessError, UsageError
from pgm.parameters import Parameters
from pgm.telemetry.schema import COLUMNS, VERSION, Event
from pgm.units import SECOND

_SUFFIX = ".parquet"


def _pyarrow() -> Any:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise UsageError(
            "telemetry is written as Parquet, and pyarrow is missing",
            remedy="pip install 'pgm-repair-network[arrow]', or leave telemetry off",
        ) from None
    return pyarrow


def arrow_schema() -> Any:
    """The `pyarrow.Schema` of telemetry files. Raises `UsageError` where pyarrow is missing."""
    arrow = _pyarrow()
    types = {
        "timestamp": arrow.timestamp("us", "UTC"),
        "string": arrow.string(),
        "int64": arrow.int64(),
        "int32": arrow.int32(),
        "bool": arrow.bool_(),
    }
    fields = [arrow.field(name, types[kind]) for name, (kind, _) in COLUMNS.items()]
    return arrow.schema(fields, metadata={"pgm.telemetry.version": str(VERSION)})


class EventLog:
    """The telemetry files that one writer makes in `folder`; their names begin with `name`.

    `in_background` writes by a thread; the simulator writes in its own. Raises `UsageError` where pyarrow is
    missing and `ProcessError` where the folder cannot be written to.
    """

    def __init__(self, folder: str | Path, name: str, parameters: Parameters, *, in_background: bool = True) -> None:
        self._arrow = _pyarrow()
        self._schema = arrow_schema()
        self.folder = Path(folder)
        self._name = name.replace("/", "_")
        self._parameters = parameters
        self._rows: deque[Event] = deque()
        self._last: Event | None = None  # of those that were taken out
        self._run = f"{time.time_ns() // 1000:x}"
        self.files = 0
        self.written_rows = 0
        self._refused_rows = 0  # since too many waited
        self._unwritten_rows = 0  # since the disk did not take them
        self._told_rows = 0  # of both, in some file
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._kept = self._found()
        except OSError as error:
            raise ProcessError(
                f"no telemetry in {self.folder}: {error.strerror}", remedy="choose a folder that can be written to"
            ) from error
        self._wake = threading.Event()
        self._is_closed = False
        self._thread = threading.Thread(target=self._work, name="telemetry", daemon=True) if in_background else None
        if self._thread is not None:
            self._thread.start()

    def _found(self) -> list[tuple[Path, int]]:
        """Files of earlier runs under this name, oldest first."""
        files = [one for one in self.folder.glob("*" + _SUFFIX) if one.name.rsplit("-", 2)[0] == self._name]
        stats = sorted((one.stat().st_mtime_ns, one, one.stat().st_size) for one in files)
        return [(path, size) for _, path, size in stats]

    @property
    def dropped_rows(self) -> int:
        """Rows that are in no file and will not be."""
        return self._refused_rows + self._unwritten_rows

    def add(self, event: Event) -> None:
        """Take a row, or count it where too many wait. For one thread."""
        rows = self._rows
        if len(rows) >= self._parameters.telemetry_queue:
            self._refused_rows += 1
            return
        rows.append(event)
        if len(rows) == self._parameters.telemetry_rows:
            if self._thread is None:
                self.flush()
            else:
                self._wake.set()

    def _work(self) -> None:
        while not self._is_closed:
            self._wake.wait(self._parameters.telemetry_ivl / SECOND)
            self._wake.clear()
            self.flush()

    def flush(self) -> None:
        """Make a file of what waits, if anything does, and of how much was left out. Rows may be added meanwhile: they wait for the next one."""
        take = self._rows.popleft
        rows = [take() for _ in range(len(self._rows))]
        self._last = last = rows[-1] if rows else self._last
        if last is None:
            return
        taken, dropped = len(rows), self.dropped_rows
        untold = dropped - self._told_rows
        if untold:
            rows.append(Event(last.time_us, last.node, last.role, "", "overflow", count=untold))
        elif not rows:
            return
        try:
            self._write(rows)
        except (OSError, self._arrow.ArrowException):  # Arrow's own would be of a value that has no place in its column
            self._unwritten_rows += taken
            return
        self._told_rows = dropped
        self.written_rows += len(rows)

    def _write(self, rows: list[Event]) -> None:
        arrow = self._arrow
        columns = zip(*(row.values() for row in rows), strict=True)
        arrays = [arrow.array(column, kind) for column, kind in zip(columns, self._schema.types, strict=True)]
        table = arrow.Table.from_arrays(arrays, schema=self._schema)
        path = self.folder / f"{self._name}-{self._run}-{self.files:06}{_SUFFIX}"
        hidden = path.with_name(f".{path.name}.tmp")  # readers of folders skip names that begin with a dot
        try:
            arrow.parquet.write_table(table, hidden)
            os.replace(hidden, path)
        except OSError:
            hidden.unlink(missing_ok=True)
            raise
        self.files += 1
        self._kept.append((path, path.stat().st_size))
        self._keep_bound()

    def _keep_bound(self) -> None:
        total = sum(size for _, size in self._kept)
        while total > self._parameters.telemetry_bytes and len(self._kept) > 1:
            path, size = self._kept.pop(0)
            path.unlink(missing_ok=True)
            total -= size

    def close(self) -> None:
        """Write what is left."""
        self._is_closed = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join()
        self.flush()
