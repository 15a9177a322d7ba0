"""Publishing rows: executors put attempts at a range service, the driver names those that count, and the service publishes a batch once."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Iterator
from typing import Any

import attrs
import pyarrow as pa
import pyarrow.flight as flight
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import BinaryType, StringType, StructType

from pgm.archive.requests import ACTION_DISCARD, ACTION_PUBLISH
from pgm.spark.errors import BadOption, PublishFailed, RecorderDown, RecorderRefused
from pgm.spark.options import SourceOptions
from pgm.spark.recorders import RetrySchedule, call_options, client_of, told_by

_SCHEMA = pa.schema([("value", pa.binary())])
_WRITE_S = 3600.0  # that a partition or a batch may take to be taken


class StagedBatch(WriterCommitMessage):
    """What a task has put. Its query's id names the writer, which stays the same over restarts from the checkpoint."""

    def __init__(self, attempt: str, partition: int, rows: int, query: str) -> None:
        self.attempt = attempt
        self.partition = partition
        self.rows = rows
        self.query = query


@attrs.define(eq=False)
class _Sink:
    """What batches and streams have in common."""

    options: SourceOptions

    @property
    def location(self) -> str:
        return self.options.locations[0]

    def put(self, batches: Iterator[pa.RecordBatch]) -> StagedBatch:
        """Put the rows of one task as an attempt of its own. Raises `PublishFailed`."""
        context = TaskContext.get()
        attempt = uuid.uuid4().hex
        rows = self._put(attempt, batches)
        query = context.getLocalProperty("sql.streaming.queryId") if context is not None else None
        return StagedBatch(attempt, context.partitionId() if context is not None else 0, rows, query or "")

    def _put(self, attempt: str, batches: Iterator[pa.RecordBatch]) -> int:
        putting: Any = None
        rows = 0
        try:
            for batch in batches:
                if not batch.num_rows:
                    continue
                if putting is None:
                    putting, _ = client_of(self.options, self.location).do_put(
                        flight.FlightDescriptor.for_command(json.dumps({"attempt": attempt}).encode()),
                        _SCHEMA,
                        call_options(self.options, _WRITE_S),
                    )
                putting.write_batch(
                    pa.RecordBatch.from_arrays([batch.column("value").cast(pa.binary())], schema=_SCHEMA)
                )
                rows += batch.num_rows
            if putting is not None:
                putting.close()
        except (pa.ArrowException, OSError) as error:
            told = told_by(self.location, error)
            raise PublishFailed(told.message, remedy=told.remedy) from None
        return rows

    def publish(self, messages: Iterable[WriterCommitMessage | None], writer: str, batch: int) -> None:
        """Publish what tasks have put, once. Raises `PublishFailed`."""
        staged = _in_order(messages)
        if not staged:
            return
        asked = {
            "writer": self.options.writer or writer or staged[0].query,
            "batch": batch,
            "stream": self.options.publish_stream,
            "attempts": [one.attempt for one in staged],
        }
        patience = RetrySchedule(self.options.retry_s)
        while True:
            try:
                self._act(ACTION_PUBLISH, asked)
                return
            except RecorderDown as error:
                if not patience.wait():
                    raise PublishFailed(error.message, remedy=error.remedy) from None
            except RecorderRefused as error:
                raise PublishFailed(error.message, remedy=error.remedy) from None

    def discard(self, messages: Iterable[WriterCommitMessage | None]) -> None:
        """Forget what tasks have put; where that fails, the service forgets it by itself in time."""
        names = [one.attempt for one in _in_order(messages)]
        try:
            self._act(ACTION_DISCARD, {"attempts": names})
        except (RecorderDown, RecorderRefused):
            return

    def _act(self, action: str, asked: dict[str, Any]) -> None:
        try:
            body = json.dumps(asked).encode()
            client = client_of(self.options, self.location)
            list(client.do_action(flight.Action(action, body), call_options(self.options, _WRITE_S)))
        except (pa.ArrowException, OSError) as error:
            raise told_by(self.location, error) from None


def _in_order(messages: Iterable[WriterCommitMessage | None]) -> list[StagedBatch]:
    staged = [one for one in messages if isinstance(one, StagedBatch) and one.rows]
    return sorted(staged, key=lambda one: one.partition)


def _sink(options: SourceOptions, schema: StructType) -> _Sink:
    if len(options.locations) != 1:
        raise BadOption("rows are published by one range service", remedy="name one in recorders")
    names = schema.fieldNames()
    if names != ["value"] or not isinstance(schema["value"].dataType, (BinaryType, StringType)):
        raise BadOption(
            f"rows to be published have one column, value, binary or text; these have {', '.join(names)}",
            remedy='choose it: df.select("value"), without losses: where("lost IS NULL")',
        )
    return _Sink(options)


class StreamWriter(DataSourceStreamArrowWriter):
    """Publishes micro-batches, each once."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._sink = _sink(options, schema)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedBatch:
        """Put the rows of a task."""
        return self._sink.put(iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  # Spark's name
        """Publish the micro-batch, unless it was published before."""
        self._sink.publish(messages, "", batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Forget it."""
        self._sink.discard(messages)


class BatchWriter(DataSourceArrowWriter):
    """Publishes a batch once; run again, it is another one."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._sink = _sink(options, schema)
        self._writer = f"batch-{uuid.uuid4().hex}"

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedBatch:
        """Put the rows of a task."""
        return self._sink.put(iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Publish them."""
        self._sink.publish(messages, self._writer, 0)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Forget them."""
        self._sink.discard(messages)
