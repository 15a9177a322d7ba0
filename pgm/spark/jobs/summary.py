"""All jobs over a folder of telemetry, as one plain value for `pgm report`, `pgm tune` and `pgm plan`."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import Any

from pyspark import StorageLevel
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  # the usual name

from pgm.deprecated import KEYS, with_former_names
from pgm.figures.rules import MAX_BURST_LENGTHS, MAX_EXCESS_ROWS, Summary, link_row, timeline_window_s
from pgm.figures.summary import no_events
from pgm.spark.jobs import losses, repairs, timers


def summarise(
    events: DataFrame, *, name: str = "the folder", progress: Callable[[str], None] = lambda _: None
) -> Summary:
    """Return the results of all jobs over these events.

    `progress` receives the name of each job. Raises `UsageError` if there are no events; the error refers to them by
    `name`.
    """
    # Results that several jobs use are kept. The events are not, since each job reads only a few columns.
    doubled = repairs.duplicates(events).persist(StorageLevel.MEMORY_AND_DISK)
    try:
        progress("reading")
        span = events.agg(F.count("kind"), F.min("time"), F.max("time"), F.count_distinct("node")).collect()[0]
        if not span[0]:
            raise no_events(name)
        window_s = timeline_window_s((span[2] - span[1]).total_seconds())
        summary: Summary = {
            "events": span[0],
            "begins": _plain(span[1]),
            "ends": _plain(span[2]),
            "nodes": span[3],
            "window_s": window_s,
        }
        progress("links")
        counted = losses.pairs(losses.runs(losses.attributed(events)), "length").localCheckpoint()
        summary["links"] = [link_row(row) for row in rows_of(losses.links(events, counted))]
        progress("bursts")
        lengths = counted.where(F.col("length") <= MAX_BURST_LENGTHS).groupBy("length")
        summary["burst_lengths"] = rows_of(lengths.agg(F.sum("bursts").alias("bursts")).orderBy("length"))
        longer = counted.where(F.col("length") > MAX_BURST_LENGTHS)
        summary["longer_bursts"] = rows_of(
            longer.agg(
                F.coalesce(F.sum("bursts"), F.lit(0)).alias("bursts"),
                F.coalesce(F.sum(F.col("bursts") * F.col("length")), F.lit(0)).alias("packets"),
                F.coalesce(F.max("length"), F.lit(0)).alias("longest"),
            )
        )[0]
        progress("repairs")
        window = F.window("time", f"{window_s} seconds")["start"]
        parts = repairs.shares(events.withColumn("window", window), "window", "segment").localCheckpoint()
        waits = repairs.latency_histogram(events, "segment").localCheckpoint()
        summary["repairs"] = rows_of(repairs.quantiles_of(waits, "segment").orderBy("segment"))
        summary["repairs_of_all"] = next(iter(rows_of(repairs.quantiles_of(waits))), {})
        summary["shares"] = rows_of(repairs.shares_again(parts, "segment").orderBy("segment"))
        summary["duplicates"] = rows_of(doubled)
        progress("excessive NAKs and timers")
        summary["excess_naks"] = rows_of(repairs.excess_naks(events).limit(MAX_EXCESS_ROWS))
        summary["timers"] = rows_of(timers.timers(events, doubled))
        progress("traffic")
        summary["traffic"] = rows_of(repairs.traffic(events))
        summary["timeline"] = rows_of(repairs.shares_again(parts, "window").orderBy("window"))
        summary["left_out"] = rows_of(
            events.where("kind = 'overflow'").groupBy("node").agg(F.sum("count").alias("rows")).orderBy("node")
        )
        return with_former_names(summary, KEYS)
    finally:
        doubled.unpersist()


def rows_of(table: DataFrame) -> list[Summary]:
    """Return the rows of a small table as dictionaries, with times as text."""
    return [{key: _plain(value) for key, value in row.asDict().items()} for row in table.collect()]


def _plain(value: Any) -> Any:
    # Spark gives times in the zone of this process, without naming it.
    return value.astimezone(datetime.UTC).isoformat() if isinstance(value, datetime.datetime) else value
