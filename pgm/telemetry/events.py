"""Writer of telemetry rows to Parquet files, with bounds on rows, age and disk space.

The core's thread only appends rows to a queue. A separate thread writes each file under a hidden name and then renames it,
so that readers of the folder see complete files only. Telemetry never stops a node: rows that the disk rejects are counted,
and the next file reports the count in a row of kind "overflow". The two threads share only the queue, which is safe to use
without a lock. Each count has one writing thread.
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
            "telemetry files are Parquet and need pyarrow, which is missing",
            remedy="pip install 'pgm-repair-network[arrow]', or turn telemetry off",
        ) from None
    return pyarrow


def arrow_schema() -> Any:
    """Return the `pyarrow.Schema` of telemetry files. Raises `UsageError` if pyarrow is missing."""
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


class _TelemetryFiles:
    """Telemetry files in `folder` whose names begin with `name`; the oldest are deleted beyond `most_octets` in all.

    Raises `UsageError` if pyarrow is missing, and `ProcessError` if the folder is not writable.
    """

    def __init__(self, folder: Path, name: str, most_octets: int) -> None:
        self._arrow = _pyarrow()
        self._schema = arrow_schema()
        self._folder = folder
        self._name = name.replace("/", "_")
        self._most_octets = most_octets
        self._run = f"{time.time_ns() // 1000:x}"
        self.written = 0  # files of this run
        # ArrowException: a value does not fit its column
        self.write_errors: tuple[type[Exception], ...] = (OSError, self._arrow.ArrowException)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._kept = self._earlier_files()
        except OSError as error:
            raise ProcessError(
                f"no telemetry in {folder}: {error.strerror}", remedy="choose a writable folder"
            ) from error

    def _earlier_files(self) -> list[tuple[Path, int]]:
        """Return the files of earlier runs with this name, oldest first, each with its octets."""
        files = [path for path in self._folder.glob("*" + _SUFFIX) if path.name.rsplit("-", 2)[0] == self._name]
        stats = sorted((path.stat().st_mtime_ns, path, path.stat().st_size) for path in files)
        return [(path, size) for _, path, size in stats]

    def write(self, rows: list[Event]) -> None:
        """Write rows to a new file. Raises one of `write_errors`."""
        arrow = self._arrow
        columns = zip(*(row.values() for row in rows), strict=True)
        arrays = [arrow.array(column, kind) for column, kind in zip(columns, self._schema.types, strict=True)]
        table = arrow.Table.from_arrays(arrays, schema=self._schema)
        path = self._folder / f"{self._name}-{self._run}-{self.written:06}{_SUFFIX}"
        hidden = path.with_name(f".{path.name}.tmp")  # readers of the folder skip names that begin with a dot
        try:
            arrow.parquet.write_table(table, hidden)
            os.replace(hidden, path)
        except OSError:
            hidden.unlink(missing_ok=True)
            raise
        self.written += 1
        self._kept.append((path, path.stat().st_size))
        self._keep_bound()

    def _keep_bound(self) -> None:
        total = sum(size for _, size in self._kept)
        while total > self._most_octets and len(self._kept) > 1:
            path, size = self._kept.pop(0)
            path.unlink(missing_ok=True)
            total -= size


class EventLog:
    """Log of one writer: telemetry files in `folder` whose names begin with `name`.

    `in_background` starts a writer thread. The simulator writes in its own thread instead. Raises `UsageError` if pyarrow is
    missing, and `ProcessError` if the folder is not writable.
    """

    def __init__(self, folder: str | Path, name: str, parameters: Parameters, *, in_background: bool = True) -> None:
        self._files = _TelemetryFiles(Path(folder), name, parameters.telemetry_bytes)
        self._parameters = parameters
        self._rows: deque[Event] = deque()
        self._last: Event | None = None  # newest row taken from the queue
        self.written_rows = 0
        self._refused_rows = 0  # rows refused because the queue was full
        self._unwritten_rows = 0  # rows dropped because the disk failed
        self._reported_rows = 0  # dropped rows that an overflow row has reported
        self._wake = threading.Event()
        self._is_closed = False
        self._thread = threading.Thread(target=self._work, name="telemetry", daemon=True) if in_background else None
        if self._thread is not None:
            self._thread.start()

    @property
    def files(self) -> int:
        """Return the number of files written."""
        return self._files.written

    @property
    def dropped_rows(self) -> int:
        """Return the number of rows that no file will contain."""
        return self._refused_rows + self._unwritten_rows

    def add(self, event: Event) -> None:
        """Queue a row, or count it as dropped if the queue is full. Call this in one thread only."""
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
        """Write the rows queued before the call, and the number of dropped rows, to a file, if there are any."""
        take = self._rows.popleft
        rows = [take() for _ in range(len(self._rows))]
        self._last = last = rows[-1] if rows else self._last
        if last is None:
            return
        row_count, dropped = len(rows), self.dropped_rows
        unreported = dropped - self._reported_rows
        if unreported:
            rows.append(Event(last.time_us, last.node, last.role, "", "overflow", count=unreported))
        elif not rows:
            return
        try:
            self._files.write(rows)
        except self._files.write_errors:
            self._unwritten_rows += row_count
            return
        self._reported_rows = dropped
        self.written_rows += len(rows)

    def close(self) -> None:
        """Stop the writer thread and write the remaining rows."""
        self._is_closed = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join()
        self.flush()
