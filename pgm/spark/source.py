"""The data source "pgm": batches and streams of an archive's rows, and publishing. docs/guide/spark.md describes its use.

Spark makes readers in processes of their own and pickles them into others, so they hold options and nothing that lives.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, MutableMapping

import attrs
import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    DataSourceWriter,
    InputPartition,
)
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from pgm.archive.store.schema import SCHEMA, served_schema
from pgm.spark.errors import BadOption, DataLoss, RecorderDown
from pgm.spark.offsets import advanced, spans_of, starts_of
from pgm.spark.options import READ, WRITE, SourceOptions, read_options
from pgm.spark.ranges import RangePiece, RangeReader, SessionSpan, pieces_of
from pgm.spark.recorders import survey
from pgm.spark.sessions import ArchivedSession, sessions_of
from pgm.spark.sink import BatchWriter, StreamWriter

_log = logging.getLogger("pgm.spark")
_POLL_S = 0.05  # Spark asks for new offsets every few milliseconds


class PgmDataSource(DataSource):
    """What Spark calls by the format "pgm"."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        self.options = dict(options.items())

    @classmethod
    def name(cls) -> str:
        """Of the format."""
        return "pgm"

    def schema(self) -> StructType:
        """The columns chosen, with the types of the archive's rows. Raises `BadOption`."""
        found: StructType = from_arrow_schema(served_schema(read_options(self.options, READ).columns))
        return found

    def _reading(self, schema: StructType) -> SourceOptions:
        return attrs.evolve(read_options(self.options, READ), columns=_columns_of(schema))

    def reader(self, schema: StructType) -> DataSourceReader:
        """Of a batch."""
        return PgmReader(self._reading(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802  # Spark's name
        """Of a stream."""
        return PgmStreamReader(self._reading(schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Publishes once."""
        return BatchWriter(read_options(self.options, WRITE), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:  # noqa: N802
        """Publishes micro-batches."""
        return StreamWriter(read_options(self.options, WRITE), schema)


def _columns_of(schema: StructType) -> tuple[str, ...]:
    """The columns of a schema, which may be one that the user gave. Raises `BadOption`."""
    known = {field.name: field.dataType for field in from_arrow_schema(SCHEMA).fields}
    for field in schema.fields:
        if known.get(field.name) != field.dataType:
            told = f"is {known[field.name].simpleString()}" if field.name in known else "does not exist"
            raise BadOption(
                f"the schema has a column {field.name} {field.dataType.simpleString()}, which {told} in an archive's rows",
                remedy="leave the schema out and choose with the option columns",
            )
    return tuple(schema.fieldNames())


class PgmReader(DataSourceReader):
    """Reads what there is."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options

    def partitions(self) -> list[InputPartition]:
        """What to read, cut for the executors. Raises `BadOption`, `DataLoss`, `NoReplicas`, `RecorderDown`, `RecorderRefused`."""
        sessions = sessions_of(survey(self._options), self._options)
        return list(pieces_of(spans_of(sessions, self._options), self._options))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a partition; of none, nothing."""
        if isinstance(partition, RangePiece):
            yield from RangeReader(partition, self._options).batches()


class PgmStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads what comes. Offsets are `{key: next sqn}`; see `pgm.spark.sessions` for keys."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._sessions: dict[str, ArchivedSession] = {}
        self._down: dict[str, str] = {}
        self._asked_at = 0.0
        self._targets: dict[str, int] | None = None
        self._ended: dict[str, int] = {}  # where sessions ended that were seen to end

    def _look(self, *, is_fresh: bool = False) -> dict[str, ArchivedSession]:
        now = time.monotonic()
        if is_fresh or not self._asked_at or now - self._asked_at > _POLL_S:
            found = survey(self._options)
            before, self._sessions = self._sessions, sessions_of(found, self._options)
            self._down = found.down
            self._ended.update({key: one.next_sqn for key, one in before.items() if one.closed})
            self._asked_at = time.monotonic()
        return self._sessions

    def initialOffset(self) -> dict[str, int]:  # noqa: N802  # Spark's name, as below
        """Where a new query begins."""
        return dict(sorted(starts_of(self._look(is_fresh=True), self._options).items()))

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """maxOffsetsPerTrigger."""
        most = self._options.most_offsets
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Remember what there is now: the query ends there."""
        self._targets = {key: one.next_sqn for key, one in self._look(is_fresh=True).items()}

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802
        """Where the next micro-batch ends."""
        sessions = self._look()
        kept = self._without_gone(start, sessions)
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        return advanced(kept, sessions, most, self._targets)

    def reportLatestOffset(self) -> dict[str, int]:  # noqa: N802
        """What there is, for those who watch."""
        return {key: one.next_sqn for key, one in self._sessions.items()}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        """What a micro-batch reads, cut for the executors. Raises `DataLoss`."""
        sessions = self._look()
        wanted = {key: sqn for key, sqn in end.items() if key in start and sqn > start[key]}
        if any(key not in sessions or sessions[key].next_sqn < sqn for key, sqn in wanted.items()):
            sessions = self._look(is_fresh=True)
        spans = []
        for key, sqn in wanted.items():
            if key in sessions:
                spans.append(SessionSpan(sessions[key], start[key], sqn))
            else:
                self._gone(key, start[key], f"the sqns {start[key]} to {sqn - 1} were asked for")
        return list(pieces_of(spans, self._options))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a partition."""
        if isinstance(partition, RangePiece):
            yield from RangeReader(partition, self._options).batches()

    def _without_gone(self, start: Mapping[str, int], sessions: Mapping[str, ArchivedSession]) -> dict[str, int]:
        """The offsets of sessions that are still held; of those that are not, everything must have been read."""
        kept = dict(start)
        for key, sqn in start.items():
            if key in sessions or self._ended.get(key) == sqn:
                if key not in sessions:
                    del kept[key]
            elif not self._down:
                self._gone(key, sqn, f"it was read up to sqn {sqn}, and nothing tells whether more followed")
                del kept[key]
        return kept

    def _gone(self, key: str, sqn: int, what: str) -> None:
        """A session that nobody holds any longer. Raises `RecorderDown`, `DataLoss`."""
        if self._down:
            raise RecorderDown(
                f"session {key} is held by nobody who answers: {'; '.join(self._down.values())}",
                remedy="start it again (pgm serve)",
            )
        if self._options.fail_on_loss:
            raise DataLoss(
                f"session {key} is held no longer: {what}",
                remedy="restore it, keep more (record_bytes, record_secs), or go on without it: failOnDataLoss = false",
            )
        _log.warning("session %s is held no longer: %s", key, what)
