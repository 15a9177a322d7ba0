"""What repairs cost and how long they took: latencies, local share, suppression, duplicates, and who asks too much."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  # as everybody calls it

from pgm.spark.jobs.events import by_sqn, of_kind

QUANTILES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}
_STEPS_PER_E = 50  # of latencies: two per cent apart
_CRYING_TIMES = 8.0  # as many requests as the median of its neighbours
_CRYING_SHARE = 0.01  # of the data that the parent sent or got meanwhile: less is no nuisance
_CRYING_LEAST = 20  # requests in a window


def _sum_of(kind: str, what: str = "count") -> Column:
    return F.coalesce(F.sum(F.when(F.col("kind") == kind, F.col(what))), F.lit(0))


def latency_step() -> Column:
    """The place of `value_us` in a histogram of latencies, two per cent apart."""
    return F.round(F.log(F.greatest(F.col("value_us"), F.lit(1))) * _STEPS_PER_E)


def latency_us(step: Column) -> Column:
    """The latency that a place stands for."""
    return F.exp(step / _STEPS_PER_E)


def latency_histogram(events: DataFrame, *keys: str) -> DataFrame:
    """How many packets waited how long for their repair: keys, step (of latency, two per cent apart), sqns, worst (us)."""
    repaired = of_kind(events, "repaired").where("value_us IS NOT NULL AND role = 'receiver'")
    return repaired.groupBy(*keys, latency_step().alias("step")).agg(
        F.sum("count").alias("sqns"), F.max("value_us").alias("worst")
    )


def quantiles_of(histogram: DataFrame, *keys: str) -> DataFrame:
    """What `latencies` gives, from a histogram with these keys or more."""
    latency = latency_us(F.col("step")) / 1000
    quantiles = F.percentile(latency, F.array(*(F.lit(share) for share in QUANTILES.values())), F.col("sqns"))
    table = histogram.groupBy(*keys).agg(
        F.sum("sqns").alias("repaired"), quantiles.alias("q"), (F.max("worst") / 1000).alias("worst_ms")
    )
    picked = [F.col("q")[index].alias(f"{name}_ms") for index, name in enumerate(QUANTILES)]
    return table.select(*keys, "repaired", *picked, "worst_ms")


def latencies(events: DataFrame, *keys: str) -> DataFrame:
    """How long repairs took from when the loss was found: keys, repaired (sqns), p50_ms ... p99_ms, worst_ms.

    Every packet counts, not every row. Values are two per cent apart, so that a histogram is all that is moved.
    """
    return quantiles_of(latency_histogram(events, *keys), *keys)


_COUNTED = ("missing", "repaired", "local", "late", "lost", "nak_sqns", "suppressed")


def shares(events: DataFrame, *keys: str) -> DataFrame:
    """What became of losses at receivers: keys, missing, repaired, local, late, lost, nak_sqns, suppressed, and shares of them.

    What turned out never to have been sent was not missing.
    `local_share` of the repaired came from the own segment's caches; `suppressed_share` of the requests were not made
    since somebody else had asked.
    """
    table = (
        of_kind(events, "gap", "skipped", "repaired", "late", "lost", "nak_sent", "suppressed")
        .where("role = 'receiver'")
        .groupBy(*keys)
        .agg(
            (_sum_of("gap") - _sum_of("skipped")).alias("missing"),
            _sum_of("repaired").alias("repaired"),
            F.coalesce(F.sum(F.when(F.col("local"), F.col("count"))), F.lit(0)).alias("local"),
            _sum_of("late").alias("late"),
            _sum_of("lost").alias("lost"),
            _sum_of("nak_sent").alias("nak_sqns"),
            _sum_of("suppressed").alias("suppressed"),
        )
    )
    return _with_shares(table)


def shares_again(table: DataFrame, *keys: str) -> DataFrame:
    """`shares` with fewer keys, from its own result with more."""
    return _with_shares(table.groupBy(*keys).agg(*(F.sum(name).alias(name) for name in _COUNTED)))


def _with_shares(table: DataFrame) -> DataFrame:
    asked = F.col("suppressed") + F.col("nak_sqns")
    return table.withColumn("local_share", _ratio("local", "repaired")).withColumn(
        "suppressed_share", F.try_divide(F.col("suppressed"), asked)
    )


def _ratio(part: str, whole: str) -> Column:
    return F.try_divide(F.col(part), F.col(whole))


def duplicates(events: DataFrame) -> DataFrame:
    """How often the same was asked for and repaired on a segment: segment, lacked, asked, repairs, asked_ratio, repair_ratio.

    `lacked` are the sqns that somebody asked for there, each once; the ratios are per such sqn, so 1 is best.
    """
    kinds = of_kind(events, "nak_sent", "rdata_sent").where("kind != 'nak_sent' OR role = 'receiver'")
    is_asked = (F.col("kind") == "nak_sent").cast("int").alias("is_asked")
    each = by_sqn(kinds.select("segment", is_asked, "tsi", "first", "count", "time"))
    # One number for a packet of a session: keys of text take longer to compare and to move.
    packet = F.xxhash64("tsi", "sqn", "era").alias("packet")
    per_sqn = each.groupBy("segment", packet).agg(
        F.sum("is_asked").alias("asked"), F.sum(1 - F.col("is_asked")).alias("repairs")
    )
    table = per_sqn.groupBy("segment").agg(
        F.count(F.when(F.col("asked") > 0, 1)).alias("lacked"),
        F.sum("asked").alias("asked"),
        F.count(F.when(F.col("repairs") > 0, 1)).alias("repaired"),
        F.sum("repairs").alias("repairs"),
    )
    return (
        table.withColumn("asked_ratio", _ratio("asked", "lacked"))
        .withColumn("repair_ratio", _ratio("repairs", "repaired"))
        .orderBy("segment")
    )


def crying_babies(events: DataFrame, *, window: str = "10 seconds") -> DataFrame:
    """Children that ask far more than others of the same parent: window, node (the parent), child, asked, usual, times.

    `usual` is what the median child of that parent asked for in that window, those that asked for nothing left out.
    """
    asked = (
        of_kind(events, "nak_in")
        .groupBy(F.window("time", window).alias("window"), "node", "segment", F.col("peer").alias("child"))
        .agg(F.sum("count").alias("asked"))
    )
    usual = asked.groupBy("window", "node", "segment").agg(
        F.median("asked").alias("usual"), F.count("child").alias("children"), F.sum("asked").alias("all_asked")
    )
    table = asked.join(usual, ["window", "node", "segment"])
    others = F.col("all_asked") - F.col("asked")
    is_crying = (
        (F.col("asked") >= _CRYING_LEAST)
        & (F.col("children") > 1)
        & (F.col("asked") > _CRYING_TIMES * F.col("usual"))
        & (F.col("asked") > _CRYING_SHARE * others)
    )
    seats = of_kind(events, "address").select("segment", F.col("peer").alias("child"), F.col("node").alias("name"))
    named = table.where(is_crying).join(F.broadcast(seats.distinct()), ["segment", "child"], "left")
    times = F.round(_ratio("asked", "usual"), 1).alias("times")
    child = F.coalesce("name", "child").alias("child")
    start = F.col("window.start").alias("window")
    return named.select(start, "node", "segment", child, "asked", "usual", times).orderBy("window", F.desc("asked"))


def traffic(events: DataFrame, keys: Sequence[str] = ("node", "role")) -> DataFrame:
    """What each node sent and was asked for, in packets and sqns: keys, sent, rdata, nak_in, nak_sent, ncf_sent."""
    kinds = {"sent": "sent", "rdata": "rdata_sent", "nak_in": "nak_in", "nak_sent": "nak_sent", "ncf_sent": "ncf_sent"}
    return (
        of_kind(events, *kinds.values())
        .groupBy(*keys)
        .agg(*(_sum_of(kind).alias(name) for name, kind in kinds.items()))
        .orderBy(*keys)
    )
