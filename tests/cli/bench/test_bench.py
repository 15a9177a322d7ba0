"""`pgm bench`: every benchmark runs for real, at its smallest size.

The tests check the shape of the output and never a speed.
"""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import trio

from deploy.bench.benchmarks.record import receivers
from deploy.bench.benchmarks.recorded_repairs import repairs
from deploy.bench.contenders.registry import CONTENDERS
from deploy.bench.settings import BenchSettings
from tests.cli.command import CommandResult, command, environment, invoked, marked, pgm
from tests.cli.test_json import documented
from tests.interop.support.zmq_scene import needs_zeromq
from tests.net.support.lab import ROOT, needs_namespaces
from tests.net.support.processes import Process

TINY = ("--seconds", "0.1", "--runs", "1", "--precision", "100%")
ALWAYS = {"contender", "size", "messages_per_s", "mb_per_s", "packets_per_s", "lost", "cpu_s"}
PATIENCE_S = 240.0
OPTIONAL = ("cpu_us_per_packet", "window_overhead", "limited_by")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def bench(*arguments: str) -> CommandResult:
    line = command("bench", *TINY, *arguments)
    done = subprocess.run(
        line, capture_output=True, text=True, cwd=ROOT, env=environment(), timeout=PATIENCE_S, check=False
    )
    assert done.returncode == 0, done
    return CommandResult(done.returncode, done.stdout, done.stderr)


def rows_of(done: CommandResult) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return the rows, and the object after them."""
    *rows, last = [json.loads(line) for line in done.out.splitlines()]
    documented("bench, at its end", last)
    assert any("move between machines" in note for note in last["notes"])
    for row in rows:
        if "why_not" not in row:
            assert set(row) >= ALWAYS, row
    return rows, last


def by_name(rows: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {row["contender"]: row for row in rows}


def names(benchmark: str) -> list[str]:
    return [one.name for one in CONTENDERS if benchmark in one.benchmarks]


@needs_namespaces
def test_bench_throughput_covers_all_contenders() -> None:
    rows, last = rows_of(bench("throughput", "--sizes", "1400", "--json"))
    assert [row["contender"] for row in rows] == names("throughput")
    found = {name: row for name, row in by_name(rows).items() if "why_not" not in row}
    assert {"ours-trio", "ours-each", "ours-blocking", "ours-busy-poll", "raw-gso", "raw-single"} <= set(found)
    for name, row in found.items():
        documented("bench throughput", row, OPTIONAL)
        assert row["mb_per_s"] == pytest.approx(row["messages_per_s"] * 1400 / 1e6, rel=0.01), name
        assert row["lost"] == 0
        assert row["limited_by"], name
        assert (row["path"], row["mtu"]) == ("namespaces", 1500)
        if row["mb_per_s"]:
            assert row["cpu_s"] > 0
            assert row["packets_per_s"] > 0, name
    assert found["ours-trio"]["mb_per_s"] > 0
    assert found["ours-trio"]["cpu_us_per_packet"].keys() == {"sender", "receiver"}
    ratios = last["ratios"]["throughput"]["1400"]
    wanted = found["ours-trio"]["mb_per_s"] / found["raw-gso"]["mb_per_s"]
    assert ratios["ours-trio/raw-gso"] == pytest.approx(wanted, rel=0.01, abs=0.001)


def test_throughput_on_the_loopback_interface() -> None:
    """The output is the table, the limit of each contender, and progress during the run."""
    names = ("--contenders", "ours-busy-poll,raw-gso")
    done = bench("throughput", "--sizes", "70", *names, "--path", "loopback", "--window", "32MiB", "--precision", "90%")
    assert "messages/s" in done.out
    assert "pgm, busy-poll" in done.out
    assert "throughput: pgm divided by others" in done.out
    assert "pgm, busy-poll, 70 octets: " in done.out.replace("\n", " ")
    assert "flat out: " in done.err


@needs_namespaces
def test_bench_latency_covers_all_contenders() -> None:
    rows, last = rows_of(bench("latency", "--json"))
    assert [row["contender"] for row in rows] == names("latency")
    found = {name: row for name, row in by_name(rows).items() if "why_not" not in row}
    for row in found.values():
        documented("bench latency", row)
        assert 0 < row["min_us"] <= row["p50_us"] <= row["p99_us"] <= row["p999_us"] <= row["max_us"]
        assert row["trips"] > 0
    without = {row["contender"]: row["why_not"] for row in rows if "why_not" in row}
    always = {"ours-trio", "ours-busy-poll", "raw-trio", "raw-busy-poll", "raw-blocking"}
    assert always <= found.keys(), without
    ratios = last["ratios"]["latency"]["100"]
    assert {"ours-busy-poll/raw-busy-poll", "ours-trio/raw-trio"} <= ratios.keys()


@needs_namespaces
def test_repair_after_random_loss_and_a_burst() -> None:
    line = ("--contenders", "ours-trio,openpgm", "--burst", "300", "--loss", "2%")
    rows, _ = rows_of(bench("repair", *line, "--json"))
    parts = [(row["contender"], row.get("part")) for row in rows if row["contender"].startswith("ours")]
    kinds = (
        "2% of packets",
        "2% of packets inside trains",
        "2% of trains",
        "2% lost, told to run flat out",
        "burst of 300",
    )
    assert parts == [*(("ours-trio", kind) for kind in kinds), ("ours", "gap of 100,000")]
    for row in rows:
        assert "why_not" not in row or row["contender"] == "openpgm"
    lossy, inside, _, flat, burst, gap = (row for row in rows if row["contender"].startswith("ours"))
    documented("bench repair, random loss", lossy, ("repair_p50_ms", "repair_p99_ms", "repairs_timed"))
    documented("bench repair, told to run flat out", flat)
    documented("bench repair, a burst", burst)
    documented("bench repair, a gap", gap)
    assert lossy["lost"] == burst["lost"] == 0
    assert min(lossy["repaired"], inside["repaired"]) > 0
    assert lossy["repair_wanted_ms"] == pytest.approx(3 * lossy["round_trip_ms"] + 9.5, abs=0.01)
    assert burst["repaired"] >= 290  # a bystander counts and may miss some on a busy machine; the receiver lost none
    assert burst["ms"] > 0
    assert gap["octets_each"] < 8
    assert gap["ms"] < 50  # the gap is one range, so no work is done for each packet


def test_relays_in_the_path() -> None:
    rows, _ = rows_of(bench("relay", "--json"))
    assert [row["layout"] for row in rows] == [
        "direct", "through a relaying aggregator", "through a relaying repairer",
        "through a relaying repairer with a cache file",
    ]  # fmt: skip
    for row in rows:
        documented(
            "bench relay",
            row,
            ("of_direct", "wanted", "cpu_allows", "cpu_of_ends", "cpu_of_receiver", "cpu_limit", "window_overhead"),
        )
        assert row["mb_per_s"] > 0
    assert set(rows[1]["cpu_us_per_packet"]) == {"source", "receiver", "aggregator"}
    assert set(rows[2]["cpu_us_per_packet"]) == {"source", "receiver", "repairer"}
    assert 0 < rows[1]["wanted"] < 0.8
    assert rows[1]["cpu_allows"] > 0  # the value depends on the processor time that this machine had for each role
    assert (rows[1]["cpu_limit"], rows[2]["cpu_limit"]) == ({"cpu_of_ends": 1.2}, {"cpu_of_receiver": 1.3})


def test_rates_and_bursts() -> None:
    rows, _ = rows_of(
        bench("pacing", "--seconds", "0.2", "--rates", "10Mbit/s,400Mbit/s", "--window", "8MiB", "--json")
    )
    found = [(row["rate"], row["contender"]) for row in rows]
    assert found == [(rate, name) for rate in ("10Mbit/s", "400Mbit/s") for name in ("ours-trio", "ours-busy-poll")]
    for row in rows:
        documented("bench pacing", row)
        asked = float(row["rate"].removesuffix("Mbit/s"))
        assert 0.5 * asked < row["mbit_per_s"] < 1.05 * asked  # lower only if other processes took the processor
        assert row["burst_ms"] > 0
        assert row["allowed_ms"] >= 5


def test_idle_roles() -> None:
    rows, _ = rows_of(bench("idle", "--seconds", "0.2", "--json"))
    assert {row["contender"] for row in rows} == {"ours-source", "ours-receiver", "ours-aggregator", "ours-repairer"}
    for row in rows:
        documented("bench idle", row)
        assert 0 <= row["cpu_share"] < 0.01
        assert row["peak_mb"] > 1


def test_recording(tmp_path: Path) -> None:
    settings = BenchSettings(seconds=0.2, runs=1, folder=tmp_path)
    rows = trio.run(receivers, settings)
    assert [row["part"] for row in rows] == ["plain", "recorded"]
    for row in rows:
        documented("bench record", row)
        assert (row["mb_per_s"] > 0, row["lost"]) == (True, 0)
    assert rows[0]["recorder_lost"] == 0
    rows = trio.run(repairs, settings, (1.5,))
    assert [row["part"] for row in rows] == ["repairs at 150%, plain", "repairs at 150%, recorded"]
    for row in rows:
        documented("bench record, repairs", row)
        assert (row["mb_per_s"] > 0, row["lost"]) == (True, 0)


def test_more_receivers() -> None:
    rows, _ = rows_of(bench("scale", "--receivers", "1,3", "--simulated", "60,120", "--json"))
    assert [(row["part"], row["receivers"]) for row in rows] == [
        ("processes", 1), ("processes", 3), ("simulator", 60), ("simulator", 120),
    ]  # fmt: skip
    for row in rows[:2]:
        documented("bench scale, processes", row)
        assert row["cpu_us_per_packet_each"] > 0
    for row in rows[2:]:
        documented("bench scale, simulator", row)
        assert row["lost"] == 0
        assert row["nak_sqns"] > 0


def test_bench_plot_writes_a_picture(tmp_path: Path) -> None:
    file = tmp_path / "out.png"
    bench("idle", "latency", "--contenders", "raw-blocking", "--plot", str(file), "--path", "loopback")
    assert file.read_bytes().startswith(b"\x89PNG")


def test_bench_names_missing_contenders_before_it_starts(tmp_path: Path) -> None:
    invoked("bench", "throughput", "--contenders", "openpmg").complains(2, "openpmg", "choose from openpgm")
    invoked("bench", "throughput", "--contenders", "raw-trio").complains(2, "takes part in throughput")
    invoked("bench", "--sizes", "4").complains(2, "number", "raise --sizes")
    invoked("bench", "--plot", str(tmp_path / "nowhere" / "out.png")).complains(2, "is not a folder")
    invoked("bench", "scale", "--simulated", "100001").complains(2, "at most 100,000", "lower --simulated")
    for rate in ("0bit/s", "100bit/s"):
        refused = invoked("bench", "pacing", "--rates", f"1Mbit/s,{rate}")
        assert refused.code == 2
        assert "rates from 8kbit/s" in refused.err
    invoked("bench", "--plot", str(tmp_path / "out.txt")).complains(2, "out.txt", "use the suffix .png, .svg or .pdf")
    invoked("bench", "relay", "--contenders", "openpgm").complains(2, "takes part in relay", "ours-trio")
    for name in ("idle", "record"):
        invoked("bench", name, "--contenders", "ours-trio").complains(
            2, f"--contenders does not apply to {name}", "omit --contenders"
        )
    for name, path, only in (
        ("idle", "namespaces", "loopback"),
        ("record", "namespaces", "loopback"),
        ("files", "loopback", "namespaces"),
    ):
        invoked("bench", name, "--path", path).complains(
            2, f"{name} is not measured on --path {path}", f"use --path {only}"
        )
    (tmp_path / "matplotlib.py").write_text("raise ImportError('not here')")
    hidden = {"PYTHONPATH": f"{tmp_path}:{ROOT}"}
    pgm("bench", "--plot", "out.png", env=hidden).complains(2, "matplotlib", "pgm-repair-network[bench]")
    unknown = invoked("bench", "fast")
    assert unknown.code == 2
    assert "throughput" in unknown.err


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["Ctrl-C", "SIGTERM"])
def test_bench_stopped_run_leaves_nothing(number: signal.Signals, code: int) -> None:
    with TemporaryDirectory() as folder, marked() as mark:
        env = {**mark.env, "TMPDIR": folder}
        line = ["bench", "throughput", "--sizes", "1400", "--contenders", "ours-trio,raw-gso"]
        process = Process("bench", [*line, "--seconds", "0.5", "--runs", "999"], env=env)
        try:
            process.line_with("flat out")
            process.process.send_signal(number)
            assert process.wait() == code, process.log
            assert "Traceback" not in process.log
            mark.until_nothing_runs()
        finally:
            process.close()
        assert list(Path(folder).iterdir()) == []


def test_bench_killed_run_ends_its_processes() -> None:
    with TemporaryDirectory() as folder, marked() as mark:
        line = ["bench", "latency", "--contenders", "raw-blocking", "--seconds", "0.5", "--runs", "999"]
        process = Process("bench", line, env={**mark.env, "TMPDIR": folder})
        try:
            process.line_with("octets in each direction")
            process.process.kill()
            process.wait()
            mark.until_nothing_runs(30.0)
        finally:
            process.close()


def test_messages_with_subjects() -> None:
    ours = ["ours-messages", "ours-messages-busy-poll"]
    rows, _ = rows_of(bench("messages", "--contenders", ",".join(ours), "--path", "loopback", "--json"))
    assert [(row["contender"], row["mtu"]) for row in rows] == [(name, mtu) for mtu in (1500, 9000) for name in ours]
    for row in rows:
        documented("bench messages", row, OPTIONAL)
        assert row["messages_per_s"] > row["packets_per_s"] > 0
        assert row["lost"] == 0


@needs_namespaces
@needs_zeromq
def test_messages_beside_zeromq() -> None:
    rows, last = rows_of(bench("messages", "--contenders", "ours-messages,zeromq", "--json"))
    found = {(row["contender"], row["mtu"]): row.get("messages_per_s") for row in rows}
    assert set(found) == {(name, mtu) for mtu in (1500, 9000) for name in ("ours-messages", "zeromq")}
    for mtu in (1500, 9000):
        ours, theirs = found["ours-messages", mtu], found["zeromq", mtu]
        if ours and theirs:
            ratio = last["ratios"]["messages"][str(mtu)]["ours-messages/zeromq"]
            assert ratio == pytest.approx(ours / theirs, rel=0.01, abs=0.001)
