"""Telemetry files: complete or absent, with bounded queue and disk use, and every omission reported."""

from __future__ import annotations

from pathlib import Path

import attrs
import pyarrow.dataset
import pytest

from pgm.errors import ProcessError
from pgm.parameters import Parameters
from pgm.telemetry.events import EventLog, arrow_schema
from pgm.telemetry.schema import COLUMNS, KINDS, Event

LIMITS = Parameters()


def event(number: int, kind: str = "gap") -> Event:
    return Event(1_000_000 + number, "node", "receiver", "segment", kind, "tsi", number, 1)


def rows_of(folder: Path) -> list[dict[str, object]]:
    return pyarrow.dataset.dataset(folder, schema=arrow_schema()).to_table().sort_by("time").to_pylist()


def test_rows_come_back_as_they_went_in(tmp_path: Path) -> None:
    log = EventLog(tmp_path, "node", LIMITS)
    for number in range(10):
        log.add(event(number))
    log.close()
    rows = rows_of(tmp_path)
    assert [row["first"] for row in rows] == list(range(10))
    assert list(rows[0]) == list(COLUMNS)
    assert rows[3]["time"].timestamp() == pytest.approx(1.000003)
    assert rows[3]["value_us"] is None


def test_events_file_gets_its_name_when_complete(tmp_path: Path) -> None:
    log = EventLog(tmp_path, "node", attrs.evolve(LIMITS, telemetry_rows=4), in_background=False)
    for number in range(10):
        log.add(event(number))
    assert len(list(tmp_path.iterdir())) == log.files == 2
    log.close()
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".parquet"] * 3
    assert len(rows_of(tmp_path)) == log.written_rows == 10


def test_events_queue_overflow_is_counted_and_told(tmp_path: Path) -> None:
    log = EventLog(tmp_path, "node", attrs.evolve(LIMITS, telemetry_queue=100), in_background=False)
    for number in range(130):
        log.add(event(number))
    log.close()
    told = [row for row in rows_of(tmp_path) if row["kind"] == "overflow"]
    assert log.dropped_rows == 30
    assert [row["count"] for row in told] == [30]


def test_the_oldest_files_go_first_those_of_earlier_runs_too(tmp_path: Path) -> None:
    limits = attrs.evolve(LIMITS, telemetry_rows=500, telemetry_bytes=64 * 1024)
    for start in (0, 10_000):
        log = EventLog(tmp_path, "node", limits, in_background=False)
        for number in range(start, start + 10_000):
            log.add(event(number))
        log.close()
    other = EventLog(tmp_path, "node-2", limits, in_background=False)
    other.add(event(1))
    other.close()
    own = [path for path in tmp_path.iterdir() if not path.name.startswith("node-2")]
    assert sum(path.stat().st_size for path in own) <= limits.telemetry_bytes
    firsts = [row["first"] for row in rows_of(tmp_path) if row["first"] > 1]
    assert min(firsts) > 10_000
    assert max(firsts) == 19_999


def test_events_full_disk_loses_only_rows_and_says_so(tmp_path: Path) -> None:
    folder = tmp_path / "events"
    log = EventLog(folder, "node", LIMITS, in_background=False)
    folder.rmdir()
    log.add(event(1))
    log.flush()
    folder.mkdir()
    log.add(event(2))
    log.close()
    assert log.dropped_rows == 1
    assert [(row["kind"], row["count"]) for row in rows_of(folder)] == [("gap", 1), ("overflow", 1)]


def test_a_row_that_comes_while_a_file_is_made_is_in_the_next(tmp_path: Path) -> None:
    class FlushingParameters:
        """Parameters that run the writer's thread at every read in `add`."""

        is_flushing = False

        def __getattr__(self, name: str) -> object:
            if self.is_flushing:
                log.flush()
            return getattr(LIMITS, name)

    limits = FlushingParameters()
    log = EventLog(tmp_path, "node", limits, in_background=False)  # type: ignore[arg-type]
    log.add(event(0))
    limits.is_flushing = True
    log.add(event(1))
    limits.is_flushing = False
    log.add(event(2))
    log.close()
    assert [row["first"] for row in rows_of(tmp_path)] == [0, 1, 2]
    assert log.written_rows == 3


def test_events_drops_at_the_end_are_reported(tmp_path: Path) -> None:
    folder = tmp_path / "events"
    log = EventLog(folder, "node", LIMITS, in_background=False)
    folder.rmdir()
    log.add(event(1))
    log.flush()
    folder.mkdir()
    log.close()
    assert [(row["kind"], row["count"]) for row in rows_of(folder)] == [("overflow", 1)]


def test_events_row_beyond_a_column_is_dropped_and_reported(tmp_path: Path) -> None:
    log = EventLog(tmp_path, "node", LIMITS, in_background=False)
    log.add(attrs.evolve(event(1), count=1 << 31))
    log.flush()
    log.add(event(2))
    log.close()
    assert [(row["kind"], row["first"], row["count"]) for row in rows_of(tmp_path)] == [
        ("gap", 2, 1),
        ("overflow", 0, 1),
    ]


def test_events_unusable_folder_is_an_error_with_a_remedy(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ProcessError, match="choose a writable folder"):
        EventLog(tmp_path / "file" / "events", "node", LIMITS)


def test_events_every_kind_names_its_writer() -> None:
    assert all(who and meaning.endswith(".") for who, meaning in KINDS.values())


def a_day(folder: Path, monkeypatch: pytest.MonkeyPatch, files: int, **limits: int) -> EventLog:
    """Write `files` files of one row, one in five seconds."""
    now_ns = [0]
    monkeypatch.setattr("pgm.telemetry.events.time.monotonic_ns", lambda: now_ns[0])
    log = EventLog(folder, "node", attrs.evolve(LIMITS, **limits), in_background=False)
    for number in range(files):
        now_ns[0] += LIMITS.telemetry_ivl
        log.add(event(number))
        log.flush()
    return log


def test_old_files_are_merged_and_no_row_is_lost_or_doubled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A node with one file in 5 s: files older than 10 minutes become one, so that an hour has 244 and not 720."""
    a_day(tmp_path, monkeypatch, 720).close()
    files = sorted(tmp_path.iterdir())
    assert len(files) <= 2 * LIMITS.telemetry_merge_ivl // LIMITS.telemetry_ivl + 6
    assert not [path for path in files if path.suffix != ".parquet"]
    assert [row["first"] for row in rows_of(tmp_path)] == list(range(720))


def test_files_of_a_merge_cut_short_are_removed_by_the_next_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", lambda *_, **__: None)  # as if the process were killed before
        a_day(tmp_path, monkeypatch, 241)
    assert len(rows_of(tmp_path)) > 241
    monkeypatch.undo()
    EventLog(tmp_path, "node", LIMITS, in_background=False).close()
    assert [row["first"] for row in rows_of(tmp_path)] == list(range(241))


def test_merged_files_leave_in_steps_at_the_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limit = 1 << 20
    a_day(tmp_path, monkeypatch, 720, telemetry_bytes=limit).close()
    sizes = [path.stat().st_size for path in tmp_path.iterdir()]
    assert max(sizes) <= limit // 4
    assert sum(sizes) <= limit
