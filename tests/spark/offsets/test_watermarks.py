"""Windows by receive time over sessions of different hours: no row is dropped that a batch query counts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # as everybody calls it
from pyspark.sql.streaming.datasource import ReadMaxRows

from pgm.spark import register
from pgm.spark.option_table import READ
from pgm.spark.options import read_options
from pgm.spark.source import PgmStreamReader
from tests.spark.support.archives import at, served, session, writing
from tests.unit.archive.makers import messages

_HOUR_US = 3_600_000_000
_TSIS = ("1.1.1.1.1.1.7500", "2.2.2.2.2.2.7500", "3.3.3.3.3.3.7500")
_STARTS_US = (14 * _HOUR_US, 15 * _HOUR_US, 15 * _HOUR_US + 2_000_000)  # the last two overlap
_PARTS, _EACH, _STEP_US = 8, 25, 500_000
_BAR = ("start", "trades", "first", "last", "sum")


@pytest.fixture(scope="module")
def recorders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("hours")
    with writing(folder) as add:
        for tsi, start_us in zip(_TSIS, _STARTS_US, strict=True):
            parts = [messages(at * _EACH, _EACH, at_us=start_us + at * _STEP_US) for at in range(_PARTS)]
            for first in range(0, _PARTS, 2):
                add(parts[first : first + 2], session(tsi=tsi))
    with served(folder) as service:
        yield at(service)


def _bars(rows: DataFrame) -> DataFrame:
    sums = (F.count("*"), F.min("sqn"), F.max("sqn"), F.sum("sqn"))
    bars = rows.groupBy(F.window("received", "1 second")).agg(*sums)
    return bars.select("window.start", *bars.columns[1:]).toDF(*_BAR)


@pytest.mark.timeout(240)
def test_bars_of_three_hours_are_those_of_a_batch(spark: SparkSession, tmp_path: Path, recorders: str) -> None:
    register(spark)
    options = {"recorders": recorders, "columns": "tsi,sqn,received", "localFiles": "false"}
    wanted = {row.start: row for row in _bars(spark.read.format("pgm").options(**options).load()).collect()}
    assert sum(row.trades for row in wanted.values()) == len(_TSIS) * _PARTS * _EACH
    rows = spark.readStream.format("pgm").options(**options).option("maxOffsetsPerTrigger", 250).load()
    found: dict[object, object] = {}
    deaths = [1]  # batches after whose output the query dies before Spark notes the end of the batch

    def take(bars: DataFrame, number: int) -> None:
        found.update({row.start: row for row in bars.collect()})
        if number in deaths:
            deaths.remove(number)
            raise RuntimeError("killed")

    def run() -> list[int]:
        bars = _bars(rows.withWatermark("received", "2 seconds"))
        writer = bars.writeStream.outputMode("update").option("checkpointLocation", str(tmp_path)).foreachBatch(take)
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        return [one.numRowsDroppedByWatermark for step in query.recentProgress for one in step.stateOperators]

    with pytest.raises(StreamingQueryException, match="killed"):
        run()
    assert not any(run())
    assert not deaths
    assert found == wanted


def test_a_session_that_appears_holds_up_rows_received_later(tmp_path: Path) -> None:
    keys = [f"{tsi}@1000000" for tsi in _TSIS]
    with writing(tmp_path) as add:
        add(
            [messages(0, 10, at_us=100), messages(10, 10, at_us=200), messages(20, 10, at_us=300)],
            session(tsi=_TSIS[0]),
        )
        add([messages(0, 10, at_us=200), messages(10, 10, at_us=250)], session(tsi=_TSIS[1]))
        with served(tmp_path) as service:
            reader = PgmStreamReader(read_options({"recorders": at(service), "maxOffsetsPerTrigger": "25"}, READ))
            limit = reader.getDefaultReadLimit()
            assert limit == ReadMaxRows(25)
            found = [{keys[0]: 0}]
            while found[-1] != (ahead := reader.latestOffset(found[-1], limit)):
                found.append(ahead)
            assert [list(one.values()) for one in found] == [[0], [20, 0], [25, 20], [30, 20]]
