"""Data source "pgm_fleet": events of all nodes, as batches and streams, from folders and agents."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Collection, Iterator, MutableMapping, Sequence
from itertools import pairwise
from typing import Any

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from pgm.figures.minutes import MINUTE_US
from pgm.spark.errors import BadOption
from pgm.spark.fleet.offsets import FleetOffset, advanced, bounded, needs_cut, start_of, time_until
from pgm.spark.fleet.options import FleetOptions, read_options
from pgm.spark.fleet.places import FleetSurvey, Place, PlaceAway, PlaceSilent, places_of, survey
from pgm.telemetry.events import arrow_schema
from pgm.telemetry.log_files import run_of

_log = logging.getLogger("pgm.spark")
_POLL_S = 0.5  # between questions to all places, which Spark would otherwise ask every few milliseconds
_PARTITION_ROWS = 200_000
_MOST_COUNT = (1 << 31) - 1
_ATTEMPTS = 3  # at a place that is silent, before its rows count as unread
_PAUSE_S = 1.0  # between them: an agent is restarted in that time
_TIME = pa.timestamp("us", "UTC")
_DELETED = "deleted before they were read"

SCHEMA = pa.schema(
    [*arrow_schema(), pa.field("log", pa.string()), pa.field("row", pa.int64()), pa.field("read_until", _TIME)]
)
PACKED = pa.schema(
    [
        ("minute", _TIME),
        ("at", _TIME),
        ("read_until", _TIME),
        ("rows", pa.int64()),
        ("events", pa.binary()),
    ]
)


class FleetDataSource(DataSource):
    """Data source that Spark calls by the format "pgm_fleet"."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        self.options = dict(options.items())

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "pgm_fleet"

    def schema(self) -> StructType:
        """Return the columns of telemetry, and log, row and read_until. Raises `BadOption`."""
        schema: StructType = from_arrow_schema(_schema_of(read_options(self.options)))
        return schema

    def _options_for(self, schema: StructType) -> FleetOptions:
        options = read_options(self.options)
        if schema != from_arrow_schema(_schema_of(options)):
            raise BadOption("the events of a fleet have one schema", remedy="leave out the schema, and select columns")
        return options

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return a reader of all events."""
        return FleetReader(self._options_for(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802  # Spark's name
        """Return a reader of new events."""
        return FleetStreamReader(self._options_for(schema))


def _schema_of(options: FleetOptions) -> pa.Schema:
    return PACKED if options.is_packed else SCHEMA


@attrs.frozen
class LogSpan:
    """Rows of one log to read, at a place. An empty place has none any more, for the reason `cause`."""

    place: str
    log: str
    first: int
    end: int
    cause: str = _DELETED


@attrs.frozen
class Mark:
    """Row that the reader itself writes: kind, time, peer and cause."""

    kind: str
    time_us: int
    peer: str
    cause: str


@attrs.frozen
class FleetPiece(InputPartition):
    """Partition: spans of logs, and marks. `until_us` is the time up to which earlier micro-batches read; None in a batch."""

    spans: tuple[LogSpan, ...]
    marks: tuple[Mark, ...]
    until_us: int | None
    at_us: int  # time of rows that tell of unread ones


def pieces_of(
    spans: Sequence[LogSpan], marks: Sequence[Mark], until_us: int | None, at_us: int
) -> list[InputPartition]:
    """Return partitions of some `_PARTITION_ROWS`: logs are many and mostly short."""
    pieces: list[InputPartition] = []
    taken: list[LogSpan] = []
    rows = 0
    for span in spans:
        taken.append(span)
        rows += span.end - span.first
        if rows >= _PARTITION_ROWS:
            pieces.append(FleetPiece(tuple(taken), (), until_us, at_us))
            taken, rows = [], 0
    if taken or marks or not pieces:
        pieces.append(FleetPiece(tuple(taken), tuple(marks), until_us, at_us))
    return pieces


def read_piece(piece: FleetPiece, options: FleetOptions) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a partition, with a row of kind `unread` for each gap."""
    batches = _batches_of(piece, options)
    if options.kinds:
        kinds = pa.array(options.kinds)
        batches = (batch.filter(pc.is_in(batch.column("kind"), kinds)) for batch in batches)
    yield from _packed(batches, piece) if options.is_packed else batches


def _packed(batches: Iterator[pa.RecordBatch], piece: FleetPiece) -> Iterator[pa.RecordBatch]:
    """Yield one row for each minute. A value for each event costs the JVM far more than the event is worth."""
    table = pa.Table.from_batches(batches, schema=SCHEMA).select(arrow_schema().names).sort_by("time")
    times = table.column("time").cast(pa.int64()).to_numpy()
    minutes = times // MINUTE_US * MINUTE_US
    edges = [0, *(np.flatnonzero(np.diff(minutes)) + 1).tolist(), len(minutes)] if len(minutes) else [0]
    rows: dict[str, list[Any]] = {name: [] for name in PACKED.names}
    for low, high in pairwise(edges):
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table.slice(low, high - low).combine_chunks())
        values = (int(minutes[low]), int(times[high - 1]), piece.until_us, high - low, sink.getvalue().to_pybytes())
        for name, value in zip(PACKED.names, values, strict=True):
            rows[name].append(value)
    yield pa.RecordBatch.from_pydict(rows, schema=PACKED)


def _batches_of(piece: FleetPiece, options: FleetOptions) -> Iterator[pa.RecordBatch]:
    places = places_of(options)
    silent: dict[str, str] = {}
    for span in piece.spans:
        yield from _rows_of(span, places.get(span.place), piece, silent)
    if piece.marks:
        columns: dict[str, list[Any]] = {
            "time": [mark.time_us for mark in piece.marks],
            "kind": [mark.kind for mark in piece.marks],
            "peer": [mark.peer for mark in piece.marks],
            "cause": [mark.cause for mark in piece.marks],
        }
        yield _made(columns, piece)


def _rows_of(span: LogSpan, place: Place | None, piece: FleetPiece, silent: dict[str, str]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a span. `silent` has the places that were silent at all attempts, which are asked no more."""
    at, cause = span.first, silent.get(span.place, span.cause)
    for attempt in range(1, _ATTEMPTS + 1) if span.place not in silent else ():
        try:
            for begin, table in place.rows(span.log, at, span.end) if place is not None else ():
                if begin > at:
                    yield _unread(span, at, begin, cause, piece)
                yield from _with_place(table, span.log, begin, piece).to_batches()
                at = begin + table.num_rows
            break
        except PlaceSilent as error:
            if attempt == _ATTEMPTS:
                cause = silent[span.place] = error.message
            else:
                _wait(_PAUSE_S)
        except PlaceAway as error:
            cause = error.message
            break
    if at < span.end or place is None:
        yield _unread(span, at, span.end, cause, piece)


def _wait(seconds: float) -> None:
    threading.Event().wait(seconds)


def _with_place(table: pa.Table, log: str, begin: int, piece: FleetPiece) -> pa.Table:
    rows = table.num_rows
    until = pa.scalar(piece.until_us, _TIME)
    more = [
        pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int32)), pa.array([log])).cast(pa.string()),
        pa.array(np.arange(begin, begin + rows)),
        pa.repeat(until, rows),
    ]
    return pa.Table.from_arrays([*table.columns, *more], schema=SCHEMA)


def _unread(span: LogSpan, first: int, end: int, cause: str, piece: FleetPiece) -> pa.RecordBatch:
    node = run_of(span.log)[0]
    _log.warning("%d rows of %s were not read: %s", end - first, span.log, cause)
    columns: dict[str, list[Any]] = {
        "time": [piece.at_us], "node": [node], "kind": ["unread"], "count": [min(end - first, _MOST_COUNT)],
        "cause": [cause], "log": [span.log], "row": [first],
    }  # fmt: skip
    return _made(columns, piece)


def _made(columns: dict[str, list[Any]], piece: FleetPiece) -> pa.RecordBatch:
    rows = len(columns["kind"])
    empty: dict[str, Any] = {
        **dict.fromkeys(("node", "role", "segment", "tsi", "peer", "cause", "log"), ""),
        **dict.fromkeys(("first", "count", "tries"), 0),
        "value_us": None, "local": False, "row": None, "read_until": piece.until_us,
    }  # fmt: skip
    arrays = [pa.array(columns.get(field.name, [empty.get(field.name)] * rows), field.type) for field in SCHEMA]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


class FleetReader(DataSourceReader):
    """Reader of the rows that exist when the query starts."""

    def __init__(self, options: FleetOptions) -> None:
        self._options = options

    def partitions(self) -> list[InputPartition]:
        """Return the partitions. Raises `PlaceAway` if a place does not answer."""
        found = survey(places_of(self._options).values())
        if found.away:
            reason = next(iter(found.away.values()))
            raise PlaceAway(reason, remedy="a batch needs all places: leave this one out, or start it")
        spans = [LogSpan(place, state.name, state.first, state.next) for place, state in found.logs.values()]
        at_us = max((state.newest_us for _, state in found.logs.values()), default=0)
        return pieces_of(sorted(spans, key=lambda span: span.log), (), None, at_us)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a partition."""
        assert isinstance(partition, FleetPiece)
        yield from read_piece(partition, self._options)


class FleetStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reader of new rows. A place that is away is told by rows, and stops no other one."""

    def __init__(self, options: FleetOptions) -> None:
        self._options = options
        self._places = places_of(options)
        self._ends: dict[str, int] | None = None
        self._surveyed_s = float("-inf")
        self._found = FleetSurvey({}, {})

    def _survey(self, until_us: int | None = None) -> FleetSurvey:
        found = survey(self._places.values(), until_us)
        for place in found.away.keys() - self._found.away.keys():
            _log.warning("%s is away: %s", place, found.away[place])
        self._found, self._surveyed_s = found, time.monotonic()
        return found

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802  # Spark's name, as below
        """Return the offset of a new query."""
        return start_of(self._survey(), is_latest=self._options.is_latest).as_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return the limit of a micro-batch."""
        return ReadMaxRows(self._options.most_rows)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Store the present ends, at which the query will end."""
        self._ends = {name: state.next for name, (_, state) in self._survey().logs.items()}

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Return the end of the next micro-batch."""
        begin = FleetOffset.of_json(start)
        if time.monotonic() - self._surveyed_s < _POLL_S and self._ends is None and self._is_read(begin):
            return start
        found, now_us = bounded(self._survey(), self._ends), time.time_ns() // 1000
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else self._options.most_rows
        until_us = time_until(begin, found, most, now_us)
        if needs_cut(until_us, begin, found):
            found = bounded(self._survey(until_us), self._ends)
        return advanced(begin, found, until_us, now_us).as_json()

    def _is_read(self, begin: FleetOffset) -> bool:
        return all(begin.logs.get(name, 0) >= state.next for name, (_, state) in self._found.logs.items())

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Return the partitions of a micro-batch."""
        begin, target = FleetOffset.of_json(start), FleetOffset.of_json(end)
        ends = {name: at for name, at in target.logs.items() if at > begin.logs.get(name, 0)}
        found = self._with_logs(ends)
        lacking = "", "; ".join(found.away.values()) or _DELETED
        spans = []
        for name, at in ends.items():
            place, cause = (found.logs[name][0], _DELETED) if name in found.logs else lacking
            spans.append(LogSpan(place, name, begin.logs.get(name, 0), at, cause))
        for name, at in target.gone.items():
            spans.append(LogSpan("", name, begin.logs.get(name, 0), at, f"the log is gone: {name}"))
        marks = [
            Mark("away", min(since_us, target.until_us), place, reason)
            for place, (since_us, reason) in target.away.items()
            if place not in begin.away
        ]
        marks += [Mark("back", min(at_us, target.until_us), place, "") for place, at_us in target.back.items()]
        # Rows of the reader itself lie in the time of the micro-batch: a later one would move the watermark for all.
        return pieces_of(spans, marks, begin.until_us or None, begin.until_us or target.until_us)

    def _with_logs(self, names: Collection[str]) -> FleetSurvey:
        """Return a survey that found logs. In a repeated micro-batch their place may be away for a moment."""
        found = self._found
        for attempt in range(_ATTEMPTS):
            if all(name in found.logs for name in names):
                break
            if attempt:
                if not found.away:
                    break
                _wait(_PAUSE_S)
            found = self._survey()
        return found

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a partition."""
        assert isinstance(partition, FleetPiece)
        yield from read_piece(partition, self._options)
