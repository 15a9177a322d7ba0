"""Sessions that a query has read to their ends: dropped without a loss, and not read again if their archive returns."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from pgm.spark import register
from pgm.spark.errors import DataLoss
from pgm.spark.offsets.stream_offsets import MOST_GONE
from pgm.spark.option_table import READ
from pgm.spark.options import read_options
from pgm.spark.source import PgmStreamReader
from tests.spark.support.archives import archive, at, ended_archive, served, session, writing
from tests.unit.archive.makers import messages

_TSIS = ("1.1.1.1.1.1.7500", "2.2.2.2.2.2.7500")
_KEYS = [f"{tsi}@1000000" for tsi in _TSIS]
_ENDING, _LIVE = (session(tsi=tsi) for tsi in _TSIS)


class _Query:
    """Query of Spark with a checkpoint; each run restarts it."""

    def __init__(self, spark: SparkSession, folder: Path, recorders: str) -> None:
        options = {"recorders": recorders, "retrySeconds": "0", "columns": "tsi,sqn"}
        self._rows = register(spark).readStream.format("pgm").options(**options).load()
        self._folder = folder

    def run(self) -> list[tuple[str, int]]:
        """Run until no rows are left. Return TSI and sqn of the rows that came, in order."""
        taken: list[tuple[str, int]] = []

        def take(part: DataFrame, _: int) -> None:
            taken.extend((row.tsi, row.sqn) for row in part.collect())

        writer = self._rows.writeStream.option("checkpointLocation", str(self._folder)).foreachBatch(take)
        writer.trigger(availableNow=True).start().awaitTermination()
        return sorted(taken)

    @property
    def offsets(self) -> dict[str, Any]:
        """Newest offsets of the checkpoint."""
        numbers = [int(path.name) for path in (self._folder / "offsets").iterdir() if path.name.isdigit()]
        found: dict[str, Any] = json.loads((self._folder / f"offsets/{max(numbers)}").read_text().splitlines()[-1])
        return found


def _rows(tsi: str, first: int, count: int) -> list[tuple[str, int]]:
    return [(tsi, sqn) for sqn in range(first, first + count)]


def _reader(recorders: str, **options: str) -> PgmStreamReader:
    return PgmStreamReader(read_options({"recorders": recorders, "retrySeconds": "0", **options}, READ))


def _next(recorders: str, start: dict[str, Any], **options: str) -> dict[str, Any]:
    """Return the offsets after `start` of a query that restarts."""
    reader = _reader(recorders, **options)
    found: dict[str, Any] = json.loads(json.dumps(reader.latestOffset(start, reader.getDefaultReadLimit())))
    return found


@pytest.mark.timeout(600)
def test_ended_session_that_returns_comes_once(spark: SparkSession, tmp_path: Path) -> None:
    archives, away = tmp_path / "archives", tmp_path / "away"
    archive(archives / "a", [messages(0, 10)], _ENDING)
    with writing(archives / "b") as add:
        add([messages(0, 10)], _LIVE)
        with served(archives) as service:
            query, port = _Query(spark, tmp_path / "checkpoint", at(service)), service.port
            assert query.run() == [*_rows(_TSIS[0], 0, 10), *_rows(_TSIS[1], 0, 10)]
        assert query.offsets == dict.fromkeys(_KEYS, 10), "as in a checkpoint of an earlier version"
        (archives / "a").rename(tmp_path / "open")
        ended_archive(archives / "a", messages(0, 10), _ENDING)
        with served(archives, port):
            assert query.run() == []
        (archives / "a").rename(away)
        with served(archives, port):
            add([messages(10, 5)], _LIVE)
            assert query.run() == _rows(_TSIS[1], 10, 5)
        away.rename(archives / "a")
        with served(archives, port):
            add([messages(15, 5)], _LIVE)
            assert query.run() == _rows(_TSIS[1], 15, 5)
        assert query.offsets == {_KEYS[1]: 20, "ended": {_KEYS[0]: 10}}


def test_ended_session_that_has_grown_is_read_on(tmp_path: Path) -> None:
    ended_archive(tmp_path, messages(0, 15), _ENDING)
    with served(tmp_path) as service:
        read = {"ended": {_KEYS[0]: 10}}
        assert _next(at(service), read, maxOffsetsPerTrigger="2") == {_KEYS[0]: 12}
        [piece] = _reader(at(service)).partitions(read, {"ended": {_KEYS[0]: 15}})
        assert (piece.first, piece.end) == (10, 15)  # type: ignore[attr-defined]
        assert _next(at(service), read) == {"ended": {_KEYS[0]: 15}}


def test_session_given_up_that_returns_is_read_on(tmp_path: Path) -> None:
    archive(tmp_path / "b", [messages(0, 10)], _LIVE)
    read = dict.fromkeys(_KEYS, 10)
    with served(tmp_path) as service:
        with pytest.raises(DataLoss, match="is no longer held"):
            _next(at(service), read)
        given_up = _next(at(service), read, failOnDataLoss="false")
        assert given_up == {_KEYS[1]: 10, "ended": {_KEYS[0]: 10}}
        assert _next(at(service), given_up) == given_up, "the loss was accepted before"
        archive(tmp_path / "a", [messages(0, 15)], _ENDING)
        assert _next(at(service), given_up) == {_KEYS[0]: 15, _KEYS[1]: 10}


def test_a_query_that_waits_for_rows_keeps_the_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pgm.spark.source._POLL_S", 0.0)
    monkeypatch.setattr("pgm.spark.recorders._DOWN_S", 0.0)
    with writing(tmp_path / "b") as add, served(tmp_path) as service:
        add([messages(0, 10)], _LIVE)
        reader = _reader(at(service), minOffsetsPerTrigger="100")
        limit = reader.getDefaultReadLimit()
        assert reader.initialOffset() == {_KEYS[1]: 0}
        assert reader.latestOffset({_KEYS[1]: 0}, limit) == {_KEYS[1]: 10}
    ended_archive(tmp_path / "a", messages(0, 10), _ENDING)
    with served(tmp_path, service.port):
        found = reader.latestOffset(dict.fromkeys(_KEYS, 10), limit)
        assert found == {_KEYS[1]: 10, "ended": {_KEYS[0]: 10}}


def test_the_oldest_of_too_many_ended_sessions_are_forgotten(tmp_path: Path) -> None:
    ended_archive(tmp_path, messages(0, 10), _ENDING)
    gone = [f"9.9.9.9.9.9.{number}@1000000" for number in range(MOST_GONE + 2)]
    with served(tmp_path) as service:
        found = _next(at(service), {"ended": dict.fromkeys((_KEYS[0], *reversed(gone)), 10)})
        assert list(found["ended"]) == [_KEYS[0], *reversed(gone[:MOST_GONE])], "a held one is never forgotten"
        assert _next(at(service), found) == found
