"""Offsets of the fleet's event logs: cuts by time, places that are away, logs that vanish."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from pgm.spark.errors import BadOption
from pgm.spark.fleet import source
from pgm.spark.fleet.offsets import FleetOffset, advanced, bounded, needs_cut, start_of, time_until
from pgm.spark.fleet.options import read_options
from pgm.spark.fleet.places import FleetSurvey, PlaceSilent
from pgm.telemetry.events import arrow_schema
from pgm.telemetry.log_files import LogState

MINUTE = 60_000_000
NOW = 10_000 * MINUTE


def log(name: str, rows: int, **values: Any) -> tuple[str, LogState]:
    state = {"first": 0, "next": rows, "cut": rows, "begins_us": 0, "newest_us": 100 * MINUTE, "earlier": {}} | values
    return "place", LogState(name, **state)


def found(*logs: tuple[str, LogState], away: dict[str, str] | None = None) -> FleetSurvey:
    return FleetSurvey({state.name: (place, state) for place, state in logs}, away or {})


def test_catch_up_ends_at_one_time_for_all_logs() -> None:
    survey = found(log("a-1", 900), log("b-1", 100))
    start = FleetOffset({"a-1": 0, "b-1": 0}, until_us=0)
    until = time_until(start, survey, 100, NOW)
    assert until == 10 * MINUTE
    assert needs_cut(until, start, survey)
    cut = found(log("a-1", 900, cut=90), log("b-1", 100, cut=10))
    end = advanced(start, cut, until, NOW)
    assert (end.logs, end.until_us) == ({"a-1": 90, "b-1": 10}, until)


def test_live_query_takes_all_and_stays_without_news() -> None:
    survey = found(log("a-1", 900))
    start = start_of(survey, is_latest=False)
    end = advanced(start, survey, time_until(start, survey, 1000, NOW), NOW)
    assert (end.logs, end.until_us) == ({"a-1": 900}, 100 * MINUTE)
    assert advanced(end, survey, time_until(end, survey, 1000, NOW), NOW) is end
    assert FleetOffset.of_json(end.as_json()) == end


def test_rows_from_the_future_wait_for_the_clock() -> None:
    survey = found(log("a-1", 900))
    start = FleetOffset({"a-1": 0}, until_us=0)
    assert time_until(start, survey, 1000, now_us=40 * MINUTE) == 40 * MINUTE + 1_000_000


def test_empty_hours_are_passed() -> None:
    """No row lies in the slice, and the next slice begins behind it."""
    survey = found(log("a-1", 900, cut=0))
    start = FleetOffset({"a-1": 0}, until_us=0)
    assert advanced(start, survey, MINUTE, NOW).until_us == MINUTE


def test_place_that_is_away_is_told_once_and_stops_no_other() -> None:
    start = FleetOffset({"a-1": 5, "b-1": 5}, until_us=7)
    survey = found(log("a-1", 9), away={"http://b": "refused"})
    end = advanced(start, survey, 7, NOW)
    assert end.logs == {"a-1": 9, "b-1": 5}
    assert end.away == {"http://b": (NOW, "refused")}
    assert advanced(end, survey, 7, NOW + 1) is end
    back = advanced(end, found(log("a-1", 9), log("b-1", 8)), 7, NOW + 2)
    assert (back.away, back.back, back.logs["b-1"]) == ({}, {"http://b": NOW + 2}, 8)


def test_logs_that_vanish_tell_their_unread_rows() -> None:
    start = FleetOffset({"a-1": 5, "c-1": 4}, until_us=7)
    survey = found(log("a-3", 9, earlier={"1": 8, "2": 20}))
    end = advanced(start, survey, 7, NOW)
    assert end.gone == {"a-1": 8, "a-2": 20, "c-1": 4}
    assert end.logs == {"a-3": 9}
    assert advanced(end, survey, 7, NOW).gone == end.gone  # without news the offset stays the same one


def test_log_read_to_its_end_may_vanish() -> None:
    start = FleetOffset({"a-1": 8}, until_us=7)
    assert advanced(start, found(log("a-2", 9, earlier={"1": 8})), 7, NOW).gone == {}


def test_query_that_ends_reads_up_to_its_ends() -> None:
    survey = bounded(found(log("a-1", 900), log("new-1", 5)), {"a-1": 300})
    end = advanced(FleetOffset({"a-1": 0}), survey, 9, NOW)
    assert end.logs == {"a-1": 300}


class Restarted:
    """Place that is silent at some attempts, and then has rows."""

    name = "http://10.0.0.1:9765"

    def __init__(self, silent: int) -> None:
        self.silent, self.asked = silent, 0

    def states(self, until_us: int | None) -> list[LogState]:
        return [self._answer(log("a-1", 2)[1])]

    def rows(self, name: str, first: int, end: int) -> Iterator[tuple[int, pa.Table]]:
        row = {"time": first, "node": "a", "kind": "gap"}
        yield first, self._answer(pa.Table.from_pylist([row] * (end - first), arrow_schema()))

    def _answer(self, answer: Any) -> Any:
        self.asked += 1
        if self.asked <= self.silent:
            raise PlaceSilent("refused")
        return answer


@pytest.mark.parametrize(("silent", "kinds", "asked"), [(2, ["gap"] * 4, 4), (9, ["unread"] * 2, 3)])
def test_agent_that_is_restarted_loses_no_rows(
    monkeypatch: pytest.MonkeyPatch, silent: int, kinds: list[str], asked: int
) -> None:
    place = Restarted(silent)
    monkeypatch.setattr(source, "places_of", lambda _: {"http://10.0.0.1:9765": place})
    monkeypatch.setattr(source, "_wait", lambda _: None)
    piece = source.FleetPiece(
        tuple(source.LogSpan("http://10.0.0.1:9765", name, 0, 2) for name in ("a-1", "a-2")), (), 5, 5
    )
    rows = [
        row
        for batch in source.read_piece(piece, read_options({"agents": "http://10.0.0.1:9765"}))
        for row in batch.to_pylist()
    ]
    assert ([row["kind"] for row in rows], place.asked) == (kinds, asked)


def test_repeated_micro_batch_waits_for_a_place_that_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "places_of", lambda _: {"http://10.0.0.1:9765": Restarted(1)})
    monkeypatch.setattr(source, "_wait", lambda _: None)
    reader = source.FleetStreamReader(read_options({"agents": "http://10.0.0.1:9765"}))
    [piece] = reader.partitions(FleetOffset({"a-1": 0}, 1).as_json(), FleetOffset({"a-1": 2}, 5).as_json())
    assert isinstance(piece, source.FleetPiece)
    assert piece.spans == (source.LogSpan("http://10.0.0.1:9765", "a-1", 0, 2),)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({}, "no folder and no agent"),
        ({"path": "a", "timeoutSeconds": "0"}, 'timeoutSeconds = "0": an agent needs time'),
        ({"agents": "10.0.0.5"}, "no address of an agent"),
        ({"path": "a", "kind": "lost"}, "no option 'kind'.*kinds is meant"),
        ({"path": "a", "packed": "1"}, "neither true nor false"),
    ],
)
def test_options_that_cannot_be_meant(options: dict[str, str], says: str) -> None:
    with pytest.raises(BadOption, match=f"(?s){says}"):
        read_options(options)
