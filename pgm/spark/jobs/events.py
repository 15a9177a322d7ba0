"""Telemetry as DataFrames, read as a table or as a stream. `by_sqn` gives the one table of sqns on which joins rest."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # the usual name
from pyspark.sql.types import (
    BooleanType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from pgm.figures.event_rows import files_of
from pgm.figures.rules import SAME_SQNS_S
from pgm.telemetry.schema import COLUMNS, KINDS

_TYPES: dict[str, DataType] = {
    "timestamp": TimestampType(),
    "string": StringType(),
    "int64": LongType(),
    "int32": IntegerType(),
    "bool": BooleanType(),
}


def schema() -> StructType:
    """Return the columns of telemetry as a Spark schema."""
    return StructType([StructField(name, _TYPES[kind]) for name, (kind, _) in COLUMNS.items()])


def read(spark: SparkSession, folder: str | Path) -> DataFrame:
    """Return all events of a folder, or of any URL that Spark reads. Raises `UsageError` if a local folder has none."""
    if "://" not in str(folder):
        files_of(Path(folder))
    return spark.read.schema(schema()).option("recursiveFileLookup", "true").parquet(str(folder))


def read_stream(spark: SparkSession, folder: str | Path, *, late: str = "1 minute", files: int = 1000) -> DataFrame:
    """Return the events of a folder as a stream, with a watermark of `late`.

    A batch has at most `files` files. Events from the future would move the watermark for all, so they are left out.
    """
    stream = spark.readStream.schema(schema()).option("maxFilesPerTrigger", files).parquet(str(folder))
    plausible = stream.where(F.col("time") <= F.current_timestamp() + F.expr("INTERVAL 1 HOUR"))
    return plausible.withWatermark("time", late)


def of_kind(events: DataFrame, *kinds: str) -> DataFrame:
    """Return the events of some kinds."""
    unknown = set(kinds) - set(KINDS)
    assert not unknown, unknown
    return events.where(F.col("kind").isin(*kinds))


def by_sqn(events: DataFrame) -> DataFrame:
    """Return a row for each sqn, with `sqn` for `first` and `count`, and `era`, within which sqns are unique."""
    sqns = F.sequence(F.col("first"), F.col("first") + F.col("count") - 1)
    era = F.floor(F.unix_timestamp("time") / SAME_SQNS_S)
    rows = events.where("count > 0").withColumn("era", era).withColumn("sqn", F.explode(sqns))
    return rows.drop("first", "count")
