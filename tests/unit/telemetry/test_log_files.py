"""Numbers of rows in event logs: they stay through merges, deletions and restarts of the writer."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import attrs
import pyarrow.parquet as pq
import pytest

from pgm.parameters import Parameters
from pgm.telemetry.events import EventLog
from pgm.telemetry.log_files import EventFolder, NodeLog, states_of
from pgm.telemetry.schema import Event
from pgm.units import SECOND

FIVE_A_FILE = attrs.evolve(Parameters(), telemetry_rows=5)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    now = [0]
    monkeypatch.setattr(time, "monotonic_ns", lambda: now[0])
    return now


def write(log: EventLog, numbers: range) -> None:
    for number in numbers:
        log.add(Event(number * 1000, "desk", "receiver", "floor", "gap", "tsi", number, 1))


def sqns(folder: EventFolder, log: str, first: int, end: int) -> list[int]:
    return [sqn for _, table in folder.rows(log, first, end) for sqn in table.column("first").to_pylist()]


def test_log_files_keep_their_numbers_when_merged(tmp_path: Path, clock: list[int]) -> None:
    folder = EventFolder(tmp_path)
    log = EventLog(tmp_path, "desk", FIVE_A_FILE, in_background=False)
    for number in range(4):
        clock[0] = number * 500 * SECOND
        write(log, range(number * 5, number * 5 + 5))
    assert len(list(tmp_path.iterdir())) < 4
    (name,) = folder.logs()
    assert (folder.logs()[name].first, folder.logs()[name].next) == (0, 20)
    assert sqns(folder, name, 3, 12) == list(range(3, 12))
    assert folder.logs()[name].row_after(7_000) == 8
    assert folder.logs()[name].row_after(19_000) == 20


def test_file_that_is_merged_during_a_listing_is_no_error(
    tmp_path: Path, clock: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    log = EventLog(tmp_path, "desk", FIVE_A_FILE, in_background=False)
    write(log, range(5))
    write(log, range(5, 10))
    merge = iter([True])
    row_after = NodeLog.row_after

    def merged_meanwhile(found: NodeLog, until_us: int) -> int:
        if next(merge, False):
            clock[0] = 2000 * SECOND
            write(log, range(10, 15))
        return row_after(found, until_us)

    monkeypatch.setattr(NodeLog, "row_after", merged_meanwhile)
    assert [state.cut for state in states_of(EventFolder(tmp_path), 7_000)] == [8]


def test_log_file_left_beside_its_merged_file_is_read_once(tmp_path: Path, clock: list[int]) -> None:
    log = EventLog(tmp_path, "desk", FIVE_A_FILE, in_background=False)
    write(log, range(5))
    write(log, range(5, 10))
    second = max(tmp_path.iterdir())
    shutil.copy(second, tmp_path / "kept")
    clock[0] = 2000 * SECOND
    write(log, range(10, 15))
    assert not second.exists()
    (tmp_path / "kept").rename(second)
    (name,) = EventFolder(tmp_path).logs()
    assert sqns(EventFolder(tmp_path), name, 0, 15) == list(range(15))


def test_rows_of_deleted_files_are_a_gap_in_the_numbers(tmp_path: Path) -> None:
    log = EventLog(tmp_path, "desk", FIVE_A_FILE, in_background=False)
    write(log, range(15))
    min(tmp_path.iterdir()).unlink()
    folder = EventFolder(tmp_path)
    (name,) = folder.logs()
    assert folder.logs()[name].first == 5
    assert [number for number, _ in folder.rows(name, 0, 15)] == [5, 10]


def test_a_later_run_tells_the_rows_of_earlier_ones(tmp_path: Path) -> None:
    for _ in range(2):
        log = EventLog(tmp_path, "desk", FIVE_A_FILE, in_background=False)
        write(log, range(7))
        log.close()
    old, new = sorted(EventFolder(tmp_path).logs())
    assert EventFolder(tmp_path).logs()[new].earlier == {old.removeprefix("desk-"): 7}


def test_files_without_numbers_are_counted_and_left_out(tmp_path: Path) -> None:
    log = EventLog(tmp_path, "desk", FIVE_A_FILE, in_background=False)
    write(log, range(5))
    table = pq.read_table(next(tmp_path.iterdir()))
    pq.write_table(table.replace_schema_metadata({}), tmp_path / "old-1-000000.parquet")
    folder = EventFolder(tmp_path)
    assert [name.partition("-")[0] for name in folder.logs()] == ["desk"]
    assert folder.unnumbered == 1
