"""Table of the recorded sessions, one row for each session of each recording: counts and limits from the index alone."""

from __future__ import annotations

from collections.abc import Iterator

import attrs
import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from pgm.archive.requests import SessionExtent
from pgm.spark.options import SourceOptions
from pgm.spark.recorders import survey

_TIME = pa.timestamp("us", tz="UTC")
_TIMES = {"epoch_us": "epoch", "first_received_us": "first_received", "last_received_us": "last_received"}
_TYPES = {"str": pa.string(), "str | None": pa.string(), "int": pa.int64(), "bool": pa.bool_()}
_NAMES = tuple(field.name for field in attrs.fields(SessionExtent))

SESSIONS_SCHEMA: pa.Schema = pa.schema(
    [
        (_TIMES[field.name], _TIME) if field.name in _TIMES else (field.name, _TYPES[str(field.type)])
        for field in attrs.fields(SessionExtent)
    ]
)


class SessionTableReader(DataSourceReader):
    """Reader of the sessions that are held when the query is planned."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options

    def partitions(self) -> list[InputPartition]:
        """Return one partition with the extents. Raises `RecorderDown`, `RecorderRefused`."""
        extents = {
            (one.holding.tsi, one.holding.epoch_us, one.holding.node): one.holding for one in survey(self._options).held
        }
        return [InputPartition(tuple(extents.values()))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows."""
        columns = [
            pa.array([getattr(extent, name) for extent in partition.value]).cast(column.type)
            for name, column in zip(_NAMES, SESSIONS_SCHEMA, strict=True)
        ]
        yield pa.RecordBatch.from_arrays(columns, schema=SESSIONS_SCHEMA)
