"""Removal of rows that a publishing service sent twice after it was killed."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def without_repeats(rows: DataFrame, publisher: str, **options: str) -> DataFrame:
    """Return recorded rows without those that were repeated in a later session.

    The rows need the columns tsi and sqn. `publisher` is the address of the service, `options` are those of the sink,
    such as `tokenFile`. The service is asked once, now, so later repeats remain. Raises `BadOption`, `RecorderDown`,
    `RecorderRefused`.
    """
    from pyspark.sql import functions as F  # noqa: N812  # the usual name

    from pgm.archive.requests import ACTION_PUBLISHED
    from pgm.spark.option_table import WRITE
    from pgm.spark.options import read_options
    from pgm.spark.recorders import ask

    read = read_options({"recorders": publisher, **options}, WRITE)
    for repeat in ask(read, read.locations[0], ACTION_PUBLISHED, {})["repeats"]:
        is_repeat = (F.col("tsi") == repeat["tsi"]) & (F.col("sqn") >= repeat["first"])
        if repeat["end"] is not None:
            is_repeat &= F.col("sqn") < repeat["end"]
        rows = rows.where(~is_repeat)
    return rows
