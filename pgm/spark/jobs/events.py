"""Telemetry as DataFrames: reading it, as a table or as a stream, and the one table of sqns that joins rest on."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # as everybody calls it
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

from pgm.errors import UsageError
from pgm.telemetry.schema import COLUMNS, KINDS

_TYPES: dict[str, DataType] = {
    "timestamp": TimestampType(),
    "string": StringType(),
    "int64": LongType(),
    "int32": IntegerType(),
    "bool": BooleanType(),
}
# Sqns come again after 2^32 packets, 7 minutes at 10 million a second: only events of the same part of the day are joined.
_SAME_SQNS_S = 300


def schema() -> StructType:
    """The columns of telemetry, as Spark has them."""
    return StructType([StructField(name, _TYPES[kind]) for name, (kind, _) in COLUMNS.items()])


def read(spark: SparkSession, folder: str | Path) -> DataFrame:
    """All events in a folder; any URL that Spark reads will do. Raises `UsageError` where a local folder has none."""
    local = Path(folder)
    if "://" not in str(folder) and not any(local.rglob("*.parquet")):
        raise UsageError(
            f"there is no telemetry in {folder}",
            remedy="let nodes write it: pgm demo --telemetry DIR, or the key telemetry of the topology file",
        )
    return spark.read.schema(schema()).option("recursiveFileLookup", "true").parquet(str(folder))


def read_stream(spark: SparkSession, folder: str | Path, *, late: str = "1 minute", files: int = 1000) -> DataFrame:
    """The events of a folder as they come, up to `files` files a batch, with a watermark of `late`.

    Events from the future would move the watermark for all and are left out.
    """
    stream = spark.readStream.schema(schema()).option("maxFilesPerTrigger", files).parquet(str(folder))
    sane = stream.where(F.col("time") <= F.current_timestamp() + F.expr("INTERVAL 1 HOUR"))
    return sane.withWatermark("time", late)


def of_kind(events: DataFrame, *kinds: str) -> DataFrame:
    """The events of some kinds."""
    unknown = set(kinds) - set(KINDS)
    assert not unknown, unknown
    return events.where(F.col("kind").isin(*kinds))


def by_sqn(events: DataFrame) -> DataFrame:
    """A row per sqn: `sqn` instead of `first` and `count`, and `era`, the part of the day within which sqns are unique."""
    sqns = F.sequence(F.col("first"), F.col("first") + F.col("count") - 1)
    era = F.floor(F.unix_timestamp("time") / _SAME_SQNS_S)
    rows = events.where("count > 0").withColumn("era", era).withColumn("sqn", F.explode(sqns))
    return rows.drop("first", "count")
