"""The recorder: all its input is in the archive as messages or losses, despite failures of disk and process."""

from __future__ import annotations

import copy
import errno
import os
import random
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pgm.archive.errors import ArchiveError
from pgm.archive.recording.feeds import RowNames, feed_of
from pgm.archive.recording.recorder import Recorder
from pgm.archive.recording.row_collector import RowCollector
from pgm.archive.recording.shared_ring import RingTally
from pgm.archive.store.reader import ArchiveReader
from pgm.archive.store.writer import ArchiveWriter
from pgm.core.counters import Counters
from pgm.core.effects import CloseCause, Closed, Deliver, LossCause, Lost
from pgm.core.session.state import NO_EPOCH, SessionEpoch, SessionState
from pgm.core.session_context import SessionContext
from pgm.core.source_names import NamedTsi
from pgm.parameters import Parameters
from pgm.units import KIB, MILLISECOND
from tests.cli.command import invoked
from tests.net.support.lab import ROOT
from tests.unit.archive.makers import TSI, TSI_TEXT, check_rows, log_to, run_of, small, table

_QUICK = {"record_batch_ivl": MILLISECOND, "record_sync_ivl": MILLISECOND, "record_retry_ivl": 10 * MILLISECOND}
_NAMES = RowNames("recorder-1", "core", {7500: "quotes"})


_EPOCH = SessionEpoch(5_000_000, 0)


def _path(epoch: SessionEpoch = _EPOCH) -> SessionState:
    path = SessionState(SessionContext(NamedTsi.of(TSI, "exchange"), 7500, Parameters(), Counters(), random.Random(1)))
    path.epoch = epoch
    return path


def _recorder(directory: Path, lines: list[str], path: SessionState | None = None, **values: Any) -> Recorder:
    session = path or _path()
    recorder = Recorder(directory, small(**_QUICK | values), _NAMES, lambda _: session, log_to(lines))
    recorder.start()
    return recorder


def _recorded(directory: Path) -> int:
    """Return the next sqn on disk of the only session."""
    return max((one.next_sqn for one in ArchiveReader(directory).holdings()), default=0)


def _until(is_so: Callable[[], bool]) -> None:
    waiting = threading.Event()
    for _ in range(2000):
        if is_so():
            return
        waiting.wait(0.005)
    raise AssertionError("the condition did not hold within 10 s")


def test_runs_losses_and_endings_become_rows(tmp_path: Path) -> None:
    recorder = _recorder(tmp_path, [])
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


def test_recorder_outage_is_a_loss_and_repeats_are_dropped(tmp_path: Path) -> None:
    feed = feed_of(TSI, _path(), _NAMES)
    for runs in ([run_of(0, 10)], [run_of(25, 10)], [run_of(30, 10), run_of(40, 5)]):
        recording = RowCollector(ArchiveWriter(tmp_path, small(), log_to([])), small(), log_to([]))
        for run in runs:
            recording.add_run(feed, run, 1)
        recording.close()
    rows = table(tmp_path)
    check_rows(rows, 0, 45)
    lost = [(row["sqn"], row["count"], row["lost"]) for row in rows.to_pylist() if row["lost"]]
    assert lost == [(10, 15, "recorder")]


def test_recorder_late_epoch_begins_a_session_with_own_sqns(tmp_path: Path) -> None:
    path = _path(NO_EPOCH)
    recorder = _recorder(tmp_path, [], path)
    recorder.take(Deliver(TSI, run_of(5, 5)))
    path.epoch = SessionEpoch(7_000_000, 1 << 32)
    recorder.take(Deliver(TSI, run_of(10, 5)))
    recorder.close()
    known = {(one.epoch_us, one.oldest, one.next_sqn, one.closed) for one in ArchiveReader(tmp_path).holdings()}
    assert known == {(None, 5, 10, True), (7000, (1 << 32) + 10, (1 << 32) + 15, False)}


def test_recorder_full_queue_drops_reports_and_never_waits(tmp_path: Path) -> None:
    lines: list[str] = []
    recorder = _recorder(tmp_path, lines, record_queue_bytes=64 * KIB)
    recorder.take(Deliver(TSI, run_of(0, 10)))
    _until(lambda: _recorded(tmp_path) == 10)
    os.kill(recorder.pid, signal.SIGSTOP)
    for at in range(10, 1000, 10):
        recorder.take(Deliver(TSI, run_of(at, 10, 1000)))
        assert recorder.waiting_octets <= 64 * KIB
    os.kill(recorder.pid, signal.SIGCONT)
    _until(lambda: _recorded(tmp_path) == 1000)  # without further input
    recorder.take(Deliver(TSI, run_of(1000, 10)))
    recorder.close()
    rows = table(tmp_path)
    check_rows(rows, 0, 1010)
    lost = [row for row in rows.to_pylist() if row["lost"]]
    assert {row["lost"] for row in lost} == {"recorder"}
    assert len(lost) == 1
    assert 500 < lost[0]["count"] < 990
    assert recorder.counters.recorder_lost == lost[0]["count"]
    assert any(line.startswith(f"archive-slow: {lost[0]['count']} packets") for line in lines), lines


def test_recorder_full_disk_is_a_loss_and_recording_goes_on(tmp_path: Path) -> None:
    """For a while no file of the writing process may grow beyond 64 KiB."""
    lines: list[str] = []
    recorder = _recorder(tmp_path, lines)
    recorder.take(Deliver(TSI, run_of(0, 10)))
    _until(lambda: _recorded(tmp_path) == 10)
    _, hard = resource.prlimit(recorder.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(recorder.pid, resource.RLIMIT_FSIZE, (64 * KIB, hard))
    for at in range(10, 1000, 10):
        recorder.take(Deliver(TSI, run_of(at, 10, 1000)))
    _until(lambda: any(line.startswith("archive-full") for line in lines))
    full = [line for line in lines if line.startswith("archive-full")]
    assert len(full) == 1, lines
    assert "is full: File too large" in full[0], lines
    resource.prlimit(recorder.pid, resource.RLIMIT_FSIZE, (hard, hard))
    _until(lambda: any(line.startswith("archive-resumed") for line in lines))
    recorder.take(Deliver(TSI, run_of(1000, 10)))
    recorder.close()
    assert recorder.failure is None
    rows = table(tmp_path)
    check_rows(rows, 0, 1010)
    lost = [row for row in rows.to_pylist() if row["lost"]]
    assert {row["lost"] for row in lost} == {"recorder"}
    assert sum(row["count"] for row in lost) >= 900
    assert rows["sqn"].to_pylist()[-10:] == list(range(1000, 1010))


def test_collector_full_disk_is_two_events_and_adds_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small rows of losses find room again and again, and data none: still one event at the start and one at the end."""
    lines: list[str] = []
    parameters = small(**_QUICK)
    is_full, write = False, os.pwrite

    def refused(fd: int, octets: memoryview, at: int) -> int:
        if is_full and len(octets) > 8 * KIB:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(fd, octets, at)

    monkeypatch.setattr(os, "pwrite", refused)
    told: list[RingTally] = []
    writer = ArchiveWriter(tmp_path, parameters, log_to(lines))
    collector = RowCollector(writer, parameters, log_to(lines), publish=lambda tally: told.append(copy.deepcopy(tally)))
    feed = feed_of(TSI, _path(), _NAMES)
    now_ns = [time.monotonic_ns()]
    monkeypatch.setattr("pgm.archive.recording.row_collector.time.monotonic_ns", lambda: now_ns[0])

    def pass_10_ms(at: int) -> None:
        collector.add_run(feed, run_of(at, 10, 1000), 1)
        now_ns[0] += parameters.record_retry_ivl
        collector.on_time()

    for step in range(120):
        is_full = 10 <= step < 60
        pass_10_ms(10 * step)
        if is_full:
            assert told[-1].unwritten + told[-1].lost.get("recorder", 0) > 0
    collector.close()
    assert [line.partition(":")[0] for line in lines] == ["archive-full", "archive-resumed"], lines
    rows = table(tmp_path)
    check_rows(rows, 0, 1200)
    lost = sum(row["count"] for row in rows.to_pylist() if row["lost"])
    assert lost >= 490
    assert (told[-1].lost, told[-1].unwritten) == ({"recorder": lost}, 0)
    assert told[-1].rows - told[-1].loss_rows + lost == 1200
    assert f": {lost} packets" in lines[1]


def test_collector_full_disk_at_the_end_takes_the_losses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reserve gives the last rows of losses room, so that the archive itself tells what it lacks."""
    is_full, write = False, os.pwrite

    def refused(fd: int, octets: memoryview, at: int) -> int:
        if is_full and (tmp_path / "reserve").exists():
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(fd, octets, at)

    monkeypatch.setattr(os, "pwrite", refused)
    collector = RowCollector(ArchiveWriter(tmp_path, small(), log_to([])), small(), log_to([]))
    feed = feed_of(TSI, _path(), _NAMES)
    collector.add_run(feed, run_of(0, 10), 1)
    is_full = True
    collector.add_run(feed, run_of(10, 10), 1)
    collector.close()
    check_rows(table(tmp_path), 0, 20)
    assert (collector.tally.rows, collector.tally.lost) == (1, {"recorder": 20})
    verified = invoked("archive", "verify", tmp_path)
    assert (verified.code, "lost packets: 20 (recorder: 20)" in verified.out) == (0, True), verified


def _in_a_process(script: str, *arguments: object) -> subprocess.Popen[str]:
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", script, *map(str, arguments)]
    return subprocess.Popen(
        command, env=environment, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


_KILLED = """
import sys
from pathlib import Path
from tests.unit.archive.test_recorder import record_for_ever
record_for_ever(Path(sys.argv[1]))
"""


def record_for_ever(directory: Path) -> None:
    """Record in a process of its own, and print the synced sqn and the accepted sqn."""
    recorder = _recorder(directory, [])
    at = _recorded(directory)
    while True:
        for _ in range(20):
            if recorder.waiting_octets < 256 * KIB:
                recorder.take(Deliver(TSI, run_of(at, 50, 200)))
                at += 50
        print(_recorded(directory), at, flush=True)


def test_recorder_sigkill_loses_nothing_handed_over(tmp_path: Path) -> None:
    end = taken = 0
    for wait_lines in (5, 30):
        child = _in_a_process(_KILLED, tmp_path)
        assert child.stdout is not None
        for _ in range(wait_lines):
            line = child.stdout.readline()
            assert line, child.communicate()[1]
            end, taken = map(int, line.split())
        child.send_signal(signal.SIGKILL)
        child.communicate()
        assert _recorded(tmp_path) >= end
        writer = ArchiveWriter(tmp_path, small(), log_to([]))  # waits for the end of the writing process
        assert next(iter(writer.index.sessions.values())).next_sqn >= taken > end - 50
        writer.close()
        rows = table(tmp_path)
        assert rows.num_rows >= taken
        assert rows["lost"].null_count == rows.num_rows
        check_rows(rows.slice(0, 20_000), 0, min(20_000, rows.num_rows))
        sqns = rows["sqn"].to_numpy()
        assert (sqns[1:] == sqns[:-1] + 1).all()


def test_recorder_dead_writer_is_restarted_with_a_loss(tmp_path: Path) -> None:
    lines: list[str] = []
    recorder = _recorder(tmp_path, lines, record_batch_ivl=3600 * 10**9, record_sync_ivl=3600 * 10**9)
    other = bytes([9, *TSI[1:]])
    recorder.take(Deliver(TSI, run_of(0, 10)))
    recorder.take(Deliver(other, run_of(0, 7)))
    _until(lambda: recorder.waiting_octets == 0)
    os.kill(recorder.pid, signal.SIGSTOP)
    recorder.take(Deliver(TSI, run_of(10, 10)))
    os.kill(recorder.pid, signal.SIGKILL)
    recorder.take(Closed(other, 7, CloseCause.FIN))
    _until(lambda: recorder.waiting_octets == 0)  # a new writing process took it
    recorder.take(Deliver(TSI, run_of(20, 10)))
    recorder.close()
    assert (recorder.failure, recorder.counters.recorder_deaths) == (None, 1)
    (died,) = [line for line in lines if line.startswith("recorder-died")]
    assert "ended by SIGKILL" in died
    assert "(1 of 5)" in died
    rows = table(tmp_path)
    check_rows(rows, 0, 30)
    lost = [(row["sqn"], row["count"], row["lost"]) for row in rows.to_pylist() if row["lost"]]
    assert lost == [(0, 10, "recorder")]
    ended = table(tmp_path, tsi="9.2.3.4.5.6.7500").to_pylist()
    assert [(row["sqn"], row["count"], row["lost"]) for row in ended] == [(0, 7, "recorder")]
    assert {one.closed for one in ArchiveReader(tmp_path).holdings() if one.tsi != TSI_TEXT} == {True}


def test_recorder_writer_that_keeps_dying_ends_recording_only(tmp_path: Path) -> None:
    lines: list[str] = []
    recorder = _recorder(tmp_path, lines, record_restarts=1)
    for left in (1, 0):
        before = recorder.pid
        os.kill(before, signal.SIGKILL)
        _until(lambda died=before: recorder.failure is not None or recorder.pid != died)  # type: ignore[misc]
        assert (recorder.failure is None) == bool(left)
    recorder.take(Deliver(TSI, run_of(0, 10)))
    recorder.take(Closed(TSI, 10, CloseCause.FIN))
    assert recorder.counters.recorder_lost == 10
    recorder.close()
    assert recorder.account()["lost"] == {"recorder": 10}
    assert [line.partition(":")[0] for line in lines] == ["recorder-died", "recorder-failed"]
    assert recorder.waiting_octets == 0


def test_recorder_unusable_directory_is_reported_at_the_start(tmp_path: Path) -> None:
    writer = ArchiveWriter(tmp_path, small(), log_to([]))
    with pytest.raises(ArchiveError, match="another process records"):
        _recorder(tmp_path, [], record_lock_ivl=MILLISECOND)
    writer.close()


_FRUGAL = """
import sys
import deploy.archive.record, repairer.process
assert not any(name.partition(".")[0] == "pyarrow" for name in sys.modules)
"""


def test_recorder_node_process_does_not_import_arrow() -> None:
    child = _in_a_process(_FRUGAL)
    _, said = child.communicate(timeout=60)
    assert child.returncode == 0, said


def test_recorder_unknown_session_is_recorded_by_its_tsi() -> None:
    session = feed_of(TSI, None, _NAMES).session
    assert (session.tsi, session.epoch_us, session.stream) == (TSI_TEXT, None, None)
