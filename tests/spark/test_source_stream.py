"""spark.readStream.format("pgm") and writeStream.

Offsets, limits, new sessions, dropped rows, and batches that are published once.
"""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from pgm.archive.service.publications import PublicationTarget
from pgm.spark import register
from pgm.spark.errors import DataLoss
from pgm.spark.option_table import READ
from pgm.spark.options import read_options
from pgm.spark.source import PgmStreamReader
from tests.spark.support.archives import KEY, archive, at, served, session, writing
from tests.unit.archive.makers import TSI_TEXT, messages

OTHER = "9.9.9.9.9.9.7500"


@pytest.fixture(scope="module")
def spark_pgm(spark: SparkSession) -> SparkSession:
    return register(spark)


def stream(spark: SparkSession, recorders: str, **options: object) -> DataFrame:
    given = {"recorders": recorders, "retrySeconds": 0, "columns": "tsi,sqn", **options}
    return spark.readStream.format("pgm").options(**given).load()  # type: ignore[arg-type]


def run(frame: DataFrame, folder: Path, batches: list[list[int]]) -> StreamingQuery:
    """Run until no rows are left; each micro-batch adds a list of its sqns."""
    query = (
        frame.writeStream.option("checkpointLocation", str(folder))
        .foreachBatch(lambda rows, _: batches.append(sorted(row.sqn for row in rows.collect())))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return query


def test_a_query_goes_on_where_it_was_with_new_sessions(spark_pgm: SparkSession, tmp_path: Path) -> None:
    with writing(tmp_path / "archives" / "a") as add, served(tmp_path / "archives") as service:
        add([messages(0, 1000)])
        frame = stream(spark_pgm, at(service), maxOffsetsPerTrigger=400, startingOffsets=f'{{"{TSI_TEXT}": 100}}')
        batches: list[list[int]] = []
        query = run(frame, tmp_path / "checkpoint", batches)
        assert list(chain(*batches)) == list(range(100, 1000))
        assert max(map(len, batches)) == 400
        assert json.loads(query.lastProgress.sources[0].endOffset) == {KEY: 1000}
        add([messages(1000, 10)])
        add([messages(7, 20)], session(tsi=OTHER))
        batches.clear()
        query = run(frame, tmp_path / "checkpoint", batches)
        assert sorted(chain(*batches)) == [*range(7, 27), *range(1000, 1010)]
        assert json.loads(query.lastProgress.sources[0].endOffset) == {KEY: 1010, f"{OTHER}@1000000": 27}


def test_stream_rows_that_arrive_during_the_query(spark_pgm: SparkSession, tmp_path: Path) -> None:
    seen: set[tuple[str, int]] = set()
    came = threading.Condition()

    def take(rows: DataFrame, _: int) -> None:
        with came:
            seen.update((row.tsi, row.sqn) for row in rows.collect())
            came.notify_all()

    with writing(tmp_path / "archives" / "a") as add, served(tmp_path / "archives") as service:
        add([messages(0, 10)])
        query = stream(spark_pgm, at(service)).writeStream.foreachBatch(take).start()
        try:
            with came:
                assert came.wait_for(lambda: len(seen) == 10, 60), query.exception()
            add([messages(10, 10)])
            add([messages(0, 5)], session(tsi=OTHER))
            with came:
                assert came.wait_for(lambda: len(seen) == 25, 60), query.exception()
        finally:
            query.stop()
        assert {sqn for tsi, sqn in seen if tsi == OTHER} == set(range(5))


def test_stream_ranges_dropped_under_a_query(spark_pgm: SparkSession, tmp_path: Path) -> None:
    archives, checkpoint = tmp_path / "archives", tmp_path / "checkpoint"
    batches: list[list[int]] = []
    archive(archives / "a", [messages(0, 100)])
    with served(archives) as service:
        run(stream(spark_pgm, at(service)), checkpoint, batches)
        port = service.port
    shutil.rmtree(archives / "a")
    archive(archives / "a", [messages(300, 100)])
    with served(archives, port) as service:
        with pytest.raises(StreamingQueryException, match=r"(?s)PGM-SPARK-DATA-LOSS.*sqns 100 to 299.*held from 300"):
            run(stream(spark_pgm, at(service)), checkpoint, batches)
        run(stream(spark_pgm, at(service), failOnDataLoss="false"), checkpoint, batches)
        assert list(chain(*batches)) == [*range(100), *range(300, 400)]
    shutil.rmtree(archives / "a")
    gone = pytest.raises(StreamingQueryException, match=r"(?s)PGM-SPARK-DATA-LOSS.*is no longer held.*up to sqn 400")
    with served(archives, port) as service, gone:
        run(stream(spark_pgm, at(service)), checkpoint, batches)
    with pytest.raises(StreamingQueryException, match=r"(?s)PGM-SPARK-RECORDER.*does not answer"):
        run(stream(spark_pgm, f"grpc://127.0.0.1:{port}"), checkpoint, batches)


def test_offsets_never_go_back_and_have_their_keys_in_order(tmp_path: Path) -> None:
    archive(tmp_path / "b", [messages(50, 50)], session("b", tsi=OTHER))
    archive(tmp_path / "a", [messages(0, 50)])
    with served(tmp_path) as service:
        reader = PgmStreamReader(read_options({"recorders": at(service)}, READ))
        both = {KEY: 50, f"{OTHER}@1000000": 100}
        assert json.dumps(reader.initialOffset()) == json.dumps({KEY: 0, f"{OTHER}@1000000": 50})
        found = reader.latestOffset({KEY: 500, f"{OTHER}@1000000": 60}, ReadAllAvailable())
        assert json.dumps(found) == json.dumps({**both, KEY: 500})
        assert reader.latestOffset({KEY: 10}, ReadAllAvailable()) == {KEY: 50, f"{OTHER}@1000000": 50}
        assert reader.latestOffset({KEY: 10, f"{OTHER}@1000000": 60}, ReadMaxRows(8)) == {
            KEY: 18,
            f"{OTHER}@1000000": 60,
        }
        with pytest.raises(DataLoss, match="no longer held"):
            reader.latestOffset({**both, "8.8@1": 5}, ReadAllAvailable())


# Publishing


@pytest.fixture
def sink(tmp_path: Path) -> Iterator[tuple[str, list[bytes]]]:
    (tmp_path / "empty").mkdir()
    sent: list[bytes] = []

    def publish(stream: str, rows: pa.Table) -> None:
        assert stream == "quotes"
        sent.extend(rows["value"].to_pylist())

    with served(tmp_path / "empty", target=PublicationTarget(publish, tmp_path / "published.json")) as service:
        yield at(service), sent


def test_a_stream_and_a_batch_are_published_in_order(
    spark_pgm: SparkSession, tmp_path: Path, sink: tuple[str, list[bytes]]
) -> None:
    where, sent = sink
    archive(tmp_path / "archives", [messages(0, 1000)])
    with served(tmp_path / "archives") as service:
        rows = stream(spark_pgm, at(service), columns="value", maxOffsetsPerTrigger=300, minPartitions=2)

        def publish(checkpoint: Path) -> None:
            writing = rows.writeStream.format("pgm").option("publishStream", "quotes").option("recorders", where)
            writing.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start().awaitTermination()

        publish(tmp_path / "checkpoint")
        assert [int.from_bytes(value[:8], "big") for value in sent] == list(range(1000))
        # Killed between the publication of the last batch and Spark's record of it: the batch is repeated, and
        # recognised.
        last = max(int(path.name) for path in (tmp_path / "checkpoint/commits").iterdir() if path.name.isdigit())
        for name in (str(last), f".{last}.crc"):
            (tmp_path / "checkpoint/commits" / name).unlink(missing_ok=True)
        publish(tmp_path / "checkpoint")
        assert len(sent) == 1000
        batch = spark_pgm.createDataFrame([("one",), ("two",)], "value STRING").coalesce(1)
        batch.write.format("pgm").mode("append").option("publishStream", "quotes").save(where)
        assert sent[1000:] == [b"one", b"two"]


def test_rows_that_cannot_be_published(spark_pgm: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with served(tmp_path / "empty") as service:
        two = spark_pgm.createDataFrame([(1, "x")], "sqn INT, value STRING")
        with pytest.raises(Exception, match=r"(?s)PGM-SPARK-OPTION.*the column value.*sqn, value.*encode"):
            two.write.format("pgm").mode("append").save(at(service))
        with pytest.raises(Exception, match=r"(?s)PGM-SPARK-PUBLISH.*this service does not publish"):
            two.select("value").write.format("pgm").mode("append").save(at(service))
