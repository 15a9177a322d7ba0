"""`pgm bench idle`: cost of each role without traffic."""

from __future__ import annotations

import sys
from contextlib import AsyncExitStack

import trio

from deploy.bench.peer import Peer, running
from deploy.bench.place import ETHERNET_MTU, open_place
from deploy.bench.settings import BenchSettings, Row
from deploy.bench.tree import one_of_each
from deploy.bench.trial import environment

_NODES = ("repairer", "aggregator", "receiver", "source")
_START_S = 60.0
_SETTLE_S = 0.5  # after the last start: first SPMs, SPM requests and their answers


async def idle(settings: BenchSettings) -> list[Row]:
    """Measure each role for `seconds` with no packets but SPMs; return a row each."""
    with open_place("loopback", ETHERNET_MTU, 4) as place:
        file = one_of_each(settings.folder, place)
        async with AsyncExitStack() as stack:
            peers: dict[str, Peer] = {}
            for node in _NODES:
                command = [sys.executable, "-m", "deploy.bench.peers.node", str(file), node]
                running_there = environment() | {"PGM_RUNTIME_DIR": str(settings.folder)}
                peers[node] = await stack.enter_async_context(running(node, command, running_there))
            for peer in peers.values():
                await peer.until("ready", _START_S)
            await trio.sleep(_SETTLE_S)
            settings.say(f"all roles are idle for {settings.seconds:g} s")
            before = {node: peer.usage.cpu_s for node, peer in peers.items()}
            began = trio.current_time()
            await trio.sleep(settings.seconds)
            seconds = trio.current_time() - began
            rows = [_row(node, peer, peer.usage.cpu_s - before[node], seconds) for node, peer in peers.items()]
    for row in rows:
        settings.emit(row)
    return rows


def _row(node: str, peer: Peer, cpu_s: float, seconds: float) -> Row:
    return {
        "benchmark": "idle",
        "contender": f"ours-{node}",
        "title": f"pgm, {node}",
        "size": 0,
        "messages_per_s": 0,
        "mb_per_s": 0.0,
        "packets_per_s": 0,
        "lost": 0,
        "cpu_s": round(cpu_s, 6),
        "cpu_share": round(cpu_s / seconds, 6),
        "peak_mb": round(peer.usage.peak_octets / 1e6, 1),
    }
