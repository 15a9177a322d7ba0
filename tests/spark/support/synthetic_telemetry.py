"""Synthetic telemetry in any amount, for measurements and tests of jobs. Spark itself makes the events."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # the usual name

from pgm.spark.jobs.events import schema

_SUBNETS = 20
_PER_SUBNET = 25
_STEPS = 5  # events of one loss: gap, NAK or suppression, confirmation, repair, RDATA
_US_PER_LOSS = 200
_START_US = 1_767_225_600_000_000
_SPREAD = 2_654_435_761  # of a multiplicative hash


def write_events(spark: SparkSession, folder: str | Path, rows: int, *, files: int = 16) -> None:
    """Write `rows` events or a few more.

    500 receivers on 20 subnets lose single packets, each repaired by its subnet's repairer.
    """
    losses = spark.range(rows // _STEPS, numPartitions=files)
    mixed = (F.col("id") * _SPREAD) % (1 << 32)
    receiver = (F.shiftright(mixed, 8) % (_SUBNETS * _PER_SUBNET)).cast("int")
    subnet = (receiver % _SUBNETS).cast("string")
    latency = 2000 + F.shiftright(mixed, 12) % 9000
    is_quiet = F.col("id") % 3 == 0
    step = F.explode(F.array(*(F.lit(step) for step in range(_STEPS)))).alias("step")
    each = losses.select(
        "id", receiver.alias("receiver"), subnet.alias("subnet"), latency.alias("us"), is_quiet.alias("quiet"), step
    )
    by_step = [
        ("gap", None),
        (None, None),
        ("confirmed", F.lit(800) + F.col("us") % 400),
        ("repaired", F.col("us")),
        ("rdata_sent", None),
    ]
    kind, value = F.lit(None).cast("string"), F.lit(None).cast("bigint")
    for index, (name, us) in enumerate(by_step):
        is_this = F.col("step") == index
        named = F.when(F.col("quiet"), "suppressed").otherwise("nak_sent") if name is None else F.lit(name)
        kind = F.when(is_this, named).otherwise(kind)
        if us is not None:
            value = F.when(is_this, us).otherwise(value)
    is_repairer = F.col("step") == _STEPS - 1
    time_us = F.lit(_START_US) + F.col("id") * _US_PER_LOSS + F.col("step") * F.col("us") / _STEPS
    receiver_name = F.concat(F.lit("desk-"), F.col("receiver").cast("string"))
    repairer = F.concat(F.lit("repairer-"), F.col("subnet"))
    columns = {
        "time": F.timestamp_micros(time_us.cast("bigint")),
        "node": F.when(is_repairer, repairer).otherwise(receiver_name),
        "role": F.when(is_repairer, "repairer").otherwise("receiver"),
        "segment": F.concat(F.lit("floor-"), F.col("subnet")),
        "kind": kind,
        "tsi": F.lit("1.2.3.4.5.6.7500"),
        "first": F.col("id") * 7 % (1 << 32),
        "count": F.lit(1),
        "peer": F.when(is_repairer, "").otherwise(repairer),
        "value_us": value,
        "tries": F.lit(0),
        "cause": F.when(F.col("step") == 3, "WAIT_DATA").otherwise(""),
        "local": F.col("step") == 3,
    }
    typed = [columns[field.name].cast(field.dataType).alias(field.name) for field in schema().fields]
    events = each.select(*typed).unionByName(_periodic_events(spark))
    events.write.mode("overwrite").parquet(str(folder))


def _periodic_events(spark: SparkSession) -> DataFrame:
    """Return the events that nodes write at the start and every second."""
    nodes = spark.range(_SUBNETS * _PER_SUBNET).select(
        F.concat(F.lit("desk-"), F.col("id").cast("string")).alias("node"),
        F.concat(F.lit("floor-"), (F.col("id") % _SUBNETS).cast("string")).alias("segment"),
    )
    rows = [
        ("address", 0, "", "up"),
        ("timer", 0, "", "nak_bo_ivl"),
        ("timer", 0, "", "nak_rpt_ivl"),
        ("received", 10_000_000, "", ""),
    ]
    each = nodes.crossJoin(spark.createDataFrame(rows, "kind string, count int, peer string, cause string"))
    known = {"node", "segment", "kind", "count", "peer", "cause"}
    fixed = {
        "time": F.timestamp_micros(F.lit(_START_US)),
        "role": F.lit("receiver"),
        "tsi": F.lit("1.2.3.4.5.6.7500"),
        "value_us": F.lit(10_000),
    }
    other = {"first": F.lit(0), "tries": F.lit(0), "local": F.lit(False)}
    columns = [
        (F.col(field.name) if field.name in known else (fixed | other)[field.name])
        .cast(field.dataType)
        .alias(field.name)
        for field in schema().fields
    ]
    return each.select(*columns)
