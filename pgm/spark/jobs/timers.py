"""Timers that fire too early or too late, judged by what the answers took.

`nak_rpt_ivl` fires too early when the NCF was on its way: then the answer to the repeat comes sooner than any answer can. It
fires too late when it is far longer than nearly all answers take, so that a lost NAK costs more than it must.
`nak_rdata_ivl` fires too early when RDATA comes while the next NAK is being prepared. `nak_bo_ivl` is too short when
several receivers of a segment ask for the same, and too long when nobody does and the back-off is most of the wait.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  # as everybody calls it

from pgm.spark.jobs.events import of_kind
from pgm.spark.jobs.repairs import duplicates, latency_step, latency_us

_EARLY_SHARE = 0.1  # of what a timer started in vain: more is too early
_LATE_TIMES = 4.0  # as long as 99 % of the answers take: more is too late
_CROWDED = 1.5  # requests for the same packet on a segment: more means too short a back-off
_ALONE = 1.05
_LONG_BACK_OFF = 10.0  # round trips


def timers(events: DataFrame, doubled: DataFrame | None = None) -> DataFrame:
    """A row for each timer and segment: segment, role, timer, set_ms, answers_p50_ms, answers_p99_ms, fired, early, verdict.

    Times of answers are two per cent apart. `fired` is how often it ran out; `early` how often that was needless: for `nak_bo_ivl` requests per packet.
    `doubled` is what `duplicates` gave for these events, if that is at hand.
    """
    configured, measured = _configured(events), _measured(events).localCheckpoint()  # few rows, read twice
    waits = configured.join(measured, ["segment", "role", "timer"])
    early = F.try_divide(F.col("early"), F.col("fired"))
    is_late = (F.col("fired") > 0) & (F.col("set_ms") > _LATE_TIMES * F.col("answers_p99_ms"))
    verdict = _verdict(early > _EARLY_SHARE, is_late)
    judged = waits.withColumn("early", early).withColumn("verdict", verdict)
    return judged.unionByName(
        _back_offs(configured, measured, duplicates(events) if doubled is None else doubled)
    ).orderBy("segment", "role", "timer")


def _verdict(is_early: Column, is_late: Column) -> Column:
    return F.when(is_early, "too early").when(is_late, "too late").otherwise("fits")


def _configured(events: DataFrame) -> DataFrame:
    """What the nodes of a segment have set; the mean where they differ."""
    seats = of_kind(events, "address").where("cause != 'down'").select("node", "segment").distinct()
    rows = of_kind(events, "timer").select("node", "role", F.col("cause").alias("timer"), "value_us")
    joined = rows.join(F.broadcast(seats), "node")
    return joined.groupBy("segment", "role", "timer").agg((F.avg("value_us") / 1000).alias("set_ms"))


def _measured(events: DataFrame) -> DataFrame:
    rows = of_kind(events, "confirmed", "repaired", "ncf_timeout", "rdata_timeout").where(
        "value_us IS NOT NULL AND role IN ('receiver', 'repairer')"
    )
    is_first = F.col("tries") == 0
    is_answer = F.col("kind").isin("confirmed", "repaired")
    timer = F.when(F.col("kind").isin("confirmed", "ncf_timeout"), "nak_rpt_ivl").otherwise("nak_rdata_ivl")
    keys = ["segment", "role", "timer"]
    # One pass to a histogram, of which the rest is made: sketches of quantiles take five times as long.
    counted = rows.groupBy(
        "segment",
        "role",
        timer.alias("timer"),
        is_answer.alias("is_answer"),
        is_first.alias("is_first"),
        (F.col("kind") == "confirmed").alias("is_confirmed"),
        (F.col("cause") == "BACK_OFF").alias("is_backing_off"),
        latency_step().alias("step"),
    ).agg(F.count("kind").alias("events"))
    histogram = counted.localCheckpoint()
    value = latency_us(F.col("step"))
    shares = F.array(F.lit(0.01), F.lit(0.5), F.lit(0.99))
    quantiles = histogram.groupBy(*keys).agg(
        F.percentile(F.when(F.col("is_answer") & F.col("is_first"), value), shares, F.col("events")).alias("q")
    )
    came_anyway = F.col("is_confirmed") & ~F.col("is_first") & (value < F.col("q")[0])
    overtaken = F.col("is_answer") & ~F.col("is_confirmed") & ~F.col("is_first") & F.col("is_backing_off")
    return (
        histogram.join(F.broadcast(quantiles), keys)
        .groupBy(*keys)
        .agg(
            (F.first("q")[1] / 1000).alias("answers_p50_ms"),
            (F.first("q")[2] / 1000).alias("answers_p99_ms"),
            _events_where(~F.col("is_answer")).alias("fired"),
            _events_where(came_anyway | overtaken).alias("early"),
        )
    )


def _events_where(condition: Column) -> Column:
    return F.coalesce(F.sum(F.when(condition, F.col("events"))), F.lit(0))


def _back_offs(configured: DataFrame, measured: DataFrame, doubled: DataFrame) -> DataFrame:
    """The back-off of receivers against how often the same was asked for."""
    asked = doubled.select("segment", F.col("asked").alias("fired"), F.col("asked_ratio").alias("early"))
    trips = measured.where("timer = 'nak_rpt_ivl' AND role = 'receiver'")
    table = (
        configured.where("timer = 'nak_bo_ivl' AND role = 'receiver'")
        .join(asked, "segment")
        .join(trips.select("segment", "answers_p50_ms", "answers_p99_ms"), "segment")
    )
    is_long = (F.col("early") < _ALONE) & (F.col("set_ms") > _LONG_BACK_OFF * F.col("answers_p50_ms"))
    columns = ["segment", "role", "timer", "set_ms", "answers_p50_ms", "answers_p99_ms", "fired", "early"]
    return table.select(*columns, _verdict(F.col("early") > _CROWDED, is_long).alias("verdict"))
