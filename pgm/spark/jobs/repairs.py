"""Cost and time of repairs: latencies, local share, duplicates, excessive NAKs."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  # the usual name

from pgm.figures.rules import (
    COUNTED,
    EXCESS_LEAST,
    EXCESS_SHARE,
    EXCESS_TIMES,
    EXCESS_WINDOW_S,
    OUTCOMES,
    QUANTILES,
    STEPS_PER_E,
    TRAFFIC,
)
from pgm.spark.jobs.events import by_sqn, of_kind


def _sum_of(kind: str, column: str = "count") -> Column:
    return F.coalesce(F.sum(F.when(F.col("kind") == kind, F.col(column))), F.lit(0))


def latency_step() -> Column:
    """Return the step of `value_us` in a histogram of latencies, two per cent apart."""
    return F.round(F.log(F.greatest(F.col("value_us"), F.lit(1))) * STEPS_PER_E)


def latency_us(step: Column) -> Column:
    """Return the latency that a step stands for, us."""
    return F.exp(step / STEPS_PER_E)


def latency_histogram(events: DataFrame, *keys: str) -> DataFrame:
    """Return the histogram of receivers' latencies: keys, step (two per cent apart), sqns, worst (us)."""
    repaired = of_kind(events, "repaired").where("value_us IS NOT NULL AND role = 'receiver'")
    return repaired.groupBy(*keys, latency_step().alias("step")).agg(
        F.sum("count").alias("sqns"), F.max("value_us").alias("worst")
    )


def quantiles_of(histogram: DataFrame, *keys: str) -> DataFrame:
    """Return the columns of `latencies` from a histogram with these keys or more."""
    latency = latency_us(F.col("step")) / 1000
    quantiles = F.percentile(latency, F.array(*(F.lit(share) for share in QUANTILES.values())), F.col("sqns"))
    table = histogram.groupBy(*keys).agg(
        F.sum("sqns").alias("repaired"), quantiles.alias("q"), (F.max("worst") / 1000).alias("worst_ms")
    )
    picked = [F.col("q")[index].alias(f"{name}_ms") for index, name in enumerate(QUANTILES)]
    return table.select(*keys, "repaired", *picked, "worst_ms")


def latencies(events: DataFrame, *keys: str) -> DataFrame:
    """Return repair latencies, counted from the detection of the loss.

    Columns: keys, repaired (sqns), p50_ms ... p99_ms, worst_ms. Every packet counts, not every row. Values are two per
    cent apart, so that only a histogram is shuffled.
    """
    return quantiles_of(latency_histogram(events, *keys), *keys)


def shares(events: DataFrame, *keys: str) -> DataFrame:
    """Return the outcome of losses at receivers, in sqns and as shares.

    Columns: keys, missing, repaired, local, late, lost, nak_sqns, suppressed, local_share, suppressed_share. Sqns that
    were never sent do not count as missing. `local_share` of the repaired sqns came from the caches of the own segment.
    `suppressed_share` of the requests were not sent, since another node had already sent them.
    """
    table = (
        of_kind(events, *OUTCOMES)
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
    """Return `shares` with fewer keys, from a result of `shares` with more."""
    return _with_shares(table.groupBy(*keys).agg(*(F.sum(name).alias(name) for name in COUNTED)))


def _with_shares(table: DataFrame) -> DataFrame:
    asked = F.col("suppressed") + F.col("nak_sqns")
    return table.withColumn("local_share", _ratio("local", "repaired")).withColumn(
        "suppressed_share", F.try_divide(F.col("suppressed"), asked)
    )


def _ratio(part: str, total: str) -> Column:
    return F.try_divide(F.col(part), F.col(total))


def duplicates(events: DataFrame) -> DataFrame:
    """Return how often sqns were requested and repaired on each segment.

    Columns: segment, lacked, asked, repairs, asked_ratio, repair_ratio. `lacked` counts each requested sqn once. The
    ratios are per such sqn, so 1 is best.
    """
    kinds = of_kind(events, "nak_sent", "rdata_sent").where("kind != 'nak_sent' OR role = 'receiver'")
    is_asked = (F.col("kind") == "nak_sent").cast("int").alias("is_asked")
    each = by_sqn(kinds.select("segment", is_asked, "tsi", "first", "count", "time"))
    # One number identifies a packet of a session: text keys take longer to compare and to shuffle.
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


def excess_naks(events: DataFrame, *, window: str = f"{EXCESS_WINDOW_S} seconds") -> DataFrame:
    """Return children with far more requests than the others of the same parent.

    Columns: window, node (the parent), child, asked, usual, times. `usual` is the median of the children of that parent
    in that window. Children without requests are left out.
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
    is_excessive = (
        (F.col("asked") >= EXCESS_LEAST)
        & (F.col("children") > 1)
        & (F.col("asked") > EXCESS_TIMES * F.col("usual"))
        & (F.col("asked") > EXCESS_SHARE * others)
    )
    addresses = of_kind(events, "address").select("segment", F.col("peer").alias("child"), F.col("node").alias("name"))
    named = table.where(is_excessive).join(F.broadcast(addresses.distinct()), ["segment", "child"], "left")
    times = F.round(_ratio("asked", "usual"), 1).alias("times")
    child = F.coalesce("name", "child").alias("child")
    start = F.col("window.start").alias("window")
    return named.select(start, "node", "segment", child, "asked", "usual", times).orderBy(
        "window", F.desc("asked"), "node", "segment", "child"
    )


crying_babies = excess_naks  # deprecated


def traffic(events: DataFrame, keys: Sequence[str] = ("node", "role")) -> DataFrame:
    """Return packets and sqns that each node sent and was asked for: keys, sent, rdata, nak_in, nak_sent, ncf_sent."""
    return (
        of_kind(events, *TRAFFIC.values())
        .groupBy(*keys)
        .agg(*(_sum_of(kind).alias(name) for name, kind in TRAFFIC.items()))
        .orderBy(*keys)
    )
