"""Rows that a publishing service has sent twice since it was killed, left out of what was recorded of its stream."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def without_repeats(rows: DataFrame, publisher: str, **options: str) -> DataFrame:
    """Recorded rows, with the columns tsi and sqn, less those that came again in a later session: each then counts once.

    `publisher` is the address of the service, `options` are those of the sink, such as `tokenFile`. It is asked now: what it repeats later is
    not left out. Raises `BadOption`, `RecorderDown`, `RecorderRefused`.
    """
    from pyspark.sql import functions as F  # noqa: N812  # as everybody calls it

    from pgm.archive.requests import ACTION_PUBLISHED
    from pgm.spark.options import WRITE, read_options
    from pgm.spark.recorders import ask

    read = read_options({"recorders": publisher, **options}, WRITE)
    for one in ask(read, read.locations[0], ACTION_PUBLISHED, {})["repeats"]:
        came_again = (F.col("tsi") == one["tsi"]) & (F.col("sqn") >= one["first"])
        if one["end"] is not None:
            came_again &= F.col("sqn") < one["end"]
        rows = rows.where(~came_again)
    return rows
