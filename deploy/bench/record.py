"""`pgm bench record`: what recording costs a receiver, at a share of what the disk takes, measured in the same run."""

from __future__ import annotations

import os
import shutil
import statistics
import time
from pathlib import Path
from typing import Any

import trio

from deploy.bench.place import ETHERNET_MTU, open_place
from deploy.bench.settings import Row, Settings
from deploy.record import need_arrow
from deploy.supervise import Supervisor
from pgm.net.nurseries import open_plain_nursery
from pgm.parameters import Parameters
from pgm.units import MIB

SHARE = 0.6  # of the disk's rate
_SIZE = 1400
_PARTS = ("plain", "recorded")
_TOPOLOGY = """\
version = 1
name = "record"
parameters = {{ fin_quiet_ivl = "300ms" }}

[streams.numbers]
data_port = 7500
rate = "{rate}B/s"
window = "256MiB"

[segments.lan]
group = "239.192.66.1"
port = 23456
interface = "127.66.{net}.0/24"

[nodes.source]
role = "source"
segment = "lan"
address = "127.66.{net}.1"
streams = ["numbers"]

[nodes.desk]
role = "receiver"
segment = "lan"
address = "127.66.{net}.2"
parents = ["source"]
"""


async def record(settings: Settings) -> list[Row]:
    """Rows of a receiver that records and of one that does not, at 60 % of the disk's rate of sequential writes and syncs.

    The disk is that of the folder for temporary files, `TMPDIR`.
    """
    need_arrow()
    settings.say(f"writing to {settings.folder} for {settings.seconds:g} s")
    disk = await trio.to_thread.run_sync(disk_rate, settings.folder, settings.seconds)
    rate = int(SHARE * disk)
    messages = max(1, int(rate * settings.seconds) // _SIZE)
    file = settings.folder / "record.toml"
    file.write_text(_TOPOLOGY.format(rate=rate, net=os.getpid() % 250))
    runs: dict[str, list[dict[str, Any]]] = {part: [] for part in _PARTS}
    with open_place("loopback", ETHERNET_MTU):
        for _ in range(settings.runs):
            for part in _PARTS:
                settings.say(f"{messages:,} messages, {part}")
                runs[part].append(await _run(settings.folder, file, part, messages))
    rows = [_row(part, found, disk) for part, found in runs.items()]
    for row in rows:
        row["of_plain"] = round(row["mb_per_s"] / rows[0]["mb_per_s"], 3)
        settings.emit(row)
    return rows


def disk_rate(folder: Path, seconds: float) -> float:
    """Octets a second that go to the disk in a row, a MiB at a time, synced as often as an archive is."""
    block, each = os.urandom(MIB), Parameters().record_sync_bytes // MIB
    path = folder / "probe"
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    began, written = time.monotonic(), 0
    try:
        while time.monotonic() - began < seconds:
            for _ in range(each):
                written += os.write(fd, block)
            os.fdatasync(fd)
        return written / (time.monotonic() - began)
    finally:
        os.close(fd)
        path.unlink()


async def _run(folder: Path, file: Path, part: str, messages: int) -> dict[str, Any]:
    """One stream to one receiver; gives its account, and the seconds from the first message until the end was heard."""
    closed = trio.Event()

    def heard(node: str, line: str) -> None:
        if node == "desk" and line.startswith("closed:"):
            closed.set()

    archive = folder / "archive"
    options = ["--until-closed", *(["--dir", str(archive)] if part == "recorded" else [])]
    async with open_plain_nursery() as nursery:
        supervisor = Supervisor(file, nursery, folder, heard)
        try:
            desk = await supervisor.start("desk", options, verb="record" if part == "recorded" else "run")
            work = ["--generate", str(messages), "--size", str(_SIZE), "--hold"]
            source = await supervisor.start("source", work, has_stdin=True)
            assert source.process.stdin is not None
            began = trio.current_time()
            await source.process.stdin.send_all(b"go\n")
            await closed.wait()
            seconds = trio.current_time() - began
            await desk.done.wait()
            await source.done.wait()
            if desk.result is None:
                raise desk.failure()
        finally:
            supervisor.kill_all()
            shutil.rmtree(archive, ignore_errors=True)
        nursery.cancel_scope.cancel()
    return desk.result | {"seconds": seconds}


def _row(part: str, runs: list[dict[str, Any]], disk: float) -> Row:
    counters = [run["snapshot"]["counters"] for run in runs]
    packets = [one.get("delivered_packets", 0) for one in counters]
    rates = [count / run["seconds"] for count, run in zip(packets, runs, strict=True)]
    return {
        "benchmark": "record",
        "part": part,
        "contender": f"ours-{part}",
        "title": f"pgm, {part}",
        "size": _SIZE,
        "messages_per_s": round(statistics.median(rates)),
        "mb_per_s": round(statistics.median(rates) * _SIZE / 1e6, 1),
        "packets_per_s": round(statistics.median(rates)),
        "lost": sum(one.get("lost_sqns", 0) for one in counters),
        "recorder_lost": sum(one.get("recorder_lost", 0) for one in counters),
        "cpu_s": round(statistics.median(run["snapshot"]["cpu_s"] for run in runs), 3),
        "disk_mb_per_s": round(disk / 1e6, 1),
    }
