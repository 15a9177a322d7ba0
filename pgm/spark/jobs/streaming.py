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
