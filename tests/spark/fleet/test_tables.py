"""Tables of a fleet: the stream gives the rows of the batch, over restarts, gaps and places that are away."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
import pytest
from pyspark.sql import SparkSession

from pgm.errors import UsageError
from pgm.figures.minutes import TABLES, Limits
from pgm.parameters import Parameters
from pgm.spark.fleet.tables import TableFolder, fleet_tables, fleet_tables_once
from pgm.spark.register import register
from pgm.telemetry.events import EventLog
from pgm.telemetry.schema import Event
from tests.spark.support.generated import START_US

SECOND_US = 1_000_000
NODES = ("a", "b", "c", "d")
LIMITS = attrs.evolve(Parameters(), telemetry_rows=50)


def write(folder: Path, minutes: range, nodes: tuple[str, ...] = NODES) -> None:
    """Write minutes of a source and receivers: `a` loses a packet of its own each second, all lose one each minute."""
    for node in nodes:
        log = EventLog(folder, node, LIMITS, in_background=False)
        for second in range(minutes.start * 60, minutes.stop * 60):
            at = START_US + second * SECOND_US
            log.add(Event(at, node, "receiver", "floor", "received", "tsi", second * 100, 99, "s", SECOND_US))
            if node == "a" or second % 60 == 30:
                sqn = second * 100 + (7 if second % 60 == 30 else 3)
                log.add(Event(at + 5, node, "receiver", "floor", "repaired", "tsi", sqn, 1, "r", 5000 + second))
        log.close()
    if "a" in nodes:
        log = EventLog(folder, "source", LIMITS, in_background=False)
        for second in range(minutes.start * 60, minutes.stop * 60):
            log.add(Event(START_US + second * SECOND_US, "source", "source", "floor", "sent", "tsi", second * 100, 100, "", SECOND_US))  # fmt: skip
        log.close()


def rows_of(folder: Path) -> dict[str, list[dict[str, Any]]]:
    tables = TableFolder(folder)
    found = {table: tables.read(table, ["minute", *columns]).to_pylist() for table, columns in TABLES.items()}
    return {
        table: sorted(rows, key=lambda row: [str(value) for value in row.values()]) for table, rows in found.items()
    }


def run(spark: SparkSession, events: str, tables: Path, **options: str) -> None:
    query = fleet_tables(
        register(spark), {"path": events, "trigger": "now", **options}, tables, limits=Limits({"source": 200.0})
    )
    try:
        assert query.awaitTermination(100)
    finally:
        query.stop()


@pytest.mark.timeout(240)
def test_stream_gives_the_rows_of_the_batch(spark: SparkSession, tmp_path: Path) -> None:
    events, other = tmp_path / "events", tmp_path / "other"
    other.mkdir()
    write(events, range(3))
    run(spark, f"{events},{other}", tmp_path / "stream", maxRowsPerTrigger="700")
    other.rmdir()
    write(events, range(3, 8))
    run(spark, f"{events},{other}", tmp_path / "stream")
    fleet_tables_once(register(spark), {"path": str(events)}, tmp_path / "batch", limits=Limits({"source": 200.0}))
    stream, batch = rows_of(tmp_path / "stream"), rows_of(tmp_path / "batch")
    assert [(row["agent"], row["state"]) for row in stream.pop("agents")] in ([], [(str(other), "away")])
    assert batch.pop("agents") == []
    assert stream == batch
    check_figures(batch)


def check_figures(tables: dict[str, list[dict[str, Any]]]) -> None:
    minutes = sorted({row["minute"] for row in tables["links"]})
    assert len(minutes) == 5  # of eight; two wait for late events, and the last one is not over
    first = {row["link"]: row for row in tables["links"] if row["minute"] == minutes[0]}
    assert {link: row["lost"] for link, row in first.items()} == {
        "floor > a": 59, "floor > b": 0, "floor > c": 0, "floor > d": 0, "source > floor": 1
    }  # fmt: skip
    waits = [row for row in tables["repairs"] if row["minute"] == minutes[0]]
    assert [(row["node"], row["repaired"]) for row in waits] == [("a", 60), ("b", 1), ("c", 1), ("d", 1)]
    sent = [row for row in tables["capacity"] if row["minute"] == minutes[0]]
    assert [(row["sent"], row["peak_pps"], row["share"]) for row in sent] == [(6000, 100.0, 0.5)]


def test_events_that_come_too_late_and_lost_rows_are_counted(spark: SparkSession, tmp_path: Path) -> None:
    events, tables = tmp_path / "events", tmp_path / "stream"
    write(events, range(6), ("a", "b"))
    run(spark, str(events), tables)
    write(events, range(1), ("d",))
    (oldest,) = (path for path in events.glob("d-*") if path.stem.endswith("000000"))
    oldest.unlink()
    write(events, range(6, 12), ("a", "b"))
    run(spark, str(events), tables)
    found = [row for row in rows_of(tables)["nodes"] if row["node"] == "d"]
    assert sum(row["unread"] for row in found) == 50
    assert sum(row["late"] for row in found) == 61 - 50
    assert sum(row["events"] for row in rows_of(tables)["nodes"] if row["node"] == "b") > 61 * 6


def test_tables_of_another_job_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "events", range(1), ("a",))
    fleet_tables_once(register(spark), {"path": str(tmp_path / "events")}, tmp_path / "tables")
    with pytest.raises(UsageError, match="another job"):
        fleet_tables(register(spark), {"path": str(tmp_path / "events")}, tmp_path / "tables")
    (tmp_path / "tables" / "_query.json").write_text('{"query": "stream"}')
    (tmp_path / "tables" / "nodes" / "day=2026-01-01").mkdir(parents=True)
    (tmp_path / "tables" / "nodes" / "day=2026-01-01" / "part-0.parquet").touch()
    with pytest.raises(UsageError, match="without the checkpoint"):
        fleet_tables(register(spark), {"path": str(tmp_path / "events")}, tmp_path / "tables")
