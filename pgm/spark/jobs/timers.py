"""Timers that fire too early or too late, judged by the times of the answers.

`nak_rpt_ivl` fires too early if the NCF was already on its way. The answer to the repeat then comes sooner than any
answer can. The timer fires too late if it far exceeds nearly all answer times, so that a lost NAK costs more time than
needed.

`nak_rdata_ivl` fires too early if RDATA arrives during the back-off of the next NAK. `nak_bo_ivl` is too short if
several receivers of a segment request the same packet. The back-off is too long if none does, and it is most of the
wait.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  # the usual name

from pgm.figures.rules import (
    ALONE,
    ANSWER_QUANTILES,
    ANSWERS,
    ASKERS,
    CROWDED,
    EARLY_SHARE,
    FIRINGS,
    LATE_TIMES,
    LONG_BACK_OFF,
    OF_REPETITION,
)
from pgm.spark.jobs.events import of_kind
from pgm.spark.jobs.repairs import duplicates, latency_step, latency_us


def timers(events: DataFrame, duplicate_requests: DataFrame | None = None) -> DataFrame:
    """Return a row for each timer and segment, with a verdict.

    Columns: segment, role, timer, set_ms, answers_p50_ms, answers_p99_ms, fired, early, verdict. Answer times are two
    per cent apart. `fired` counts the firings, `early` is the share of needless ones. For `nak_bo_ivl` they are
    requests, and requests per packet. `duplicate_requests` is the result of `duplicates` for these events, if it exists
    already.
    """
    configured, measured = _configured(events), _measured(events).localCheckpoint()  # few rows, read twice
    waits = configured.join(measured, ["segment", "role", "timer"])
    early = F.try_divide(F.col("early"), F.col("fired"))
    is_late = (F.col("fired") > 0) & (F.col("set_ms") > LATE_TIMES * F.col("answers_p99_ms"))
    verdict = _verdict(early > EARLY_SHARE, is_late)
    rated = waits.withColumn("verdict", verdict).withColumn("early", early)  # the verdict reads the count
    return rated.unionByName(
        _back_offs(configured, measured, duplicates(events) if duplicate_requests is None else duplicate_requests)
    ).orderBy("segment", "role", "timer")


def _verdict(is_early: Column, is_late: Column) -> Column:
    return F.when(is_early, "too early").when(is_late, "too late").otherwise("fits")


def _configured(events: DataFrame) -> DataFrame:
    """Return the configured values of a segment's nodes; the mean if they differ."""
    members = of_kind(events, "address").where("cause != 'down'").select("node", "segment").distinct()
    rows = of_kind(events, "timer").select("node", "role", F.col("cause").alias("timer"), "value_us")
    joined = rows.join(F.broadcast(members), "node")
    return joined.groupBy("segment", "role", "timer").agg((F.avg("value_us") / 1000).alias("set_ms"))


def _measured(events: DataFrame) -> DataFrame:
    rows = of_kind(events, *ANSWERS, *FIRINGS).where(F.col("value_us").isNotNull() & F.col("role").isin(*ASKERS))
    is_first = F.col("tries") == 0
    is_answer = F.col("kind").isin(*ANSWERS)
    timer = F.when(F.col("kind").isin(*OF_REPETITION), "nak_rpt_ivl").otherwise("nak_rdata_ivl")
    keys = ["segment", "role", "timer"]
    # One pass makes a histogram, and all results come from it: sketches of quantiles take far longer.
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
    shares = F.array(*(F.lit(share) for share in ANSWER_QUANTILES))
    quantiles = histogram.groupBy(*keys).agg(
        F.percentile(F.when(F.col("is_answer") & F.col("is_first"), value), shares, F.col("events")).alias("q")
    )
    was_on_the_way = F.col("is_confirmed") & ~F.col("is_first") & (value < F.col("q")[0])
    overtaken = F.col("is_answer") & ~F.col("is_confirmed") & ~F.col("is_first") & F.col("is_backing_off")
    return (
        histogram.join(F.broadcast(quantiles), keys)
        .groupBy(*keys)
        .agg(
            (F.first("q")[1] / 1000).alias("answers_p50_ms"),
            (F.first("q")[2] / 1000).alias("answers_p99_ms"),
            _events_where(~F.col("is_answer")).alias("fired"),
            _events_where(was_on_the_way | overtaken).alias("early"),
        )
    )


def _events_where(condition: Column) -> Column:
    return F.coalesce(F.sum(F.when(condition, F.col("events"))), F.lit(0))


def _back_offs(configured: DataFrame, measured: DataFrame, duplicate_requests: DataFrame) -> DataFrame:
    """Return the rows of receivers' back-offs, by how often packets were requested."""
    asked = duplicate_requests.select("segment", F.col("asked").alias("fired"), F.col("asked_ratio").alias("early"))
    trips = measured.where("timer = 'nak_rpt_ivl' AND role = 'receiver'")
    table = (
        configured.where("timer = 'nak_bo_ivl' AND role = 'receiver'")
        .join(asked, "segment")
        .join(trips.select("segment", "answers_p50_ms", "answers_p99_ms"), "segment")
    )
    is_long = (F.col("early") < ALONE) & (F.col("set_ms") > LONG_BACK_OFF * F.col("answers_p50_ms"))
    columns = ["segment", "role", "timer", "set_ms", "answers_p50_ms", "answers_p99_ms", "fired", "early"]
    return table.select(*columns, _verdict(F.col("early") > CROWDED, is_long).alias("verdict"))
