"""All jobs over a folder of telemetry, as one plain value for `pgm report` and `pgm tune`."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import Any

from pyspark import StorageLevel
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  # the usual name

from pgm.deprecated import KEYS, with_former_names
from pgm.errors import UsageError
from pgm.impairments import Impairment
from pgm.spark.jobs import losses, repairs, timers
from pgm.spark.jobs.gilbert_elliott import gilbert_elliott
from pgm.units import MILLISECOND

Summary = dict[str, Any]  # value that json.dumps accepts
_MAX_BURST_LENGTHS = 64
_MAX_EXCESS_ROWS = 100
_WINDOWS = 120  # of a timeline, at most
_MIN_WINDOW_S = 1


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
            raise UsageError(
                f"the Parquet files in {name} hold no events",
                remedy="wait one telemetry_ivl until nodes have written events, or choose another folder",
            )
        window_s = max(_MIN_WINDOW_S, round((span[2] - span[1]).total_seconds() / _WINDOWS))
        summary: Summary = {
            "events": span[0],
            "begins": span[1].replace(tzinfo=datetime.UTC).isoformat(),
            "ends": span[2].replace(tzinfo=datetime.UTC).isoformat(),
            "nodes": span[3],
            "window_s": window_s,
        }
        progress("links")
        counted = losses.pairs(losses.runs(losses.attributed(events)), "length").localCheckpoint()
        summary["links"] = [_link(row) for row in rows_of(losses.links(events, counted))]
        progress("bursts")
        lengths = counted.where(F.col("length") <= _MAX_BURST_LENGTHS).groupBy("length")
        summary["burst_lengths"] = rows_of(lengths.agg(F.sum("bursts").alias("bursts")).orderBy("length"))
        longer = counted.where(F.col("length") > _MAX_BURST_LENGTHS)
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
        summary["excess_naks"] = rows_of(repairs.excess_naks(events).limit(_MAX_EXCESS_ROWS))
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
    return value.replace(tzinfo=datetime.UTC).isoformat() if isinstance(value, datetime.datetime) else value


def _link(row: Summary) -> Summary:
    pairs = {lag: int(row.pop(f"pairs_{lag}")) for lag in losses.LAGS}
    model = gilbert_elliott(int(row["packets"]), int(row["lost"]), pairs)
    return {**row, "model": {"loss": model.loss, "burst_loss": model.burst_loss, "burst_length": model.burst_length}}


def models(summary: Summary) -> dict[tuple[str, str], Impairment]:
    """Return the model fitted to each link into a node, by segment and node."""
    return {
        (row["segment"], row["node"]): Impairment(**row["model"]) for row in summary["links"] if row["node"] is not None
    }


def measured(events: DataFrame) -> tuple[dict[tuple[str, str], Impairment], dict[str, int]]:
    """Return the measured input of a simulation.

    The first value is the loss of each link into a node, by segment and node. The second is the round trip to the
    answering node, in ns by segment.
    """
    links = [_link(row) for row in rows_of(losses.links(events))]
    trips: dict[str, int] = {}
    for row in rows_of(timers.timers(events)):
        if row["timer"] == "nak_rpt_ivl" and row["answers_p50_ms"] is not None:
            trip = round(row["answers_p50_ms"] * MILLISECOND)
            trips[row["segment"]] = min(trip, trips.get(row["segment"], trip))
    return models({"links": links}), trips
