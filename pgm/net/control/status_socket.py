"""Status socket: a Unix socket per node that gives one CBOR snapshot to every client.

It lies under `$PGM_RUNTIME_DIR`, else `$XDG_RUNTIME_DIR/pgm`, else `/tmp/pgm-UID`, in a folder of the topology's name,
readable by its owner only. Only root and the node's user may be able to change that folder and those above it
(`pgm.net.sockets.trusted_folders`).
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cbor2
import trio

from pgm.errors import ProcessError
from pgm.net.control.clients import accept_client, send_all
from pgm.net.control.files_watch import FilesCheck
from pgm.net.control.outages import Outages, counters_of, sample_outages
from pgm.net.driver.event_loops import TaskStatus, current_loop
from pgm.net.driver.node_driver import NodeDriver
from pgm.net.link.link import Link
from pgm.net.plan_digest import plan_digest
from pgm.net.sockets.unix import connect, listening
from pgm.telemetry.rates import SAMPLE_IVL, Rates
from pgm.telemetry.snapshot import MOST_EVENTS, Snapshot, take_snapshot
from pgm.topology.node_plan import NodePlan
from pgm.units import SECOND

_ASK_TIMEOUT_S = 2.0  # a node that does not answer a local socket in two seconds hangs
_MOST_OCTETS = 1 << 24


def runtime_dir(topology: str) -> Path:
    """Return the folder of a topology's status sockets."""
    base = os.environ.get("PGM_RUNTIME_DIR")
    if base is None:
        xdg = os.environ.get("XDG_RUNTIME_DIR")
        base = f"{xdg}/pgm" if xdg and Path(xdg).is_dir() else f"/tmp/pgm-{os.getuid()}"
    return Path(base) / topology.replace("/", "_")


def status_path(topology: str, node: str) -> Path:
    """Return the path of one node's status socket."""
    return runtime_dir(topology) / f"{node.replace('/', '_')}.sock"


def describe_links(links: list[Link] | tuple[Link, ...]) -> list[dict[str, Any]]:
    """Return a row of facts for each of a node's links."""
    rows = []
    for link in links:
        row: dict[str, Any] = {
            "segment": link.plan.name,
            "side": link.plan.side,
            "interface": link.sockets.interface.name,
            "address": link.segment.address,
            "group": link.plan.where,
            "transport": link.plan.transport,
            "peers": None if link.plan.peers is None else list(link.plan.peers),
            "gso": link.sockets.gso,
            "gro": link.sockets.gro,
            "rcvbuf": link.sockets.buffers.rcvbuf,
            "sndbuf": link.sockets.buffers.sndbuf,
        }
        if link.injector is not None:
            row["injected"] = {
                "asked": round(link.injector.impairment.asked, 9),
                "seen": link.injector.seen,
                "lost": link.injector.lost,
            }
        rows.append(row)
    return rows


def snapshot_of(plan: NodePlan, driver: NodeDriver, started_ns: int) -> Snapshot:
    """Return the snapshot of a running node, with all of its endpoints in this process."""
    endpoints = driver.endpoints or (driver,)
    parts = [(endpoint.plan or plan, endpoint.core) for endpoint in endpoints]
    links = describe_links(list(driver.links))
    events = [event for endpoint in endpoints for event in endpoint.recent_events()]
    events = sorted(events, key=lambda event: event["at_s"])[-MOST_EVENTS:]
    snapshot = take_snapshot(parts, driver.links.gone, driver.now_ns(), started_ns, links, driver.rates, events)
    own = parts[0][0]  # with all that was taken in place
    return {**snapshot, "file_part": plan_digest(own) if own.digest else ""}


async def keep_rates(driver: NodeDriver, outages: Outages, files: FilesCheck) -> None:
    """Sample a node's counters once a second until cancelled, for the rates of its snapshots and for events."""
    loop, rates = current_loop(), Rates()
    driver.rates = rates
    while True:
        counters = counters_of(driver)
        rates.sample(counters, driver.now_ns(), time.time())
        sample_outages(driver, outages, counters)
        files.sample(driver, counters)
        await loop.sleep(SAMPLE_IVL / SECOND)


async def serve_status(
    path: Path, snapshot: Callable[[], Snapshot], *, task_status: TaskStatus = trio.TASK_STATUS_IGNORED
) -> None:
    """Answer every connection with one snapshot, until cancelled.

    A stale socket of a dead process is replaced. Raises `ProcessError` if a process answers already, or if the socket
    cannot be made.
    """
    loop = current_loop()

    async def answer(client: socket.socket) -> None:
        with client, contextlib.suppress(OSError):  # the client has gone
            await loop.within(_ASK_TIMEOUT_S, send_all, loop, client, cbor2.dumps(snapshot()))

    with listening(path, "status") as sock:
        async with loop.open_background() as clients:
            task_status.started()
            while True:
                clients.start_soon(answer, await accept_client(loop, sock))


def ask_status(path: Path) -> Snapshot:
    """Return one node's snapshot. Raises `ProcessError` if no process answers, or if another user could answer."""
    octets = bytearray()
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
            sock.settimeout(_ASK_TIMEOUT_S)
            connect(sock, path)
            while len(octets) < _MOST_OCTETS and (chunk := sock.recv(65_536)):
                octets += chunk
        snapshot: Snapshot = cbor2.loads(bytes(octets))
    except (OSError, cbor2.CBORDecodeError) as error:
        raise ProcessError(
            f"no answer from {path}: {error}", remedy="start the node with: pgm run FILE --node NAME"
        ) from error
    return snapshot
