"""Figures of streams: lag, octets and losses, limits of micro-batches, and waits for more rows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows

import pgm.spark
from pgm.errors import UsageError
from pgm.spark.errors import BadOption
from pgm.spark.offsets.trigger_hold import TriggerHold
from pgm.spark.option_table import READ
from pgm.spark.options import read_options
from pgm.spark.progress.source_state import STATE
from pgm.spark.source import PgmStreamReader
from tests.spark.support.archives import KEY, at, served, writing
from tests.unit.archive.makers import loss, messages

_SECOND_US = 1_000_000


@pytest.fixture(scope="module")
def recorders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Serve 1000 messages of ten seconds, then a loss of 50."""
    folder = tmp_path_factory.mktemp("archive")
    with writing(folder) as add:
        for second in range(10):
            add([messages(100 * second, 100, at_us=(1 + second) * _SECOND_US)])
        add([loss(1000, 50, at_us=11 * _SECOND_US)])
    with served(folder) as service:
        yield at(service)


def _reader(recorders: str, **options: object) -> PgmStreamReader:
    given = {"recorders": recorders, **options}
    return PgmStreamReader(read_options({key: str(value) for key, value in given.items()}, READ))


def test_the_state_of_a_source_has_its_lag_and_octets(recorders: str) -> None:
    reader = _reader(recorders, maxOffsetsPerTrigger=300, stream="quotes")
    assert STATE not in reader.reportLatestOffset()
    limit = reader.getDefaultReadLimit()
    assert reader.latestOffset({KEY: 0}, limit) == {KEY: 300}
    report = reader.reportLatestOffset()
    assert report[KEY] == 1050
    state = report[STATE]
    assert state["source"] == f"archives of {recorders}, stream quotes, copies joined"
    assert (state["sessions"], state["sqns"], state["lag_sqns"], state["lag_s"]) == (1, 300, 750, 8.0)
    assert state["octets"] * 2 < state["lag_octets"] < state["octets"] * 3
    assert reader.latestOffset({KEY: 900}, limit) == {KEY: 1050}
    assert reader.reportLatestOffset()[STATE]["lag_s"] == 0


def test_rows_are_limited_beside_packets(recorders: str) -> None:
    rows = _reader(recorders, maxRowsPerTrigger=150)
    assert rows.latestOffset({KEY: 0}, rows.getDefaultReadLimit()) == {KEY: 150}
    assert rows.latestOffset({KEY: 900}, rows.getDefaultReadLimit()) == {KEY: 1050}  # a loss is one row
    both = _reader(recorders, maxRowsPerTrigger=150, maxOffsetsPerTrigger=120)
    assert both.latestOffset({KEY: 0}, both.getDefaultReadLimit()) == {KEY: 120}
    assert both.latestOffset({KEY: 0}, ReadAllAvailable()) == {KEY: 1050}


def test_a_micro_batch_waits_for_enough_rows(recorders: str) -> None:
    reader = _reader(recorders, minOffsetsPerTrigger=200)
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMinRows(200)
    assert reader.latestOffset({KEY: 1000}, limit) == {KEY: 1050}  # the first does not wait
    assert reader.latestOffset({KEY: 1000}, limit) == {KEY: 1000}
    assert reader.latestOffset({KEY: 800}, limit) == {KEY: 1050}
    reader.prepareForTriggerAvailableNow()
    assert reader.latestOffset({KEY: 1000}, limit) == {KEY: 1050}
    both = _reader(recorders, minOffsetsPerTrigger=200, maxOffsetsPerTrigger=300)
    assert both.getDefaultReadLimit() == ReadMaxRows(300)
    hold = TriggerHold(200, 30.0)
    assert [hold.holds(ahead, now) for ahead, now in ((0, 5), (199, 6), (200, 7), (1, 36), (1, 37), (1, 38))] == [
        False, True, False, True, False, True
    ]  # fmt: skip
    with pytest.raises(BadOption, match="minOffsetsPerTrigger is above"):
        _reader(recorders, minOffsetsPerTrigger=2, maxOffsetsPerTrigger=1)
    with pytest.raises(BadOption, match="no time such as 500ms"):
        _reader(recorders, maxTriggerDelay="soon")
    assert read_options({"recorders": recorders, "maxTriggerDelay": "2m"}, READ).most_delay_s == 120


@pytest.mark.timeout(240)
def test_progress_of_a_query_counts_its_losses(spark: SparkSession, tmp_path: Path, recorders: str) -> None:
    pgm.spark.register(spark)
    options = {"recorders": recorders, "columns": "sqn,count,lost,value", "startingOffsets": f'{{"{KEY}": 900}}'}
    rows = pgm.spark.observed(spark.readStream.format("pgm").options(**options).load())
    assert pgm.spark.progress_of(None) == []
    writer = rows.where("lost IS NULL").writeStream.format("noop").option("checkpointLocation", str(tmp_path))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    (found,) = pgm.spark.progress_of(query.lastProgress)
    assert (found.rows, found.losses, found.lost_sqns, found.dropped_rows) == (101, 1, 50, 0)
    assert (found.state.sqns, found.state.lag_sqns) == (150, 0)
    assert found.as_json()["source"] == f"archives of {recorders}, copies joined"
    assert "1 sessions, 101 rows" in str(found)
    assert str(found).endswith("0 sqns and 0.0 s behind, 50 sqns lost")
    assert query.lastProgress.observedMetrics["pgm"].value_octets == 1600
    with pytest.raises(UsageError, match="without the columns lost, count"):
        pgm.spark.observed(rows.select("sqn"))
