"""Each row comes once, however sessions are cut into batches and partitions.

The rows come from a service, from its files, from two recorders, and in Spark.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql.streaming.datasource import ReadMaxRows

from pgm.spark import register
from pgm.spark.option_table import READ
from pgm.spark.options import SourceOptions, read_options
from pgm.spark.ranges import RangePiece, RangeReader
from pgm.spark.recorders import survey
from pgm.spark.sessions import ArchivedSession, sessions_of
from pgm.spark.source import PgmReader, PgmStreamReader
from tests.spark.support.archives import at, served
from tests.unit.archive.drawn import Part, Told, cuts, given_by, record, sessions, wanted
from tests.unit.archive.makers import TSI_TEXT

_TSIS = (TSI_TEXT, "9.9.9.9.9.9.7500")
_NODES = ("a", "b")
_COLUMNS = "tsi,sqn,count,index,lost,value"
_CYCLE = (  # packets, messages of each, whether they are one batch: of the rows of all kinds, the last of a stored batch
    *((3, 7, False), (1, 2, False), (4, 3, True), (2, 1, True), (3, 0, False), (5, 2, False)),
    *((1, 9, False), (2, 4, True), (6, 1, False), (1, 0, False)),
)


def _options(recorders: str, **values: object) -> SourceOptions:
    given = {"recorders": recorders, "retrySeconds": "0", "columns": _COLUMNS, **values}
    return read_options({key: str(value) for key, value in given.items()}, READ)


def _rows(pieces: Sequence[Any], options: SourceOptions) -> Iterator[dict[str, Any]]:
    for piece in pieces:
        for batch in RangeReader(piece, options).batches():
            yield from batch.to_pylist()


def _turned(session: ArchivedSession, ranges: Sequence[tuple[int, int]], turns: Sequence[int]) -> Iterator[RangePiece]:
    """Yield pieces that start with different places."""
    for (first, end), turn in zip(ranges, itertools.cycle(turns), strict=False):
        yield RangePiece(session, first, end, (*session.places[turn:], *session.places[:turn]))


@pytest.mark.parametrize("is_local", ["true", "false"])
@given(st.data())
def test_pieces_of_two_recorders_give_each_row_once(
    tmp_path_factory: pytest.TempPathFactory, is_local: str, data: st.DataObject
) -> None:
    parts = data.draw(sessions(_NODES))
    directory = tmp_path_factory.mktemp("archives")
    for node in _NODES:
        record(directory / node, {TSI_TEXT: parts}, node)
    ranges = list(itertools.pairwise(data.draw(cuts(parts))))
    turns = data.draw(st.lists(st.integers(0, 1), min_size=1, max_size=6))
    with served(directory) as service:
        for nodes in (("a",), _NODES):
            for subject in (None, "/s/1"):
                chosen = {} if subject is None else {"subjects": subject}
                options = _options(at(service), localFiles=is_local, node=",".join(nodes), **chosen)
                (session,) = sessions_of(survey(options), options).values()
                places = [turn % len(nodes) for turn in turns]
                found = given_by(_rows(list(_turned(session, ranges, places)), options))
                assert found == wanted(parts, nodes, subject)


@given(st.data())
def test_stream_of_any_limit_gives_each_row_once(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    each = {tsi: data.draw(sessions()) for tsi in _TSIS}
    directory = tmp_path_factory.mktemp("archive")
    record(directory, each)
    most, least = data.draw(st.integers(1, 80)), data.draw(st.integers(1, 500))
    with served(directory) as service:
        options = _options(at(service), minPartitions=least)
        reader = PgmStreamReader(options)
        offsets, rows = reader.initialOffset(), []
        while (ahead := reader.latestOffset(offsets, ReadMaxRows(most))) != offsets:
            pieces = reader.partitions(offsets, ahead)
            offsets = ahead
            rows += list(_rows(pieces, options))
        _check(rows, each)
        _check(list(_rows(PgmReader(options).partitions(), options)), each)


def _check(rows: Sequence[dict[str, Any]], each: dict[str, list[Part]]) -> None:
    for tsi, parts in each.items():
        assert given_by(row for row in rows if row["tsi"] == tsi) == wanted(parts)


# In Spark


@attrs.frozen
class Held:
    """Content of a range service: two sessions of 112 sqns each."""

    recorders: str
    each: dict[str, list[Part]]

    def check(self, rows: Sequence[Any]) -> None:
        """Check that every row of both sessions is there once; Spark promises no order."""
        for tsi, parts in self.each.items():
            had, lost = wanted(parts)
            found: Told = given_by(row.asDict() for row in rows if row.tsi == tsi)
            assert (sorted(found[0]), sorted(found[1])) == (had, lost)


@pytest.fixture(scope="module")
def held(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Held]:
    each = {}
    for number, tsi in enumerate(_TSIS):
        parts, first = [], number
        for turn, (packets, messages, is_large) in enumerate(_CYCLE * 4):
            parts.append(Part(first, packets, messages, is_large, ends_batch=turn % 3 != number))
            first += packets
        each[tsi] = parts
    directory = tmp_path_factory.mktemp("archive")
    record(directory, each)
    with served(directory) as service:
        yield Held(at(service), each)


@pytest.fixture(scope="module")
def spark_pgm(spark: SparkSession) -> SparkSession:
    return register(spark)


@pytest.mark.parametrize("least", [1, 20, 100])
def test_batch_of_any_partitions_gives_each_row_once(spark_pgm: SparkSession, held: Held, least: int) -> None:
    source = spark_pgm.read.format("pgm").option("columns", _COLUMNS).option("minPartitions", least)
    frame = source.load(held.recorders)
    assert frame.rdd.getNumPartitions() >= least
    held.check(frame.collect())


@pytest.mark.parametrize("most", [20, 800])
def test_parquet_of_a_stream_has_each_row_once(spark_pgm: SparkSession, held: Held, tmp_path: Path, most: int) -> None:
    source = spark_pgm.readStream.format("pgm").option("columns", _COLUMNS).option("maxOffsetsPerTrigger", most)
    writer = source.load(held.recorders).writeStream.option("checkpointLocation", str(tmp_path / "checkpoint"))
    writer.trigger(availableNow=True).start(str(tmp_path / "rows")).awaitTermination()
    held.check(spark_pgm.read.parquet(str(tmp_path / "rows")).collect())
