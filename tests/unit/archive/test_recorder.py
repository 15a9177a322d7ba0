"""The recorder: what it is handed is in the archive, as messages or as losses, whatever the disk and the process do."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest

from pgm.archive.reader import ArchiveReader
from pgm.archive.recorder import Names, Recorder
from pgm.archive.writer import ArchiveWriter
from pgm.core.counters import Counters
from pgm.core.effects import CloseCause, Closed, Deliver, LossCause, Lost
from pgm.core.path import Path as SessionPath
from pgm.parameters import Parameters
from pgm.units import KIB, MILLISECOND
from tests.net.lab import ROOT
from tests.unit.archive.makers import TSI, TSI_TEXT, check_rows, log_to, run_of, small, table

_QUICK = {"record_batch_ivl": MILLISECOND, "record_sync_ivl": MILLISECOND, "record_retry_ivl": 10 * MILLISECOND}
_NAMES = Names("recorder-1", "core", {7500: "quotes"}, {7500: "exchange"})


def _path(started_ns: int | None = 5_000_000, shift: int | None = 0) -> SessionPath:
    path = SessionPath(TSI, 7500, Parameters(), Counters())
    path.started_ns, path.epoch_shift = started_ns, shift
    return path


def _recorder(
    directory: Path, lines: list[str], path: SessionPath | None = None, **values: Any
) -> tuple[Recorder, ArchiveWriter]:
    parameters = small(**_QUICK | values)
    writer = ArchiveWriter(directory, parameters, log_to(lines))
    session = path or _path()
    recorder = Recorder(writer, parameters, _NAMES, lambda _: session, log_to(lines))
    recorder.start()
    return recorder, writer


def _until(is_so: Callable[[], bool]) -> None:
    waiting = threading.Event()
    for _ in range(2000):
        if is_so():
            return
        waiting.wait(0.005)
    raise AssertionError("it did not come about in 10 s")


def test_runs_losses_and_endings_become_rows(tmp_path: Path) -> None:
    recorder, _ = _recorder(tmp_path, [])
    recorder.take(Deliver(TSI, run_of(3, 10, repaired=[5])))
    recorder.take(Lost(TSI, 13, 4, LossCause.RETRIES))
    recorder.take(Deliver(TSI, run_of(17, 3, 100)))
    recorder.take(Closed(TSI, 20, CloseCause.FIN))
    recorder.close()
    rows = table(tmp_path)
    check_rows(rows, 3, 20)
    assert [row["lost"] for row in rows.to_pylist() if row["lost"]] == ["retries"]
    assert [row["sqn"] for row in rows.to_pylist() if row["repaired"]] == [5]
    assert rows["source"].unique().to_pylist() == ["exchange"]
    (holding,) = ArchiveReader(tmp_path).holdings()
    assert (holding.closed, holding.epoch_us, holding.next_sqn) == (True, 5000, 20)
    assert recorder.account()["lost"] == {"retries": 4}
    assert recorder.counters.recorded_rows == 14


def test_what_nobody_recorded_while_it_was_stopped_is_a_loss_and_what_comes_twice_is_there_once(tmp_path: Path) -> None:
    for runs in ([run_of(0, 10)], [run_of(25, 10)], [run_of(30, 10), run_of(40, 5)]):
        recorder, _ = _recorder(tmp_path, [])
        for run in runs:
            recorder.take(Deliver(TSI, run))
        recorder.close()
    rows = table(tmp_path)
    check_rows(rows, 0, 45)
    lost = [(row["sqn"], row["count"], row["lost"]) for row in rows.to_pylist() if row["lost"]]
    assert lost == [(10, 15, "recorder")]


def test_an_epoch_that_becomes_known_begins_another_session_with_the_sources_own_sqns(tmp_path: Path) -> None:
    path = _path(None, None)
    recorder, _ = _recorder(tmp_path, [], path)
    recorder.take(Deliver(TSI, run_of(5, 5)))
    path.started_ns, path.epoch_shift = 7_000_000, 1 << 32
    recorder.take(Deliver(TSI, run_of(10, 5)))
    recorder.close()
    known = {(one.epoch_us, one.oldest, one.next_sqn, one.closed) for one in ArchiveReader(tmp_path).holdings()}
    assert known == {(None, 5, 10, True), (7000, (1 << 32) + 10, (1 << 32) + 15, False)}


def test_a_queue_that_is_full_loses_loudly_and_never_waits(tmp_path: Path) -> None:
    recorder, writer = _recorder(tmp_path, [], record_queue_bytes=64 * KIB)
    held = threading.Event()
    sync, writer.sync = writer.sync, lambda: (held.wait(10), sync())[1]  # type: ignore[method-assign]
    recorder.take(Deliver(TSI, run_of(0, 10)))
    _until(lambda: writer.sync_due_ns is not None)
    for at in range(10, 1000, 10):
        recorder.take(Deliver(TSI, run_of(at, 10, 1000)))
        assert recorder.waiting_octets <= 64 * KIB
    held.set()
    _until(lambda: recorder.waiting_octets == 0)
    recorder.take(Deliver(TSI, run_of(1000, 10)))
    recorder.close()
    rows = table(tmp_path)
    check_rows(rows, 0, 1010)
    lost = [row for row in rows.to_pylist() if row["lost"]]
    assert {row["lost"] for row in lost} == {"recorder"}
    assert len(lost) == 1
    assert 500 < lost[0]["count"] < 990
    assert recorder.counters.recorder_lost == lost[0]["count"]


_FULL = """
import resource, signal, sys
from pathlib import Path
from tests.unit.archive.test_recorder import fill_the_disk
fill_the_disk(Path(sys.argv[1]))
"""


def fill_the_disk(directory: Path) -> None:
    """In a process of its own: no file may grow beyond 64 KiB for a while, then it may again."""
    lines: list[str] = []
    recorder, writer = _recorder(directory, lines)
    recorder.take(Deliver(TSI, run_of(0, 10)))
    _until(lambda: bool(writer.index.sessions))
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64 * KIB, hard))
    for at in range(10, 1000, 10):
        recorder.take(Deliver(TSI, run_of(at, 10, 1000)))
    _until(lambda: recorder.waiting_octets == 0 and any(line.startswith("archive-full") for line in lines))
    full = [line for line in lines if line.startswith("archive-full")]
    assert len(full) == 1, lines
    assert "is full: File too large" in full[0], lines
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    _until(lambda: any(line.startswith("archive-resumed") for line in lines))
    recorder.take(Deliver(TSI, run_of(1000, 10)))
    recorder.close()
    assert recorder.failure is None


def _in_a_process(script: str, *arguments: object) -> subprocess.Popen[str]:
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", script, *map(str, arguments)]
    return subprocess.Popen(
        command, env=environment, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def test_a_full_disk_is_a_loss_in_the_archive_and_recording_goes_on_behind_it(tmp_path: Path) -> None:
    child = _in_a_process(_FULL, tmp_path)
    _, said = child.communicate(timeout=60)
    assert child.returncode == 0, said
    rows = table(tmp_path)
    check_rows(rows, 0, 1010)
    lost = [row for row in rows.to_pylist() if row["lost"]]
    assert {row["lost"] for row in lost} == {"recorder"}
    assert sum(row["count"] for row in lost) >= 900
    assert rows["sqn"].to_pylist()[-10:] == list(range(1000, 1010))


_KILLED = """
import sys
from pathlib import Path
from tests.unit.archive.test_recorder import record_for_ever
record_for_ever(Path(sys.argv[1]))
"""


def record_for_ever(directory: Path) -> None:
    """In a process of its own: record, and say what is synced."""
    recorder, writer = _recorder(directory, [])
    at = 0 if not writer.index.sessions else next(iter(writer.index.sessions.values())).next_sqn
    while True:
        if recorder.waiting_octets < 256 * KIB:
            recorder.take(Deliver(TSI, run_of(at, 50, 200)))
            at += 50
        for session in list(writer.index.sessions.values()):
            print(session.next_sqn, flush=True)


@pytest.mark.parametrize("wait_lines", [50, 700])
def test_sigkill_takes_nothing_back_that_was_acknowledged(tmp_path: Path, wait_lines: int) -> None:
    end = 0
    for _ in range(2):
        child = _in_a_process(_KILLED, tmp_path)
        assert child.stdout is not None
        for _ in range(wait_lines):
            line = child.stdout.readline()
            assert line, child.communicate()[1]
            end = int(line)
        child.send_signal(signal.SIGKILL)
        child.communicate()
        lines: list[str] = []
        assert ArchiveReader(tmp_path).holdings()[0].next_sqn >= end
        writer = ArchiveWriter(tmp_path, small(), log_to(lines))
        assert next(iter(writer.index.sessions.values())).next_sqn >= end
        writer.close()
        rows = table(tmp_path)
        assert rows.num_rows >= end
        check_rows(rows.slice(0, 20_000), 0, min(20_000, rows.num_rows))
        sqns = rows["sqn"].to_numpy()
        assert (sqns[1:] == sqns[:-1] + 1).all()


def test_a_recorder_that_breaks_says_so_and_takes_nothing_else_down(tmp_path: Path) -> None:
    lines: list[str] = []
    recorder, writer = _recorder(tmp_path, lines)
    writer.append = None  # type: ignore[method-assign, assignment]
    for at in range(0, 100, 10):
        recorder.take(Deliver(TSI, run_of(at, 10)))
    recorder.close()
    assert isinstance(recorder.failure, TypeError)
    assert recorder.waiting_octets == 0
    assert any(line.startswith("recorder-failed: recording ends: TypeError") for line in lines)


def test_a_session_nobody_knows_is_recorded_by_its_tsi_alone(tmp_path: Path) -> None:
    parameters = attrs.evolve(small(**_QUICK))
    recorder = Recorder(ArchiveWriter(tmp_path, parameters, log_to([])), parameters, _NAMES, lambda _: None, log_to([]))
    recorder.start()
    recorder.take(Deliver(TSI, run_of(0, 10)))
    recorder.close()
    (holding,) = ArchiveReader(tmp_path).holdings()
    assert (holding.tsi, holding.epoch_us, holding.stream) == (TSI_TEXT, None, None)
