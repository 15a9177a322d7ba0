"""Disk measurement and stream run of `pgm bench record`."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import trio

from deploy.bench.place import BenchNetwork
from deploy.node.supervisor import Supervisor
from pgm.net.driver.nurseries import open_plain_nursery
from pgm.parameters import Parameters
from pgm.units import MIB

SIZE = 1400
_HEAD = """\
version = 1
name = "record"
parameters = {{ fin_quiet_ivl = "300ms" }}

[streams.numbers]
data_port = 7500
rate = "{rate}B/s"
window = "{window}"

[segments.lan]
group = "{group}"
port = {port}
interface = "{network}"

[nodes.source]
role = "source"
segment = "lan"
address = "{source}"
streams = ["numbers"]
"""


def head(place: BenchNetwork, rate: int, window: str) -> str:
    """Return the start of a topology file, up to and including its source.

    The source at host 0 has one stream of `rate` octets a second on segment 0.
    """
    where = {"group": place.group(0), "port": place.port, "network": place.network(0)}
    return _HEAD.format(rate=rate, window=window, source=place.seat(0, 0).address, **where)


def disk_rate(folder: Path, seconds: float, sync_octets: int = Parameters().record_sync_bytes) -> float:
    """Return the disk's rate of sequential writes of 1 MiB at most, octets a second, with an archive's syncs."""
    block = os.urandom(min(MIB, sync_octets))
    path = folder / "probe"
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    began, written = time.monotonic(), 0
    try:
        while time.monotonic() - began < seconds:
            for _ in range(sync_octets // len(block)):
                written += os.write(fd, block)
            os.fdatasync(fd)
        return written / (time.monotonic() - began)
    finally:
        os.close(fd)
        path.unlink()


async def until_closed_or_ended(closed: trio.Event, ended: trio.Event) -> None:
    """Wait until the receiver has reported the end of the stream, or has ended."""
    async with open_plain_nursery() as nursery:

        async def wait(event: trio.Event) -> None:
            await event.wait()
            nursery.cancel_scope.cancel()

        nursery.start_soon(wait, closed)
        nursery.start_soon(wait, ended)


async def run_tree(
    folder: Path,
    file: Path,
    messages: int,
    options: Sequence[str] = (),
    *,
    verb: str = "run",
    elements: Sequence[str] = (),
) -> dict[str, Any]:
    """Send one stream from `source` to `desk` and return the result of `desk`.

    The result also has the seconds from the first message to the end of the stream, and the last snapshots of
    `elements`. Raises `ProcessError`.
    """
    closed = trio.Event()

    def on_row(row: dict[str, Any]) -> None:
        if row["node"] == "desk" and row["code"].startswith("closed-"):
            closed.set()

    async with open_plain_nursery() as nursery:
        supervisor = Supervisor(file, nursery, folder, on_row)
        try:
            await supervisor.start_all(elements)
            desk = await supervisor.start("desk", ["--until-closed", *options], verb=verb)
            work = ["--generate", str(messages), "--size", str(SIZE), "--hold"]
            source = await supervisor.start("source", work, has_stdin=True)
            assert source.process.stdin is not None
            began = trio.current_time()
            await source.process.stdin.send_all(b"go\n")
            await until_closed_or_ended(closed, desk.done)
            seconds = trio.current_time() - began
            await desk.done.wait()
            await source.done.wait()
            for name in elements:
                supervisor.children[name].process.terminate()
                await supervisor.children[name].done.wait()
            if desk.result is None:
                raise desk.failure()
            snapshots = {name: (supervisor.children[name].result or {}).get("snapshot", {}) for name in elements}
        finally:
            supervisor.kill_all()
        nursery.cancel_scope.cancel()
    return desk.result | {"seconds": seconds, "elements": snapshots}
