"""Tables of a fleet by minute, kept by one job: as a stream with a watermark, or as a batch with the same rows.

Spark collects the events of a minute, closes the minute by its watermark, and calls the figures of reports for it. So each
figure has one definition. Events that come too late are counted by node, in a table.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pgm.errors import UsageError
from pgm.figures.event_rows import rows_of
from pgm.figures.minutes import MINUTE_S, MINUTE_US, NO_LIMITS, TABLES, Limits, of_minute
from pgm.figures.rules import Summary
from pgm.figures.values import iso
from pgm.own_files import replace_synced, sync_folder
from pgm.telemetry.schema import COLUMNS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

LATE_S = 120  # a node writes a file each five seconds; agents may be away for a short time
CHECKPOINT = "_checkpoint"  # readers of Parquet folders skip names with an underscore
_OWNER = "_query.json"
_WHOLE, _STREAM = "batch", "stream"  # owners of tables
_USED = (
    "sent", "received", "repaired", "gave_up", "lost", "nak_in", "rdata_sent", "address", "overflow", "unread", "away", "back",
)  # fmt: skip
_TYPES = {"string": pa.string(), "int64": pa.int64(), "double": pa.float64()}
_SQL = {"string": "string", "int64": "bigint", "double": "double"}
_WIDE = {name: kind for columns in TABLES.values() for name, (kind, _) in columns.items()}
_SCHEMA = f"table string, minute timestamp, {', '.join(f'`{name}` {_SQL[kind]}' for name, kind in _WIDE.items())}"
_ARROW = pa.schema(
    [
        ("table", pa.string()),
        ("minute", pa.timestamp("us", "UTC")),
        *((name, _TYPES[kind]) for name, kind in _WIDE.items()),
    ]
)
_PACKED = {"packed": "true", "kinds": ",".join(_USED)}


def minute_rows(events: DataFrame, limits: Limits = NO_LIMITS, *, late_s: int = LATE_S) -> DataFrame:
    """Return the rows of all tables, for packed events of the format "pgm_fleet", batch or stream.

    `late_s` is the time for which a minute waits for its events after the newest one. Column `table` names the table.
    """
    from pyspark.sql import functions as F  # noqa: N812  # the usual name; not needed to import pgm.spark

    width, late = F.expr(f"INTERVAL {MINUTE_S} SECONDS"), F.expr(f"INTERVAL {late_s} SECONDS")
    # The watermark is never later than this, so Spark itself drops nothing unseen.
    is_late = F.coalesce(F.col("minute") + width <= F.col("read_until") - late, F.lit(False))
    at = F.when(is_late, F.col("read_until")).otherwise(F.col("at"))  # in a minute that is open
    placed = events.select("events", is_late.alias("is_late"), at.alias("at")).withWatermark("at", f"{late_s} seconds")
    minutes = placed.groupBy(F.window("at", f"{MINUTE_S} seconds")).agg(
        F.collect_list(F.struct("events", "is_late")).alias("parts")
    )
    small = minutes.select(F.col("window.start").alias("minute"), "parts")
    return small.mapInArrow(lambda batches: _tables_of(batches, limits), _SCHEMA)


def _tables_of(batches: Iterator[pa.RecordBatch], limits: Limits) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for at in range(batch.num_rows):
            minute = batch.column("minute")[at].value
            events = pa.concat_tables([_part(part) for part in batch.column("parts")[at].values.to_pylist()])
            rows = [
                {"table": table, "minute": minute, **row}
                for table, found in _of_events(events, limits).items()
                for row in found
            ]
            if rows:
                yield pa.RecordBatch.from_pylist(rows, schema=_ARROW)


def _part(part: Mapping[str, Any]) -> pa.Table:
    events = pa.ipc.open_stream(part["events"]).read_all()
    return events.append_column("is_late", pa.repeat(part["is_late"], events.num_rows))


def _of_events(events: pa.Table, limits: Limits) -> dict[str, list[Summary]]:
    """Return the rows of a minute's tables, in an order that does not depend on that of the events."""
    is_late = events.column("is_late")
    on_time = events.filter(pc.invert(is_late)).select(list(COLUMNS))
    for at, (name, (kind, _)) in enumerate(COLUMNS.items()):
        if kind == "string":
            on_time = on_time.set_column(at, name, on_time.column(name).combine_chunks().dictionary_encode())
    rows = rows_of(on_time)
    tables = of_minute(rows, limits)
    tables["nodes"] = _nodes(events)
    tables["agents"] = [
        {"at": iso(row["time"].value), "agent": row["peer"].as_py(), "state": row["kind"].as_py(), "cause": row["cause"].as_py()}
        for row in _scalars(on_time.filter(pc.is_in(on_time.column("kind").cast(pa.string()), pa.array(["away", "back"]))))
    ]  # fmt: skip
    return {table: sorted(found, key=lambda row: [str(value) for value in row.values()]) for table, found in tables.items()}  # fmt: skip


def _scalars(table: pa.Table) -> Iterator[dict[str, Any]]:
    for at in range(table.num_rows):
        yield {name: table.column(name)[at] for name in table.column_names}


def _nodes(events: pa.Table) -> list[Summary]:
    kind, count = events.column("kind"), events.column("count").cast(pa.int64())
    is_late, nothing = events.column("is_late"), pa.scalar(0, pa.int64())

    def of(name: str) -> pa.ChunkedArray:
        return pc.if_else(pc.and_(pc.equal(kind, name), pc.invert(is_late)), count, nothing)

    is_event = pc.and_(pc.invert(is_late), pc.invert(pc.is_in(kind, pa.array(["unread", "away", "back"]))))
    table = pa.table(
        {
            "node": events.column("node"),
            "role": events.column("role"),
            "events": is_event.cast(pa.int64()),
            "overflow": of("overflow"),
            "unread": of("unread"),
            "late": is_late.cast(pa.int64()),
        }
    )
    sums = [(name, "sum") for name in ("events", "overflow", "unread", "late")]
    found: list[Summary] = table.group_by(["node", "role"]).aggregate(sums).to_pylist()
    rows = [{name.removesuffix("_sum"): value for name, value in row.items()} for row in found if row["node"]]
    return [{name: row[name] for name in TABLES["nodes"]} for row in rows]


@attrs.frozen
class TableFolder:
    """Folder of tables: `TABLE/day=2026-11-26/NAME.parquet`. A name stands for one micro-batch, which may be repeated."""

    folder: Path

    def claim(self, owner: str) -> None:
        """Take the folder for a query. Raises `UsageError` if another one has written it."""
        self.folder.mkdir(parents=True, exist_ok=True)
        file = self.folder / _OWNER
        known = json.loads(file.read_text())["query"] if file.exists() else owner
        if known != owner:
            raise UsageError(
                f"{self.folder} has the tables of another job ({known})",
                remedy="choose an empty folder, or remove this one with its _checkpoint",
            )
        self.put(_OWNER, json.dumps({"query": owner}).encode())

    def write(self, name: str, rows: pa.Table) -> None:
        """Write the rows of all tables. The same name replaces what it had written before."""
        days = pc.strftime(rows.column("minute"), "%Y-%m-%d")
        for table, columns in TABLES.items():
            is_own = pc.equal(rows.column("table"), table)
            for day in pc.unique(days.filter(is_own)).to_pylist():
                own = rows.filter(pc.and_(is_own, pc.equal(days, day))).select(["minute", *columns])
                folder = self.folder / table / f"day={day}"
                if not folder.exists():
                    folder.mkdir(parents=True)
                    sync_folder(folder.parent)
                    sync_folder(self.folder)
                sink = pa.BufferOutputStream()
                pq.write_table(own.sort_by([("minute", "ascending"), (next(iter(columns)), "ascending")]), sink)
                # The query's checkpoint says next that the rows are there.
                replace_synced(folder / f"{name}.parquet", sink.getvalue().to_pybytes())

    def put(self, name: str, octets: bytes) -> None:
        """Write a file beside the tables, at once for all readers."""
        replace_synced(self.folder / name, octets)

    def files(self, table: str) -> list[Path]:
        """Return the files of a table, the earliest first."""
        return sorted((self.folder / table).glob("day=*/*.parquet"))

    def read(self, table: str, columns: Sequence[str]) -> pa.Table:
        """Return columns of a table, with no rows if there is none yet."""
        files = self.files(table)
        schema = pa.schema([(name, _ARROW.field(name).type) for name in columns])
        tables = [pq.read_table(file, columns=list(columns), partitioning=None).cast(schema) for file in files]
        return pa.concat_tables(tables) if tables else schema.empty_table()


def fleet_tables(
    spark: SparkSession,
    where: Mapping[str, str],
    folder: str | Path,
    *,
    limits: Limits = NO_LIMITS,
    late_s: int = LATE_S,
    on_batch: Callable[[TableFolder], object] = lambda _: None,
) -> StreamingQuery:
    """Start a query that keeps the tables of a fleet in `folder`, with its checkpoint there. Return the query.

    `where` has options of the format "pgm_fleet", and perhaps `trigger`: seconds between micro-batches, or `now` to end with
    the present events. A query that is started again continues, and each event counts once. `on_batch` is called in this
    process after each micro-batch. `spark` is a session of `pgm.spark.register`. Raises `UsageError` if another job has
    written the folder.
    """
    options = {key: value for key, value in where.items() if key != "trigger"}
    rows = minute_rows(spark.readStream.format("pgm_fleet").options(**options, **_PACKED).load(), limits, late_s=late_s)
    tables = TableFolder(Path(folder))
    checkpoint = tables.folder / CHECKPOINT
    tables.claim(_STREAM)
    if tables.files("nodes") and not checkpoint.exists():
        raise UsageError(
            f"{tables.folder} has tables without the checkpoint of their job, which would write all rows again",
            remedy="choose an empty folder, or restore _checkpoint",
        )

    def keep(found: DataFrame, number: int) -> None:
        tables.write(f"part-{number:09}", found.toArrow())
        on_batch(tables)

    trigger = where.get("trigger", "10")
    writer = rows.writeStream.option("checkpointLocation", str(checkpoint)).foreachBatch(keep)
    timed = (
        writer.trigger(availableNow=True) if trigger == "now" else writer.trigger(processingTime=f"{trigger} seconds")
    )
    return timed.start()


def fleet_tables_once(
    spark: SparkSession,
    where: Mapping[str, str],
    folder: str | Path,
    *,
    limits: Limits = NO_LIMITS,
    late_s: int = LATE_S,
) -> TableFolder:
    """Write the tables of all present events in one batch: the rows that the query would write.

    Minutes that such a query would still hold open are left out. Raises `UsageError` if a query has written the folder.
    """
    from pyspark.sql import functions as F  # noqa: N812

    tables = TableFolder(Path(folder))
    tables.claim(_WHOLE)
    events = spark.read.format("pgm_fleet").options(**dict(where), **_PACKED).load()
    newest = events.agg(F.max("at")).collect()[0][0]
    rows = minute_rows(events, limits, late_s=late_s).toArrow()
    if newest is not None:
        end_us = round(newest.astimezone(datetime.UTC).timestamp() * 1e6) - late_s * 1_000_000
        is_closed = np.asarray(rows.column("minute").cast(pa.int64())) + MINUTE_US <= end_us
        rows = rows.filter(pa.array(is_closed))
    tables.write("part-batch", rows)
    return tables
