"""`pgm bench files`: the parts that decide what is a result, and one small transfer for real."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import trio

from deploy.bench.benchmarks.files import Process, Transfer, are_same, figures, make_file
from deploy.bench.command import _check
from deploy.bench.contenders.files import FILE_CONTENDERS, FileJob, OursFiles, Uftp, select_file_contenders
from deploy.bench.contenders.registry import require_known
from deploy.bench.ratios import ratios_of
from pgm.errors import UsageError
from pgm.topology.load import load_checked
from pgm.topology.plan import plan_all
from tests.cli.command import PATIENCE_S, command, environment, invoked
from tests.cli.test_json import documented
from tests.net.support.lab import needs_namespaces


def a_job(folder: Path, receivers: int = 3) -> FileJob:
    folders = tuple(folder / f"into-{number}" for number in range(receivers))
    return FileJob(folder / "file", folders, folder, buffer=4 << 20, rate=200_000_000)


def test_the_median_counts_and_what_failed_is_told() -> None:
    runs = [Transfer(seconds, 1.0, 0.5, "") for seconds in (9.0, 4.0, 5.0)]
    row = figures(runs, 1_000_000_000, 0)
    assert (row["seconds"], row["mb_per_s"], row["failed"], row["runs_seconds"]) == (5.0, 200.0, 0, [9.0, 4.0, 5.0])
    row = figures([*runs[:2], Transfer(0.1, 0.0, 0.0, "a copy is incomplete")], 1000, 200_000_000)
    assert (row["seconds"], row["failed"], row["rate"]) == (6.5, 1, "1600Mbit/s")
    assert row["limited_by"] == "a copy is incomplete"
    row = figures([Transfer(0.1, 0.0, 0.0, "the sender ended with 1")], 1000, 0)
    assert "seconds" not in row


def test_ratios_are_of_times() -> None:
    rows = [
        {"contender": "ours-files", "size": 1000, "seconds": 2.0},
        {"contender": "uftp", "size": 1000, "seconds": 4.0},
    ]
    assert ratios_of(rows, "seconds") == {"1000": {"ours-files/uftp": 0.5}}


def test_copies_are_compared_octet_by_octet(tmp_path: Path) -> None:
    file, copy = tmp_path / "file", tmp_path / "copy"
    make_file(file, 100_000)
    assert file.stat().st_size == 100_000
    assert not are_same(file, [copy])
    copy.write_bytes(file.read_bytes())
    assert are_same(file, [copy, file])
    copy.write_bytes(file.read_bytes()[:-1])
    assert not are_same(file, [copy])
    damaged = bytearray(file.read_bytes())
    damaged[70_000] ^= 1
    copy.write_bytes(damaged)
    assert not are_same(file, [file, copy])


def test_bench_contender_command_lines(tmp_path: Path) -> None:
    job = a_job(tmp_path)
    ours, uftp = OursFiles("crc32", "ours"), Uftp()
    ours.prepare(job)
    uftp.prepare(job)
    assert set(plan_all(load_checked(tmp_path / "tree.toml"))) == {"source", "desk-1", "desk-2", "desk-3"}
    assert ours.sender(job)[-2:] == ["--receivers", "3"]
    line = uftp.sender(job)
    assert line[line.index("-R") + 1] == "1600000"
    assert line[line.index("-H") + 1] == "0x00000001,0x00000002,0x00000003"
    for number in range(3):
        assert uftp.receiver(job, number)[-1] == str(tmp_path / f"uftp-{number}")


def test_contenders_are_chosen_by_name() -> None:
    assert [one.name for one in select_file_contenders(())] == [one.name for one in FILE_CONTENDERS]
    assert [one.name for one in select_file_contenders(("uftp",))] == ["uftp"]
    with pytest.raises(UsageError, match="zeromq"):
        select_file_contenders(("zeromq",))


def test_a_name_is_known_or_refused_wherever_it_takes_part() -> None:
    """What is wrong in a list is not passed over because the rest of it is right."""
    require_known(("ours-files", "uftp", "ours-trio"))
    with pytest.raises(UsageError, match="there is no contender 'utfp'") as found:
        require_known(("ours-files", "utfp"))
    assert found.value.remedy == "choose from uftp"
    invoked("bench", "files", "--contenders", "ours-files,utfp").complains(2, "there is no contender 'utfp'")
    both = {"sizes": (100,), "simulated": (), "path": "auto", "contenders": ("ours-trio", "ours-files")}
    _check(("throughput", "files"), None, both)


def test_a_process_is_measured_and_ended(tmp_path: Path) -> None:
    async def measure() -> None:
        busy = Process([sys.executable, "-c", "sum(range(3_000_000)); print('said')"], tmp_path / "busy.log")
        assert await busy.wait(PATIENCE_S)
        assert (busy.code, busy.output_tail()) == (0, "said\n")
        assert busy.cpu_s > 0
        stays = Process(["sleep", "600"], tmp_path / "stays.log")
        assert not await stays.wait(0.0)
        stays.end()
        assert stays.code == -signal.SIGKILL

    trio.run(measure)


@needs_namespaces
def test_a_file_is_sent_for_real() -> None:
    """Beside uftp where that is installed; nothing is left of either."""
    here = [one.name for one in FILE_CONTENDERS if not one.why_not()]
    options = ["--file-size", "3MB", "--file-receivers", "2", "--runs", "1", "--uftp-rates", "200Mbit/s", "--json"]
    line = command("bench", "files", *options)
    done = subprocess.run(line, capture_output=True, text=True, env=environment(), timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stderr
    *rows, last = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row["contender"] for row in rows] == [one.name for one in FILE_CONTENDERS]
    for row in rows:
        if row["contender"] in here:
            assert row["failed"] == 0, row
            assert row["seconds"] > 0
            documented("bench files", row, ("rate", "limited_by"))
    if len(here) == len(FILE_CONTENDERS):
        assert last["ratios"]["files"]["3000000"]["ours-files/uftp"] > 0


@needs_namespaces
@pytest.mark.skipif(bool(Uftp().why_not()), reason=Uftp().why_not())
def test_a_benchmark_that_is_killed_leaves_no_daemon(tmp_path: Path) -> None:
    options = ["--contenders", "uftp", "--file-size", "3MB", "--runs", "1", "--uftp-rates", "1Mbit/s"]
    line, told = command("bench", "files", *options), environment() | {"TMPDIR": str(tmp_path)}
    with subprocess.Popen(line, stderr=subprocess.DEVNULL, env=told) as running:
        deadline = time.monotonic() + PATIENCE_S
        while not (daemons := _daemons_of(running.pid)) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert daemons
        running.kill()
        while any(Path(f"/proc/{pid}").exists() for pid in daemons) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not any(Path(f"/proc/{pid}").exists() for pid in daemons)


def _daemons_of(parent: int) -> list[int]:
    children = [int(pid) for pid in Path(f"/proc/{parent}/task/{parent}/children").read_text().split()]
    return [pid for pid in children if Path(f"/proc/{pid}/comm").read_text().startswith("uftpd")]
