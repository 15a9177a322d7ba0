"""Filters of a query: the rows are those of a whole read, and batches that cannot match are not read."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import attrs
import numpy as np
import pyarrow.flight as flight
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.datasource import EqualTo, Filter, GreaterThan, In, LessThanOrEqual, Not, StringStartsWith

from pgm.archive.recording.rows import RowBuilder, batch_of
from pgm.archive.requests import ACTION_READS
from pgm.archive.service.service import RangeService
from pgm.archive.store.subject_filter import has_losses, may_have, subject_filter
from pgm.spark import register
from pgm.spark.errors import BadOption
from pgm.spark.filters import FilterBounds, bounds_of
from pgm.spark.source import PgmDataSource
from tests.spark.support.archives import FOR_EVER, archive, at, served, session, writing
from tests.unit.archive.makers import SESSION, TSI_TEXT, loss, messages

_EACH = 200  # messages of a batch
_SECOND_US = 1_000_000
_BATCHES = 20


def _of_subject(first: int, number: int) -> RowBuilder:
    rows = messages(first, _EACH, size=64, at_us=number * _SECOND_US + 1)
    return attrs.evolve(rows, subjects=(f"/quotes/{number % 10}",), subject=1)


@pytest.fixture(scope="module")
def held(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RangeService]:
    """Serve two sessions: one with ten subjects, a batch each, and a loss between; and one without subjects."""
    folder: Path = tmp_path_factory.mktemp("archives")
    parts = []
    first = 0
    for number in range(_BATCHES):
        parts.append(_of_subject(first, number))
        first += _EACH
        if number == 4:
            parts.append(loss(first, 100, at_us=number * _SECOND_US + 2))
            first += 100
    archive(folder / "a", parts)
    archive(folder / "b", [messages(0, 500, at_us=7)], session("recorder-2", tsi="9.9.9.9.9.9.1", stream="other"))
    with served(folder) as service:
        yield service


@pytest.fixture(scope="module")
def frame(spark: SparkSession, held: RangeService) -> DataFrame:
    loaded: DataFrame = register(spark).read.format("pgm").options(recorders=at(held)).load()
    loaded.createOrReplaceTempView("held")
    return loaded


@pytest.fixture(scope="module")
def everything(frame: DataFrame) -> list[Row]:
    return frame.collect()


def reads(service: RangeService) -> dict[str, int]:
    with flight.connect(at(service)) as client:
        [answer] = client.do_action(flight.Action(ACTION_READS, b""))
    found: dict[str, int] = json.loads(answer.body.to_pybytes())
    return found


def _ordered(rows: list[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: (row.tsi, row.sqn, row["index"] or 0))


def _at(second: float) -> datetime:
    return datetime.fromtimestamp(second, UTC).replace(tzinfo=None)


_CASES: dict[str, tuple[Callable[[Row], bool], float]] = {  # where -> what a whole read keeps, and most octets read
    "sqn < 150": (lambda row: row.sqn < 150, 0.2),
    "sqn BETWEEN 1000 AND 1150": (lambda row: 1000 <= row.sqn <= 1150, 0.2),
    "sqn >= 1050 AND sqn < 1120": (lambda row: 1050 <= row.sqn < 1120, 0.2),
    "sqn IN (3, 4)": (lambda row: row.sqn in (3, 4), 0.2),
    "subject = '/quotes/7'": (lambda row: row.subject == "/quotes/7", 0.2),
    "subject IN ('/quotes/7', '/quotes/8') AND sqn > 3000": (
        lambda row: row.subject in ("/quotes/7", "/quotes/8") and row.sqn > 3000,
        0.2,
    ),
    "subject LIKE '/quotes/3%'": (lambda row: row.subject == "/quotes/3", 1.0),
    "received >= timestamp'1970-01-01 00:00:12' AND received < timestamp'1970-01-01 00:00:14'": (
        lambda row: _at(12) <= row.received < _at(14),
        0.2,
    ),
    f"tsi = '{TSI_TEXT}' AND sqn < 10": (lambda row: row.tsi == TSI_TEXT and row.sqn < 10, 0.1),
    "stream = 'other'": (lambda row: row.stream == "other", 0.2),
    "node = 'recorder-2'": (lambda row: row.node == "recorder-2", 0.2),
    "subject = 'none'": (lambda _: False, 0.1),
    "lost IS NOT NULL": (lambda row: row.lost is not None, 1.0),
    "sqn < 10 OR sqn > 4000": (lambda row: row.sqn < 10 or row.sqn > 4000, 1.0),
    "NOT sqn < 4000": (lambda row: row.sqn >= 4000, 0.2),
}


@pytest.mark.parametrize("where", _CASES)
def test_a_filter_keeps_rows_and_leaves_out_octets(
    frame: DataFrame, everything: list[Row], held: RangeService, where: str
) -> None:
    is_wanted, most = _CASES[where]
    before = reads(held)
    found = frame.where(where).collect()
    after = reads(held)
    assert _ordered(found) == _ordered([row for row in everything if is_wanted(row)])
    size = sum(extent["octets"] for extent in _extents(held))
    assert after["read_octets"] - before["read_octets"] <= most * size


def _extents(service: RangeService) -> list[dict[str, int]]:
    with flight.connect(at(service)) as client:
        [answer] = client.do_action(flight.Action("holdings", b""))
    extents: list[dict[str, int]] = json.loads(answer.body.to_pybytes())["holdings"]
    return extents


@pytest.mark.usefixtures("frame")
def test_a_service_without_local_files_leaves_out_the_same(spark: SparkSession, held: RangeService) -> None:
    remote = spark.read.format("pgm").options(recorders=at(held), localFiles="false").load()
    before = reads(held)
    assert remote.where("subject = '/quotes/7'").count() == 2 * _EACH
    after = reads(held)
    assert after["skipped_octets"] > 5 * (after["read_octets"] - before["read_octets"])
    assert after["sent_octets"] > before["sent_octets"]


@pytest.mark.usefixtures("frame")
def test_sql_has_the_filters_too(spark: SparkSession, held: RangeService) -> None:
    before = reads(held)
    found = spark.sql("SELECT sqn FROM held WHERE sqn < 20 AND stream = 'quotes'").collect()
    assert sorted(row.sqn for row in found) == list(range(20))
    assert reads(held)["read_octets"] - before["read_octets"] < 0.2 * sum(one["octets"] for one in _extents(held))


def test_a_loss_is_filled_by_rows_received_earlier_elsewhere(spark: SparkSession, tmp_path: Path) -> None:
    archive(tmp_path / "a", [messages(0, 100, at_us=1), loss(100, 50, at_us=9 * _SECOND_US)], session("recorder-1"))
    archive(tmp_path / "b", [loss(0, 100, at_us=1), messages(100, 50, at_us=2 * _SECOND_US)], session("recorder-2"))
    with served(tmp_path) as service:
        rows = register(spark).read.format("pgm").options(recorders=at(service)).load()
        found = rows.where("received BETWEEN timestamp'1970-01-01 00:00:02' AND timestamp'1970-01-01 00:00:03'")
        assert sorted(row.sqn for row in found.collect()) == list(range(100, 150))


def test_chosen_recordings_give_what_they_hold(spark: SparkSession, tmp_path: Path) -> None:
    for name, first, count in (("a", 0, 100), ("b", 200, 100), ("c", 0, 300)):
        archive(tmp_path / name, [messages(first, count)], session(name))
    with served(tmp_path) as service:
        rows = register(spark).read.format("pgm").options(recorders=at(service)).load()
        found = rows.where("node IN ('a', 'b')").collect()
        assert sorted(row.sqn for row in found) == [*range(100), *range(200, 300)]
        assert rows.where("received > timestamp'1900-01-01 00:00:00'").count() == 300


def test_filtered_reads_of_files_notice_a_segment_that_is_gone(spark: SparkSession, tmp_path: Path) -> None:
    parts = [_of_subject(number * _EACH, number) for number in range(4)]
    limits = attrs.evolve(FOR_EVER, record_segment_bytes=1)
    with writing(tmp_path / "a", limits) as add:
        for part in parts:
            add([part])
    (sorted((tmp_path / "a").glob("*.arrows"))[1]).unlink()
    with served(tmp_path) as service:
        rows = register(spark).read.format("pgm").options(recorders=at(service), retrySeconds=0).load()
        for where in ("subject = '/quotes/3'", "received > timestamp'1970-01-01 00:00:00'", "sqn BETWEEN 250 AND 260"):
            with pytest.raises(PySparkException, match="segment is missing"):
                rows.where(where).collect()


def test_narrowing_takes_what_it_knows() -> None:
    def of(*filters: Filter) -> FilterBounds:
        return bounds_of(filters)

    assert of() == of(Not(EqualTo(("sqn",), 3))) == of(EqualTo(("value", "a"), 3)) == FilterBounds()
    assert of(GreaterThan(("sqn",), 3), LessThanOrEqual(("sqn",), 9), In(("sqn",), (5, 20))).sqns == (5, 10)
    assert of(EqualTo(("tsi",), "a"), In(("tsi",), ("a", "b"))).tsis == ("a",)
    assert of(EqualTo(("tsi",), "a"), EqualTo(("tsi",), "b")).tsis == ()
    assert of(StringStartsWith(("subject",), "/q")).subjects == ("/q*",)
    assert of(StringStartsWith(("subject",), "/q"), EqualTo(("subject",), "/q/1")).subjects == ("/q/1",)
    assert of(EqualTo(("subject",), "/q/1"), StringStartsWith(("subject",), "/q")).subjects == ("/q/1",)
    assert of(GreaterThan(("received",), datetime(1970, 1, 1, 0, 0, 1, 5, UTC))).received_us == (1_000_006, None)


def test_a_subject_filter_denies_nothing_that_a_batch_has() -> None:
    rows = messages(0, 100)
    names = tuple(f"/a/{number}" for number in range(100))
    with_names = attrs.evolve(rows, subjects=names, subject=np.arange(1, 101, dtype=np.uint32))
    bits = subject_filter(batch_of(SESSION, [with_names]))
    assert all(may_have(bits, name) for name in names)
    assert sum(may_have(bits, f"/b/{number}") for number in range(10_000)) < 100
    assert not may_have(subject_filter(batch_of(SESSION, [rows])), "/a/1")
    assert has_losses(batch_of(SESSION, [rows, loss(100, 5)]))
    assert not has_losses(batch_of(SESSION, [rows]))
    many = attrs.evolve(
        messages(0, 1000), subjects=tuple(map(str, range(1000))), subject=np.arange(1, 1001, dtype=np.uint32)
    )
    assert subject_filter(batch_of(SESSION, [many])) == b""


def test_the_table_of_sessions_comes_from_the_index(
    spark: SparkSession, held: RangeService, everything: list[Row]
) -> None:
    sessions = spark.read.format("pgm").options(recorders=at(held), table="sessions").load()
    before = reads(held)
    found = {row.tsi: row for row in sessions.collect()}
    assert reads(held) == before
    for tsi, row in found.items():
        rows = [one for one in everything if one.tsi == tsi]
        assert (row.rows, row.next_sqn) == (len(rows), max(one.sqn + one["count"] for one in rows))
        assert (row.oldest, row.node, row.closed) == (0, rows[0].node, False)
        assert (row.first_received, row.last_received) == (rows[0].received, rows[-1].received)
    assert sessions.where("tsi = 'none'").count() == 0
    source = PgmDataSource({"recorders": at(held), "table": "sessions"})
    with pytest.raises(BadOption, match="no stream"):
        source.streamReader(source.schema())
