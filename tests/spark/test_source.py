"""spark.read.format("pgm"): rows and places of a batch, and refused options."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession

from pgm.archive.service.service import ServiceAccess
from pgm.archive.store.schema import COLUMN_NAMES, STORED_SCHEMA, VERSION_KEY
from pgm.archive.store.segment import HEAD
from pgm.spark import register
from tests.spark.support.archives import KEY, archive, at, served, session
from tests.unit.archive.makers import TSI_TEXT, loss, messages


@pytest.fixture(scope="module")
def spark_pgm(spark: SparkSession) -> SparkSession:
    return register(spark)


def read(spark: SparkSession, recorders: str, **options: object) -> DataFrame:
    given = {"recorders": recorders, "retrySeconds": 0, **options}
    return spark.read.format("pgm").options(**given).load()  # type: ignore[arg-type]


def sqns(frame: DataFrame) -> list[int]:
    return sorted(row.sqn for row in frame.select("sqn").collect())


def test_all_columns_of_all_rows_in_partitions(spark_pgm: SparkSession, tmp_path: Path) -> None:
    archive(tmp_path / "a", [messages(0, 600), loss(600, 50), messages(650, 350)])
    with served(tmp_path) as service:
        frame = read(spark_pgm, at(service), minPartitions=5)
        assert tuple(frame.columns) == COLUMN_NAMES
        assert frame.rdd.getNumPartitions() == 5
        rows = frame.collect()
        assert sum(row["count"] for row in rows) == 1000
        assert [(row.lost, row["count"]) for row in rows if row.lost] == [("retries", 50)]
        assert {(row.tsi, row.node, row.epoch.timestamp()) for row in rows} == {(TSI_TEXT, "recorder-1", 1.0)}
        assert bytes(rows[3].value) == (3).to_bytes(8, "big") * 2
        short = read(spark_pgm, at(service), columns="value,sqn", payload="false")
        assert short.columns == ["sqn"]
        own = spark_pgm.read.format("pgm").schema("value BINARY, sqn BIGINT").load(at(service))
        assert own.where("sqn = 7").collect()[0].value == (7).to_bytes(8, "big") * 2


def test_where_a_batch_begins_and_ends(spark_pgm: SparkSession, tmp_path: Path) -> None:
    archive(tmp_path / "a", [messages(0, 500, at_us=1_000_000), messages(500, 500, at_us=9_000_000)])
    with served(tmp_path) as service:
        for options, wanted in (
            ({"startingOffsets": f'{{"{TSI_TEXT}": 990}}'}, range(990, 1000)),
            ({"startingOffsets": f'{{"{KEY}": -2}}', "endingOffsets": f'{{"{TSI_TEXT}": 10}}'}, range(10)),
            ({"startingOffsets": "latest"}, range(0)),
            ({"startingTimestamp": "1970-01-01T00:00:05"}, range(500, 1000)),
            ({"endingTimestamp": "5000"}, range(500)),
        ):
            assert sqns(read(spark_pgm, at(service), **options)) == list(wanted), options


def test_copies_are_replicas_or_each_count(spark_pgm: SparkSession, tmp_path: Path) -> None:
    archive(tmp_path / "a", [messages(0, 500), loss(500, 100), messages(600, 100)], session("a", segment="one"))
    archive(tmp_path / "b", [messages(300, 700)], session("b", segment="two"))
    with served(tmp_path) as service:
        joined = read(spark_pgm, at(service), minPartitions=3)
        assert sqns(joined.where("lost IS NULL")) == list(range(1000))
        assert sqns(joined.where("lost IS NOT NULL")) == []
        each = read(spark_pgm, at(service), copies="each").where("lost IS NULL").groupBy("segment").count()
        assert {row.segment: row["count"] for row in each.collect()} == {"one": 600, "two": 700}
        assert sqns(read(spark_pgm, at(service), node="b")) == list(range(300, 1000))


def test_without_an_epoch_recordings_are_not_joined(spark_pgm: SparkSession, tmp_path: Path) -> None:
    archive(tmp_path / "a", of=session("a", epoch_us=None))
    archive(tmp_path / "b", of=session("b"))
    with served(tmp_path) as service:
        with pytest.raises(
            PySparkException, match=r"(?s)PGM-SPARK-REPLICAS.*that of a does not know.*epoch.*copies = each"
        ):
            read(spark_pgm, at(service)).count()
        assert read(spark_pgm, at(service), copies="each").count() == 2000
        assert read(spark_pgm, at(service), node="a").count() == 1000


def test_a_recorder_that_is_down(spark_pgm: SparkSession, tmp_path: Path) -> None:
    archive(tmp_path / "a" / "x")
    archive(tmp_path / "b" / "y", of=session("b"))
    with served(tmp_path / "a") as first:
        with served(tmp_path / "b") as second:
            gone = at(second)
            both = read(spark_pgm, f"{at(first)}|{gone}", minPartitions=4)
            assert sqns(both) == list(range(1000))
        assert sqns(both) == list(range(1000))  # planned with both services, read from one
        with pytest.raises(PySparkException, match=r"(?s)PGM-SPARK-RECORDER.*does not answer.*recorders = A\|B"):
            read(spark_pgm, f"{at(first)},{gone}").count()
        assert sqns(read(spark_pgm, f"{gone}|{at(first)}")) == list(range(1000))


def test_source_dropped_ranges(spark_pgm: SparkSession, tmp_path: Path) -> None:
    archive(tmp_path / "a", [messages(400, 600)])
    with served(tmp_path) as service:
        old = {"startingOffsets": f'{{"{TSI_TEXT}": 100}}'}
        with pytest.raises(
            PySparkException, match=r"(?s)PGM-SPARK-DATA-LOSS.*names sqn 100.*held from 400.*failOnDataLoss"
        ):
            read(spark_pgm, at(service), **old).count()
        assert sqns(read(spark_pgm, at(service), failOnDataLoss="false", **old)) == list(range(400, 1000))


def test_a_damaged_segment(spark_pgm: SparkSession, tmp_path: Path) -> None:
    archive(tmp_path / "a", [messages(first, 100) for first in range(0, 1000, 100)])
    (segment,) = (tmp_path / "a").glob("*.arrows")
    octets = bytearray(segment.read_bytes())
    octets[octets.index((550).to_bytes(8, "big") * 2)] ^= 1
    segment.write_bytes(octets)
    with served(tmp_path) as service:
        with pytest.raises(PySparkException, match=r"(?s)PGM-SPARK-DATA-LOSS.*PGM-ARCHIVE-CORRUPT.*checksum"):
            read(spark_pgm, at(service)).count()
        rest = read(spark_pgm, at(service), failOnDataLoss="false")
        assert sqns(rest) == [*range(500), *range(600, 1000)]
        archive(tmp_path / "b", of=session("b"))
        assert sqns(read(spark_pgm, at(service))) == list(range(1000))


def test_a_segment_that_cannot_be_looked_through(spark_pgm: SparkSession, tmp_path: Path) -> None:
    for first in (0, 500):
        archive(tmp_path / "a", [messages(first, 500)])
    segment = min((tmp_path / "a").glob("*.arrows"))
    octets = segment.read_bytes()
    at_batch = octets.index(b'{"tsi":')
    segment.write_bytes(octets[:at_batch] + bytes(100) + octets[at_batch + 100 :])
    with served(tmp_path) as service:
        with pytest.raises(PySparkException, match=r"(?s)PGM-SPARK-DATA-LOSS.*PGM-ARCHIVE-CORRUPT.*arrows is damaged"):
            read(spark_pgm, at(service)).count()
        assert sqns(read(spark_pgm, at(service), failOnDataLoss="false")) == list(range(500, 1000))


def test_rows_of_a_newer_version(spark_pgm: SparkSession, tmp_path: Path) -> None:
    archive(tmp_path / "a")
    with served(tmp_path) as service:
        archive(tmp_path / "b")
        (segment,) = (tmp_path / "b").glob("*.arrows")
        newer = STORED_SCHEMA.with_metadata({VERSION_KEY: b"3"}).serialize().to_pybytes()
        segment.write_bytes(newer + segment.read_bytes()[len(HEAD) :])
        with pytest.raises(PySparkException, match=r"(?s)PGM-ARCHIVE-SCHEMA.*version 3.*knows up to 2"):
            read(spark_pgm, at(service)).count()


def test_an_option_that_does_not_exist(spark_pgm: SparkSession) -> None:
    with pytest.raises(
        AnalysisException, match=r"(?s)PGM-SPARK-OPTION.*no option 'startingoffset'.*startingOffsets is meant"
    ):
        read(spark_pgm, "grpc://127.0.0.1:9", startingOffset="1")


def test_offsets_of_sessions_that_nobody_holds(spark_pgm: SparkSession, tmp_path: Path) -> None:
    archive(tmp_path / "a")
    with served(tmp_path) as service, pytest.raises(PySparkException, match=r"(?s)names session 9.9.*held are: 1.2.3"):
        read(spark_pgm, at(service), startingOffsets='{"9.9": 1}').count()


def test_a_token(spark_pgm: SparkSession, tmp_path: Path) -> None:
    archive(tmp_path / "a")
    (tmp_path / "token").write_text("secret\n")
    with served(tmp_path, access=ServiceAccess(token="secret")) as service:
        assert read(spark_pgm, at(service), tokenFile=tmp_path / "token").count() == 1000
        with pytest.raises(PySparkException, match=r"(?s)PGM-ARCHIVE-TOKEN"):
            read(spark_pgm, at(service)).count()
