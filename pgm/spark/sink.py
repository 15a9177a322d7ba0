"""Publication through a range service: executors put attempts, the driver names the valid ones."""

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
from pgm.errors import UsageError
from pgm.messages.typed.fields import NAMES
from pgm.spark.errors import BadOption, PublishFailed, RecorderDown, RecorderRefused
from pgm.spark.options import SourceOptions
from pgm.spark.recorders import RetrySchedule, call_options, client_of, error_from, explained

_VALUE = "value"
_WRITE_S = 3600.0  # time limit of a partition or a batch


@attrs.frozen
class StagedBatch(WriterCommitMessage):
    """Attempt of a task. The query's id names the writer. The id stays the same over restarts from the checkpoint."""

    attempt: str
    partition: int
    rows: int
    query: str


@attrs.define(eq=False)
class _Publisher:
    """Common part of batches and streams."""

    options: SourceOptions
    schema: pa.Schema  # of the rows that are put

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
        put_stream: Any = None
        rows = 0
        try:
            for batch in batches:
                if not batch.num_rows:
                    continue
                if put_stream is None:
                    command: dict[str, Any] = {"attempt": attempt}
                    if self.schema.names != [_VALUE]:  # an earlier service would lose the others, and refuses this key
                        command["columns"] = self.schema.names
                    put_stream, _ = client_of(self.options, self.location).do_put(
                        flight.FlightDescriptor.for_command(json.dumps(command).encode()),
                        self.schema,
                        call_options(self.options, _WRITE_S),
                    )
                put = self._rows_of(batch)
                put_stream.write_table(put)
                rows += len(put)
            if put_stream is not None:
                put_stream.close()
        except (pa.ArrowException, OSError) as error:
            raise self._failure(error_from(self.location, error)) from None
        return rows

    def _rows_of(self, batch: pa.RecordBatch) -> pa.Table:
        """Return the rows to put. Raises `PublishFailed` for a value that its codec does not know."""
        if self.options.encoded is None:
            return pa.Table.from_batches([batch.select(self.schema.names)]).cast(self.schema)
        from pgm.messages.typed.encoder import encoded_rows  # executors need its packages only here

        try:
            return encoded_rows(batch, self.options.encoded).select(self.schema.names).cast(self.schema)
        except UsageError as error:
            raise PublishFailed(f"option encode: {error.message}", remedy=error.remedy) from None

    def publish(self, messages: Iterable[WriterCommitMessage | None], writer: str, batch: int) -> None:
        """Publish the attempts of all tasks, once. Raises `PublishFailed`."""
        staged = _in_order(messages)
        if not staged:
            return
        request = {
            "writer": self.options.writer or writer or staged[0].query,
            "batch": batch,
            "stream": self.options.publish_stream,
            "attempts": [message.attempt for message in staged],
        }
        retry = RetrySchedule(self.options.retry_s)
        while True:
            try:
                self._act(ACTION_PUBLISH, request)
                return
            except RecorderDown as error:
                if not retry.wait():
                    raise self._failure(error) from None
            except RecorderRefused as error:
                raise self._failure(error) from None

    def _failure(self, error: RecorderDown | RecorderRefused) -> PublishFailed:
        if isinstance(error, RecorderDown):
            error = explained(self.options, self.location, error)
        return PublishFailed(error.message, remedy=error.remedy)

    def discard(self, messages: Iterable[WriterCommitMessage | None]) -> None:
        """Discard the attempts of all tasks. If the call fails, the service drops the attempts after a while."""
        names = [message.attempt for message in _in_order(messages)]
        try:
            self._act(ACTION_DISCARD, {"attempts": names})
        except (RecorderDown, RecorderRefused):
            return

    def _act(self, action: str, request: dict[str, Any]) -> None:
        try:
            body = json.dumps(request).encode()
            client = client_of(self.options, self.location)
            list(client.do_action(flight.Action(action, body), call_options(self.options, _WRITE_S)))
        except (pa.ArrowException, OSError) as error:
            raise error_from(self.location, error) from None


def _in_order(messages: Iterable[WriterCommitMessage | None]) -> list[StagedBatch]:
    staged = [message for message in messages if isinstance(message, StagedBatch) and message.rows]
    return sorted(staged, key=lambda message: message.partition)


def _publisher(options: SourceOptions, schema: StructType) -> _Publisher:
    if len(options.locations) != 1:
        raise BadOption("rows are published by one range service", remedy="give one address in recorders")
    names = schema.fieldNames()
    given = [name for name in NAMES if name in names]
    others = [name for name in names if name not in given]
    is_value = others == [_VALUE] and isinstance(schema[_VALUE].dataType, (BinaryType, StringType))
    if not (is_value if options.encoded is None else others):
        raise BadOption(
            f"rows to be published have the column value, binary or text, and may have subject and to; these have {', '.join(names)}",
            remedy='select them: df.select("value", "subject"), without losses: where("lost IS NULL"). Or make values of all other '
            'columns: option("encode", "cbor")',
        )
    for name in given:
        if not isinstance(schema[name].dataType, StringType):
            raise BadOption(
                f"the column {name} is {schema[name].dataType.simpleString()}, no text",
                remedy=f"cast it: {name} is text, or null for none",
            )
    return _Publisher(options, pa.schema([(_VALUE, pa.binary()), *((name, pa.string()) for name in given)]))


class StreamWriter(DataSourceStreamArrowWriter):
    """Writer of micro-batches, each published once."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._publisher = _publisher(options, schema)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedBatch:
        """Put the rows of a task."""
        return self._publisher.put(iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  # Spark's name
        """Publish the micro-batch, unless it was published before."""
        self._publisher.publish(messages, "", batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Discard the micro-batch."""
        self._publisher.discard(messages)


class BatchWriter(DataSourceArrowWriter):
    """Writer of a batch that is published once. Another run of the query publishes another batch."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._publisher = _publisher(options, schema)
        self._writer = f"batch-{uuid.uuid4().hex}"

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedBatch:
        """Put the rows of a task."""
        return self._publisher.put(iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Publish the batch."""
        self._publisher.publish(messages, self._writer, 0)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Discard the batch."""
        self._publisher.discard(messages)
