"""Services that are away for a while: no row of their sessions comes twice or is passed over."""

from __future__ import annotations

from pathlib import Path

import pytest

import pgm.spark.recorders
from pgm.archive.requests import ACTION_BLOCKS
from pgm.spark.errors import RecorderDown
from pgm.spark.option_table import READ
from pgm.spark.options import read_options
from pgm.spark.ranges import RangePiece
from pgm.spark.source import PgmStreamReader
from tests.spark.support.archives import archive, at, ended_archive, served, session
from tests.unit.archive.makers import messages

_TSIS = ("1.1.1.1.1.1.7500", "2.2.2.2.2.2.7500")
_KEYS = [f"{tsi}@1000000" for tsi in _TSIS]


@pytest.fixture(autouse=True)
def _ask_always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ask each time, and a service that is away too."""
    monkeypatch.setattr("pgm.spark.recorders._DOWN_S", 0.0)
    monkeypatch.setattr("pgm.spark.source._POLL_S", 0.0)


def _reader(recorders: str, **values: str) -> PgmStreamReader:
    return PgmStreamReader(read_options({"recorders": recorders, "retrySeconds": "0", **values}, READ))


def test_a_session_that_ended_returns_with_its_service_at_its_offset(tmp_path: Path) -> None:
    ended, own = (session(tsi=tsi) for tsi in _TSIS)
    ended_archive(tmp_path / "a", messages(0, 10), ended)
    archive(tmp_path / "b", [messages(0, 10)], own)
    read = {_KEYS[1]: 10, "ended": {_KEYS[0]: 10}}
    with served(tmp_path / "b") as other:
        with served(tmp_path / "a") as service:
            port = service.port
            reader = _reader(f"{at(service)}|{at(other)}")
            limit = reader.getDefaultReadLimit()
            assert reader.latestOffset(dict.fromkeys(_KEYS, 10), limit) == read
        assert reader.latestOffset(read, limit) == read, "the rows would come again"
        with served(tmp_path / "a", port):
            assert reader.latestOffset(read, limit) == read


def test_rows_of_a_service_that_is_away_are_not_passed_over(tmp_path: Path) -> None:
    archive(tmp_path / "a", [messages(0, 20)], session("a"))
    archive(tmp_path / "b", [messages(0, 10)], session("b"))
    key = "1.2.3.4.5.6.7500@1000000"
    with served(tmp_path / "b") as behind:
        with served(tmp_path / "a") as service:
            reader = _reader(f"{at(service)}|{at(behind)}", failOnDataLoss="false")
            assert reader.latestOffset({key: 0}, reader.getDefaultReadLimit()) == {key: 20}
        with pytest.raises(RecorderDown, match="not held up to the wanted sqn by any service that answers"):
            reader.partitions({key: 0}, {key: 20})
        [piece] = reader.partitions({key: 0}, {key: 10})
        assert isinstance(piece, RangePiece)
        assert (piece.first, piece.end) == (0, 10)


def test_times_are_asked_again_of_a_service_that_is_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive(tmp_path / "a", [messages(0, 20)])
    real, failures = pgm.spark.recorders.ask, [RecorderDown("restarts")]

    def ask(options: object, location: str, action: str, asked: object) -> object:
        if action == ACTION_BLOCKS and failures:
            raise failures.pop()
        return real(options, location, action, asked)  # type: ignore[arg-type]

    monkeypatch.setattr("pgm.spark.offsets.received_times.ask", ask)
    key = "1.2.3.4.5.6.7500@1000000"
    with served(tmp_path) as service:
        reader = _reader(at(service), maxOffsetsPerTrigger="5", retrySeconds="5")
        assert reader.latestOffset({key: 0}, reader.getDefaultReadLimit()) == {key: 5}
    assert not failures
