"""Writer of telemetry rows to Parquet files, with bounds on rows, age and disk space.

The core's thread only appends rows to a queue. A separate thread writes each file under a hidden name and then renames it,
so that readers of the folder see complete files only. Telemetry never stops a node: rows that the disk rejects are counted,
and the next file reports the count in a row of kind "overflow". The two threads share only the queue, which is safe to use
without a lock. Each count has one writing thread.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import attrs

from pgm.errors import ProcessError, UsageError
from pgm.parameters import Parameters
from pgm.telemetry.schema import COLUMNS, VERSION, Event
from pgm.units import SECOND

_SUFFIX = ".parquet"
_LAST_MERGED = b"pgm.telemetry.merged"  # name of the newest file that was merged into this one
FIRST_ROW = b"pgm.telemetry.first_row"  # number of a file's first row; each run of a writer counts its rows from 0
EARLIER_RUNS = b"pgm.telemetry.earlier"  # JSON object: run -> its rows, of the last runs before this one
_MOST_EARLIER = 16  # runs that a file names, the newest
_MERGED_SHARE = 8  # a merged file has at most this share of telemetry_bytes, so that the oldest rows leave in steps


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


@attrs.frozen
class _LooseFile:
    """File of this run, with its octets and the time of its end."""

    path: Path
    octets: int
    written_ns: int


class _TelemetryFiles:
    """Telemetry files in `folder` whose names begin with `name`; the oldest are deleted beyond `most_octets` in all.

    Raises `UsageError` if pyarrow is missing, and `ProcessError` if the folder is not writable.
    """

    def __init__(self, folder: Path, name: str, parameters: Parameters) -> None:
        most_octets = parameters.telemetry_bytes
        self._merge_ivl = parameters.telemetry_merge_ivl
        self._loose: list[_LooseFile] = []  # files of this run that are not merged yet, the oldest first
        self._arrow = _pyarrow()
        self._schema = arrow_schema()
        self._folder = folder
        self._name = name.replace("/", "_")
        self._most_octets = most_octets
        self._run = f"{time.time_ns() // 1000:x}"
        self.written = 0  # files of this run
        self._rows = 0  # written by this run
        # ArrowException: a value does not fit its column
        self.write_errors: tuple[type[Exception], ...] = (OSError, self._arrow.ArrowException)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._kept = self._earlier_files()
            self._earlier = self._remove_merged()
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
        place = {FIRST_ROW: str(self._rows).encode(), EARLIER_RUNS: self._earlier}
        schema = self._schema.with_metadata({**(self._schema.metadata or {}), **place})
        table = arrow.Table.from_arrays(arrays, schema=schema)
        path = self._folder / f"{self._name}-{self._run}-{self.written:06}{_SUFFIX}"
        hidden = path.with_name(f".{path.name}.tmp")  # readers of the folder skip names that begin with a dot
        try:
            arrow.parquet.write_table(table, hidden)
            os.replace(hidden, path)
        except OSError:
            hidden.unlink(missing_ok=True)
            raise
        self.written += 1
        self._rows += len(rows)
        octets = path.stat().st_size
        self._kept.append((path, octets))
        self._loose.append(_LooseFile(path, octets, time.monotonic_ns()))
        self._keep_bound()
        self._merge()

    def _merge(self) -> None:
        """Merge the files that are old enough, once the oldest is twice that old. They are whole files to all readers.

        The merged file takes the name of the first, so that streaming jobs know it already. Its metadata names the last
        one: a process that is killed before it has removed the others leaves them to its successor.
        """
        now_ns = time.monotonic_ns()
        if not self._loose or now_ns - self._loose[0].written_ns < 2 * self._merge_ivl:
            return
        taken: list[_LooseFile] = []
        for file in self._loose:
            octets = sum(one.octets for one in taken) + file.octets
            if now_ns - file.written_ns < self._merge_ivl or octets > self._most_octets // _MERGED_SHARE:
                break
            taken.append(file)
        if len(taken) < 2:
            self._loose = self._loose[max(1, len(taken)) :]
            return
        self._loose = self._loose[len(taken) :]
        with contextlib.suppress(*self.write_errors):  # then the files stay as they are
            self._merge_into_first(taken)

    def _merge_into_first(self, taken: Sequence[_LooseFile]) -> None:
        first, last, arrow = taken[0].path, taken[-1].path, self._arrow
        hidden = first.with_name(f".{first.name}.tmp")
        table = arrow.concat_tables([arrow.parquet.read_table(file.path, partitioning=None) for file in taken])
        metadata = {**(arrow.parquet.read_schema(first).metadata or {}), _LAST_MERGED: last.name.encode()}
        try:
            arrow.parquet.write_table(table.replace_schema_metadata(metadata), hidden)
        except OSError:
            hidden.unlink(missing_ok=True)
            raise
        os.replace(hidden, first)
        gone = {file.path for file in taken[1:]}
        for path in gone:
            path.unlink(missing_ok=True)
        octets = first.stat().st_size
        self._kept = [(path, octets if path == first else size) for path, size in self._kept if path not in gone]

    def _remove_merged(self) -> bytes:
        """Remove files that an earlier process had merged into another one, and not removed yet.

        Return the number of rows of each of the last runs, as `EARLIER_RUNS` has them.
        """
        runs: dict[str, int] = {}
        for path, _ in list(self._kept):
            try:
                footer = self._arrow.parquet.read_metadata(path)
            except self.write_errors:  # a damaged file is for its reader to tell
                continue
            metadata = footer.metadata or {}
            if FIRST_ROW in metadata:
                run = path.name.rsplit("-", 2)[1]
                runs[run] = max(runs.get(run, 0), int(metadata[FIRST_ROW]) + footer.num_rows)
            last = metadata.get(_LAST_MERGED, b"").decode()
            gone = [one for one, _ in self._kept if last and path.name < one.name <= last]
            for one in gone:
                one.unlink(missing_ok=True)
            self._kept = [(one, size) for one, size in self._kept if one not in gone]
        newest = sorted(runs)[-_MOST_EARLIER:]
        return json.dumps({run: runs[run] for run in newest}).encode()

    def _keep_bound(self) -> None:
        total = sum(size for _, size in self._kept)
        while total > self._most_octets and len(self._kept) > 1:
            path, size = self._kept.pop(0)
            path.unlink(missing_ok=True)
            self._loose = [file for file in self._loose if file.path != path]
            total -= size


class EventLog:
    """Log of one writer: telemetry files in `folder` whose names begin with `name`.

    `in_background` starts a writer thread. The simulator writes in its own thread instead. Raises `UsageError` if pyarrow is
    missing, and `ProcessError` if the folder is not writable.
    """

    def __init__(self, folder: str | Path, name: str, parameters: Parameters, *, in_background: bool = True) -> None:
        self._files = _TelemetryFiles(Path(folder), name, parameters)
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
