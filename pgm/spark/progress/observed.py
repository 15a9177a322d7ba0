"""Counts of a micro-batch's rows by Spark's `observe`: losses, and octets of values."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pgm.errors import UsageError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

OBSERVATION = "pgm"  # name among the observed metrics
_NEEDED = ("lost", "count")


def observed(rows: DataFrame) -> DataFrame:
    """Return rows of the format "pgm" whose losses are counted as they pass.

    `lastProgress.observedMetrics["pgm"]` has `losses` (rows), `lost_sqns`, `messages`, and `value_octets` with a column
    `value`. Call it before `where` removes the losses. Raises `UsageError` without the columns lost and count.
    """
    from pyspark.sql import functions as F  # noqa: N812  # as everybody calls it

    missing = [name for name in _NEEDED if name not in rows.columns]
    if missing:
        raise UsageError(
            f"losses cannot be counted without the columns {', '.join(missing)}",
            remedy="add them to the option columns",
        )
    is_lost = F.col("lost").isNotNull()
    counts = [
        F.count_if(is_lost).alias("losses"),
        F.coalesce(F.sum(F.when(is_lost, F.col("count"))), F.lit(0)).alias("lost_sqns"),
        F.count_if(~is_lost).alias("messages"),
    ]
    if "value" in rows.columns:
        counts.append(F.coalesce(F.sum(F.octet_length("value")), F.lit(0)).alias("value_octets"))
    return rows.observe(OBSERVATION, *counts)
