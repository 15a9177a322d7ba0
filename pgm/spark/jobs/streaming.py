"""Jobs over a stream of events: windows by event time, closed by a watermark.

The input is the result of `read_stream`. Spark filters by the kind of an event before it reads the time. Only the kinds
of a job therefore move its watermark. A window closes after an event of these kinds that is `late` past the window's
end.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  # the usual name

from pgm.spark.jobs.events import by_sqn, of_kind
from pgm.spark.jobs.repairs import shares

WINDOW = "10 seconds"


def windowed_shares(stream: DataFrame, *, window: str = WINDOW) -> DataFrame:
    """Return `repairs.shares` for each segment and window: window (its start), segment, and those of `shares`."""
    table = shares(stream.withColumn("window", F.window("time", window)), "window", "segment")
    return table.withColumn("window", F.col("window.start"))


def windowed_latencies(stream: DataFrame, *, window: str = WINDOW) -> DataFrame:
    """Return repair latencies of receivers. Columns: window (its start), segment, repairs, p50_ms, p95_ms, p99_ms."""
    repaired = of_kind(stream, "repaired").where("value_us IS NOT NULL AND role = 'receiver'")
    quantiles = F.percentile_approx("value_us", F.array(F.lit(0.5), F.lit(0.95), F.lit(0.99)))
    table = repaired.groupBy(F.window("time", window).alias("window"), "segment").agg(
        F.count("kind").alias("repairs"), quantiles.alias("q")
    )
    picked = [(F.col("q")[index] / 1000).alias(name) for index, name in enumerate(("p50_ms", "p95_ms", "p99_ms"))]
    return table.select(F.col("window.start").alias("window"), "segment", "repairs", *picked)


def windowed_losses(stream: DataFrame, *, window: str = WINDOW) -> DataFrame:
    """Return the packets lacked on each segment, and by how many nodes.

    Columns: window (its start), segment, sqns, lacked, shared. `sqns` are distinct packets. `lacked` is the sum over
    packets of the nodes that lacked them. `shared` are the packets that more than one node lacked. The job aggregates
    twice: by packet, then by window.
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
