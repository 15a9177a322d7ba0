"""Streaming jobs give the results of the batch jobs, from files in sequence."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from pgm.parameters import Parameters
from pgm.spark.jobs import events, repairs, streaming
from pgm.telemetry.events import EventLog
from pgm.telemetry.schema import Event
from tests.spark.support.generated import START_US


def write(folder: Path) -> None:
    """Write six files: two minutes of losses on two segments with two nodes each.

    The last event closes all windows.
    """
    for number in range(6):
        log = EventLog(folder, f"file{number}", Parameters(), in_background=False)
        for step in range(100):
            at = START_US + (number * 100 + step) * 200_000
            for node in ("a", "b"):
                if step % (2 if node == "a" else 4) == 0:
                    segment = f"floor-{step % 3 == 0:d}"
                    sqn = number * 100 + step
                    log.add(Event(at, node, "receiver", segment, "gap", "tsi", sqn, 1))
                    log.add(Event(at + 900, node, "receiver", segment, "nak_sent", "tsi", sqn, 1))
                    waited = 1000 + 10 * step
                    log.add(
                        Event(
                            at + waited, node, "receiver", segment, "repaired", "tsi", sqn, 1, "r", waited, local=True
                        )
                    )
        log.close()
    last = EventLog(folder, "last", Parameters(), in_background=False)
    last.add(Event(START_US + 3600 * 1_000_000, "a", "receiver", "later", "repaired", "tsi", 0, 1))
    last.close()


def rows_when_done(spark: SparkSession, stream: DataFrame, name: str, folder: Path) -> list[dict[str, object]]:
    query = (
        stream.writeStream.format("memory")
        .queryName(name)
        .outputMode("append")
        .option("checkpointLocation", str(folder / name))
        .trigger(availableNow=True)
        .start()
    )
    try:
        assert query.awaitTermination(60)
    finally:
        query.stop()
    return [row.asDict() for row in spark.table(name).orderBy("window", "segment").collect()]


def test_windows_add_up_to_the_batch(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "events"
    write(folder)
    whole = repairs.shares(events.read(spark, folder), "segment").where("segment != 'later'").collect()
    rows = rows_when_done(
        spark, streaming.windowed_shares(events.read_stream(spark, folder, files=3)), "shares", tmp_path
    )
    assert len({row["window"] for row in rows}) == 12
    for segment in whole:
        of_it = [row for row in rows if row["segment"] == segment["segment"]]
        for key in ("missing", "repaired", "local", "nak_sqns"):
            assert sum(row[key] for row in of_it) == segment[key], key  # type: ignore[misc]


def test_losses_of_several_nodes_are_told_from_those_of_one(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "events"
    write(folder)
    rows = rows_when_done(spark, streaming.windowed_losses(events.read_stream(spark, folder)), "losses", tmp_path)
    assert sum(row["sqns"] for row in rows) == 6 * 50  # type: ignore[misc]
    assert sum(row["shared"] for row in rows) == 6 * 25  # type: ignore[misc]
    assert sum(row["lacked"] for row in rows) == 6 * 75  # type: ignore[misc]
