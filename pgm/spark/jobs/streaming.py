"""The same questions while the events come: windows by event time, closed by a watermark. Give these what `read_stream` gives.

Spark looks at the kind of an event before it looks at its time, so it is the events that a job is about which move its
watermark: a window closes when something of that kind happened `late` after its end.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  # as everybody calls it

from pgm.spark.jobs.events import by_sqn, of_kind
from pgm.spark.jobs.repairs import shares

WINDOW = "10 seconds"


def windowed_shares(stream: DataFrame, *, window: str = WINDOW) -> DataFrame:
    """`repairs.shares` for each segment and window: window (its start), segment, and those columns."""
    table = shares(stream.withColumn("window", F.window("time", window)), "window", "segment")
    return table.withColumn("window", F.col("window.start"))


def windowed_latencies(stream: DataFrame, *, window: str = WINDOW) -> DataFrame:
    """Repair latencies of receivers: window (its start), segment, repairs, p50_ms, p95_ms, p99_ms."""
    repaired = of_kind(stream, "repaired").where("value_us IS NOT NULL AND role = 'receiver'")
    quantiles = F.percentile_approx("value_us", F.array(F.lit(0.5), F.lit(0.95), F.lit(0.99)))
    table = repaired.groupBy(F.window("time", window).alias("window"), "segment").agg(
        F.count("kind").alias("repairs"), quantiles.alias("q")
    )
    picked = [(F.col("q")[index] / 1000).alias(name) for index, name in enumerate(("p50_ms", "p95_ms", "p99_ms"))]
    return table.select(F.col("window.start").alias("window"), "segment", "repairs", *picked)


def windowed_losses(stream: DataFrame, *, window: str = WINDOW) -> DataFrame:
    """Packets lacked on each segment, by how many nodes: window (its start), segment, sqns, lacked, shared.

    `sqns` are different packets, `lacked` the nodes that lacked them added up, `shared` the packets that more than one lacked.
    Two aggregations in a row: by packet, then by window.
    """
    lacked = by_sqn(of_kind(stream, "repaired", "lost"))
    each = lacked.groupBy(F.window("time", window).alias("window"), "segment", "tsi", "sqn").agg(
        F.approx_count_distinct("node").alias("nodes")
    )
    table = each.groupBy(F.window("window", window).alias("window"), "segment").agg(
        F.count("sqn").alias("sqns"),
        F.sum("nodes").alias("lacked"),
        F.count(F.when(F.col("nodes") > 1, 1)).alias("shared"),
    )
    return table.withColumn("window", F.col("window.start"))
