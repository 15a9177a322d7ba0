"""Event logs of nodes as readers see them: runs of numbered rows in a folder of telemetry files.

A log is one run of a writer. Its rows have numbers from 0 on, which stay when files are merged or the oldest are deleted. A
position in a log is thus one number, and a gap between a position and the oldest row is a count of rows.
"""

from __future__ import annotations

import contextlib
import datetime
import glob
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs

from pgm.errors import ProcessError
from pgm.telemetry.events import EARLIER_RUNS, FIRST_ROW, arrow_schema

_ATTEMPTS = 3  # at a listing, while the writer merges the files that it names
_MOST_KNOWN = 100_000  # files whose footers are kept, some 300 octets each
_MICROSECOND = datetime.timedelta(microseconds=1)
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


EVENTS_PATH = "/fleet/v1/events"  # resources of an agent: states of logs, and rows
ROWS_PATH = "/fleet/v1/events/rows"


def run_of(log: str) -> tuple[str, str]:
    """Return the writer of a log and its run. Runs of a writer are in order of time."""
    writer, _, run = log.rpartition("-")
    return writer, run


@attrs.frozen
class LogFile:
    """One file: the number of its first row, the rows, and the times of the earliest and latest in us since 1970."""

    path: Path
    first: int
    rows: int
    begins_us: int
    ends_us: int
    earlier: Mapping[str, int]

    @property
    def next(self) -> int:
        """Return the number after the last row."""
        return self.first + self.rows


@attrs.frozen
class NodeLog:
    """One log: its files in order. `earlier` has the rows of earlier runs of the same writer."""

    name: str
    files: tuple[LogFile, ...]

    @property
    def first(self) -> int:
        """Return the number of the oldest row that is still there."""
        return self.files[0].first

    @property
    def next(self) -> int:
        """Return the number of the next row."""
        return self.files[-1].next

    @property
    def newest_us(self) -> int:
        """Return the latest time of a row."""
        return max(file.ends_us for file in self.files)

    @property
    def earlier(self) -> Mapping[str, int]:
        """Return the rows of the runs before this one."""
        return self.files[-1].earlier

    def begins_us(self, row: int) -> int:
        """Return a time before or at that of `row` and all later ones in the same file; the newest time at the end."""
        return next((file.begins_us for file in self.files if file.next > row), self.newest_us)

    def row_after(self, until_us: int) -> int:
        """Return the number of the first row that is later than `until_us`. Raises `ProcessError`."""
        for file in self.files:
            if file.ends_us > until_us:
                times = _table_of(file.path, ["time"]).column("time").cast("int64").to_numpy()
                return file.first + int((times > until_us).argmax())
        return self.next


@attrs.define
class EventFolder:
    """Logs in a folder and below it. Footers of files are read once."""

    folder: Path
    unnumbered: int = attrs.field(init=False, default=0)  # files of older versions, which are left out
    _known: dict[tuple[Path, int, int], LogFile | None] = attrs.field(init=False, factory=dict, repr=False)

    def logs(self, name: str = "") -> dict[str, NodeLog]:
        """Return all logs by name, or the one of `name`. A folder that is missing has none."""
        found: dict[str, list[LogFile]] = {}
        known: dict[tuple[Path, int, int], LogFile | None] = {}
        for path in sorted(self.folder.rglob(f"{glob.escape(name)}-*.parquet" if name else "*.parquet")):
            if path.name.startswith((".", "_")):
                continue
            try:
                stat = path.stat()
                key = path, stat.st_mtime_ns, stat.st_size
                known[key] = self._known[key] if key in self._known else _log_file(path)
            except OSError:  # merged or deleted meanwhile
                continue
            file = known[key]
            if file is not None:
                found.setdefault(path.stem.rpartition("-")[0], []).append(file)
        self._known = known if not name and len(known) <= _MOST_KNOWN else self._known
        self.unnumbered = sum(file is None for file in known.values())
        return {log: NodeLog(log, _without_merged(files)) for log, files in found.items()}

    def rows(self, log: str, first: int, end: int) -> Iterator[tuple[int, Any]]:
        """Yield the rows from `first` until `end` as tables, each with the number of its first row.

        Rows that were deleted are left out. Raises `ProcessError` for a file that is damaged.
        """
        at, attempts = first, _ATTEMPTS
        while at < end:
            found = self.logs(log).get(log)
            file = next((file for file in found.files if file.next > at), None) if found is not None else None
            if file is None or file.first >= end:
                return
            try:
                table = _table_of(file.path, None)
            except FileNotFoundError:  # merged meanwhile
                attempts -= 1
                if not attempts:
                    return
                continue
            begin = max(at, file.first)
            table = table.slice(begin - file.first, end - begin)
            yield begin, table
            at, attempts = begin + table.num_rows, _ATTEMPTS


@attrs.frozen
class LogState:
    """State of a log: its oldest and next row, the first row after the wanted time, and its earliest and latest time."""

    name: str
    first: int
    next: int
    cut: int
    begins_us: int
    newest_us: int
    earlier: Mapping[str, int]


def states_of(folder: EventFolder, until_us: int | None) -> list[LogState]:
    """Return the logs of a folder, cut after `until_us`. Raises `ProcessError`."""
    for _ in range(_ATTEMPTS):
        with contextlib.suppress(FileNotFoundError):  # merged meanwhile
            return _states(folder, until_us)
    raise ProcessError(f"telemetry in {folder.folder} changes too fast to be listed", remedy="try again")


def _states(folder: EventFolder, until_us: int | None) -> list[LogState]:
    return [
        LogState(
            log.name,
            log.first,
            log.next,
            log.next if until_us is None else log.row_after(until_us),
            log.files[0].begins_us,
            log.newest_us,
            log.earlier,
        )
        for log in folder.logs().values()
    ]


def _without_merged(files: list[LogFile]) -> tuple[LogFile, ...]:
    """Return the files in order without those whose rows a merged file has, too."""
    kept: list[LogFile] = []
    for file in sorted(files, key=lambda file: (file.first, -file.rows)):
        if not kept or file.next > kept[-1].next:
            kept.append(file)
    return tuple(kept)


def _log_file(path: Path) -> LogFile | None:
    """Return a file by its footer; None for a file without numbers. Raises `OSError` for an absent one."""
    import pyarrow
    import pyarrow.parquet as pq

    try:
        footer = pq.read_metadata(path)
    except pyarrow.ArrowException:
        return None
    metadata = footer.metadata or {}
    if FIRST_ROW not in metadata or not footer.num_rows:
        return None
    at = footer.schema.names.index("time")
    groups = [footer.row_group(number).column(at).statistics for number in range(footer.num_row_groups)]
    begins, ends = min(group.min for group in groups), max(group.max for group in groups)
    earlier = json.loads(metadata.get(EARLIER_RUNS, b"{}"))
    return LogFile(path, int(metadata[FIRST_ROW]), footer.num_rows, _us(begins), _us(ends), earlier)


def _us(time: datetime.datetime) -> int:
    return (time - _EPOCH) // _MICROSECOND


def _table_of(path: Path, columns: list[str] | None) -> Any:
    """Return the rows of a file. Raises `FileNotFoundError`, and `ProcessError` for a damaged file."""
    import pyarrow
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(path, columns=columns, partitioning=None)
        return table if columns else table.cast(arrow_schema())
    except (pyarrow.ArrowException, OSError) as error:
        if isinstance(error, FileNotFoundError):
            raise
        raise ProcessError(
            f"telemetry cannot be read: {path}: {str(error).strip().splitlines()[0]}",
            remedy="remove the damaged file",
        ) from error
