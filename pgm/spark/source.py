"""Data source "pgm": batches and streams of an archive's rows, and publication.

docs/guide/spark.md describes its use. Spark makes readers in separate processes and pickles them into others, so the readers
hold options and no live objects.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator, Mapping, MutableMapping, Sequence
from typing import Any

import attrs
import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    DataSourceWriter,
    Filter,
    InputPartition,
)
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from pgm.archive.store.schema import COLUMN_NAMES, SCHEMA
from pgm.spark.decode.columns import decoded_schema, schema_text
from pgm.spark.decode.rows import VALUE, decoded_batches
from pgm.spark.errors import BadOption, DataLoss, RecorderDown
from pgm.spark.faults.worker import early_end, end_quietly, plain_errors
from pgm.spark.filters import FilterBounds, bounds_of
from pgm.spark.offsets import narrowed, spans_of, starts_of
from pgm.spark.offsets.next_batch import advanced
from pgm.spark.offsets.received_times import ReceivedTimes
from pgm.spark.offsets.stream_offsets import StreamOffsets
from pgm.spark.offsets.time_order import ReadLimits
from pgm.spark.offsets.trigger_hold import TriggerHold, sqns_ahead
from pgm.spark.option_table import READ, WRITE
from pgm.spark.options import VERIFIED, SourceOptions, read_options
from pgm.spark.progress.source_state import STATE, SourceState, state_of
from pgm.spark.ranges import RangePiece, SessionSpan, pieces_of
from pgm.spark.recorders import RetrySchedule, survey
from pgm.spark.session_table import SESSIONS_SCHEMA, SessionTableReader
from pgm.spark.sessions import ArchivedSession, sessions_of
from pgm.spark.sink import BatchWriter, StreamWriter
from pgm.spark.verified import RowReader, proven_sessions

_log = logging.getLogger("pgm.spark")
_POLL_S = 0.05  # Spark asks for new offsets every few milliseconds


class PgmDataSource(DataSource):
    """Data source that Spark calls by the format "pgm"."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        self.options = dict(options.items())

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "pgm"

    @plain_errors()
    def schema(self) -> StructType | str:
        """Return the chosen columns, with the types of the archive's rows, and the fields of values. Raises `BadOption`."""
        options = read_options(self.options, READ)
        arrow_schema = SESSIONS_SCHEMA if options.of_sessions else _arrow_schema(options.columns)
        spark_schema: StructType = from_arrow_schema(arrow_schema)
        if options.values is not None and not options.of_sessions:
            return schema_text(spark_schema, (*COLUMN_NAMES, VERIFIED), options.values)
        return spark_schema

    def _reading(self, schema: StructType) -> SourceOptions:
        options = read_options(self.options, READ)
        if options.values is None:
            return attrs.evolve(options, columns=_columns_of(schema))
        every = from_arrow_schema(_arrow_schema((*COLUMN_NAMES, VERIFIED)))
        of_rows, decoded = decoded_schema(schema, every, options.values)
        columns = _columns_of(StructType(of_rows))
        return attrs.evolve(options, columns=tuple(dict.fromkeys((*columns, VALUE))), decoded=decoded)

    @plain_errors()
    def reader(self, schema: StructType) -> DataSourceReader:
        """Return a reader of a batch."""
        options = read_options(self.options, READ)
        if options.of_sessions:
            return SessionTableReader(options)
        return PgmReader(self._reading(schema))

    @plain_errors()
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802  # Spark's name
        """Return a reader of a stream. Raises `BadOption`."""
        if read_options(self.options, READ).of_sessions:
            raise BadOption("the table of sessions is no stream", remedy="read it as a batch: spark.read")
        return PgmStreamReader(self._reading(schema))

    @plain_errors()
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return a writer that publishes a batch once."""
        return BatchWriter(read_options(self.options, WRITE), schema)

    @plain_errors()
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:  # noqa: N802
        """Return a writer that publishes micro-batches."""
        return StreamWriter(read_options(self.options, WRITE), schema)


def _lacking(ends: Mapping[str, int], sessions: Mapping[str, ArchivedSession]) -> set[str]:
    """Return the sessions whose wanted ends no service holds."""
    return {key for key, sqn in ends.items() if key not in sessions or sessions[key].next_sqn < sqn}


def _batches(piece: RangePiece, options: SourceOptions) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a partition, with the fields of the values if they are wanted."""
    rows = RowReader(piece, options).batches()
    return rows if options.decoded is None else decoded_batches(rows, options.decoded)


def _arrow_schema(columns: Sequence[str]) -> pa.Schema:
    """Return the schema of columns of rows, with `verified` in its place."""
    stored = {field.name: field for field in SCHEMA}
    return pa.schema([stored.get(name, pa.field(VERIFIED, pa.bool_())) for name in columns])


def _columns_of(schema: StructType) -> tuple[str, ...]:
    """Return the columns of a schema, which the user may have given. Raises `BadOption`."""
    known = {field.name: field.dataType for field in from_arrow_schema(_arrow_schema((*COLUMN_NAMES, VERIFIED))).fields}
    for field in schema.fields:
        if known.get(field.name) != field.dataType:
            problem = f"is {known[field.name].simpleString()}" if field.name in known else "does not exist"
            raise BadOption(
                f"the schema has a column {field.name} {field.dataType.simpleString()}, which {problem} in an archive's rows",
                remedy="omit the schema, and select with the option columns",
            )
    return tuple(schema.fieldNames())


class PgmReader(DataSourceReader):
    """Reader of the rows held when the query starts."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802  # Spark's name
        """Read less where filters permit it. Spark still applies all of them to the rows."""
        bounds = bounds_of(filters)
        if self._options.authority is not None:  # proofs need the rows beside those that are wanted
            bounds = FilterBounds(tsis=bounds.tsis, nodes=bounds.nodes, sqns=bounds.sqns)
        self._options = attrs.evolve(self._options, bounds=bounds)
        return filters

    @plain_errors()
    def partitions(self) -> list[InputPartition]:
        """Return the partitions. Raises `BadOption`, `DataLoss`, `NoReplicas`, `RecorderDown`, `RecorderRefused`."""
        sessions = sessions_of(survey(self._options), self._options)
        spans = spans_of(proven_sessions(sessions, self._options), self._options)
        spans = [attrs.evolve(span, session=sessions[span.session.key]) for span in spans]
        return list(pieces_of(narrowed(spans, self._options.bounds), self._options))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a partition; none for a foreign partition."""
        if isinstance(partition, RangePiece):
            with plain_errors(), early_end():
                yield from _batches(partition, self._options)


class PgmStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reader of new rows. Offsets are the JSON of `StreamOffsets`; `pgm.spark.sessions` describes the keys."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._sessions: dict[str, ArchivedSession] = {}
        self._down: dict[str, str] = {}
        self._surveyed_at = 0.0
        self._targets: dict[str, int] | None = None
        self._state: SourceState | None = None  # of the micro-batch that begins
        self._hold = TriggerHold(options.least_offsets, options.most_delay_s)

    def _survey(self, *, is_fresh: bool = False) -> dict[str, ArchivedSession]:
        now = time.monotonic()
        if is_fresh or not self._surveyed_at or now - self._surveyed_at > _POLL_S:
            current = survey(self._options)
            self._sessions = sessions_of(current, self._options)
            self._down = current.down
            self._surveyed_at = time.monotonic()
        return self._sessions

    @plain_errors()
    def initialOffset(self) -> dict[str, Any]:  # noqa: N802  # Spark's name, as below
        """Return the offsets of a new query."""
        sessions = proven_sessions(self._survey(is_fresh=True), self._options)
        return StreamOffsets(starts_of(sessions, self._options)).with_ends(sessions).as_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return the limit of a micro-batch in sqns. Spark has no limit for two units; the reader knows the others."""
        options = self._options
        most = options.most_rows if options.most_offsets is None else options.most_offsets
        if most is not None:
            return ReadMaxRows(most)
        return ReadAllAvailable() if options.least_offsets is None else ReadMinRows(options.least_offsets)

    @plain_errors()
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Store the present ends, at which the query will end."""
        proven = proven_sessions(self._survey(is_fresh=True), self._options)
        self._targets = {key: session.next_sqn for key, session in proven.items()}

    @plain_errors()
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Return the end of the next micro-batch."""
        sessions = self._survey()
        kept = self._without_gone(StreamOffsets.of_json(start), sessions)
        sessions = proven_sessions(sessions, self._options)
        begin = kept.with_ends(sessions)
        has_limits = not isinstance(limit, ReadAllAvailable)
        is_held = has_limits and self._hold.holds(sqns_ahead(begin.sqns, sessions), time.monotonic())
        if is_held and self._targets is None:
            return begin.as_json()
        limits = self._limits(limit) if has_limits else ReadLimits()
        batch = advanced(begin.sqns, sessions, limits, self._targets, ReceivedTimes(self._options).cut)
        self._state = state_of(self._options, self._sessions, begin.sqns, batch.offsets, batch.reached_us)
        return StreamOffsets(batch.offsets, begin.ended).with_ends(sessions).as_json()

    def _limits(self, limit: ReadLimit) -> ReadLimits:
        rows = self._options.most_rows
        sqns = limit.max_rows if isinstance(limit, ReadMaxRows) and rows is None else self._options.most_offsets
        return ReadLimits(sqns, rows)

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802
        """Return the present ends and the figures of `pgm.spark.progress`, for monitoring."""
        state = {} if self._state is None else {STATE: self._state.as_json()}
        return {key: session.next_sqn for key, session in self._sessions.items()} | state

    @plain_errors()
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Return the partitions of a micro-batch. Raises `DataLoss`."""
        firsts, ends = StreamOffsets.of_json(start).sqns, StreamOffsets.of_json(end).sqns
        ends = {key: sqn for key, sqn in ends.items() if key in firsts and sqn > firsts[key]}
        sessions = self._survey()
        retry = RetrySchedule(self._options.retry_s)
        if _lacking(ends, sessions):
            sessions = self._survey(is_fresh=True)
        while _lacking(ends, sessions) and self._down and retry.wait():
            sessions = self._survey(is_fresh=True)
        lacking = _lacking(ends, sessions)
        spans = []
        for key, sqn in ends.items():
            if key in sessions and not (key in lacking and self._down):
                spans.append(SessionSpan(sessions[key], firsts[key], sqn))
            else:
                self._handle_gone(key, firsts[key], f"the sqns {firsts[key]} to {sqn - 1} are missing")
        return list(pieces_of(spans, self._options))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a partition."""
        if isinstance(partition, RangePiece):
            with plain_errors(), early_end():
                yield from _batches(partition, self._options)

    def stop(self) -> None:
        """End with the query."""
        end_quietly()

    def _without_gone(self, start: StreamOffsets, sessions: Mapping[str, ArchivedSession]) -> StreamOffsets:
        """Return the offsets with the sessions no longer held as ended. Each must have been read to its end.

        While a service is away, all offsets stay: it may hold the others.
        """
        if self._down:
            return start
        gone = sorted(start.sqns.keys() - sessions.keys() - set(start.ended))
        for key in gone:
            sqn = start.sqns[key]
            self._handle_gone(key, sqn, f"it was read up to sqn {sqn}, and more rows may have followed")
        return start.ending(gone).without_oldest(sessions)

    def _handle_gone(self, key: str, sqn: int, detail: str) -> None:
        """Handle a session that no service holds any longer. Raises `RecorderDown`, `DataLoss`."""
        if self._down:
            raise RecorderDown(
                f"session {key} is not held up to the wanted sqn by any service that answers: {'; '.join(self._down.values())}",
                remedy="restart it (pgm serve), or leave it out of recorders",
            )
        if self._options.fail_on_loss:
            raise DataLoss(
                f"session {key} is no longer held: {detail}",
                remedy="restore it, keep more (record_bytes, record_secs), or continue without it: failOnDataLoss = false",
            )
        _log.warning("session %s is no longer held: %s", key, detail)
