"""Answers of agents, for views of a fleet without any network."""

from __future__ import annotations

from typing import Any

from pgm.errors import ProcessError
from pgm.fleet.hosts import FleetHost
from pgm.fleet.watch import HostAnswer


def snapshot(name: str, role: str = "receiver", **counters: int) -> dict[str, Any]:
    """Return the snapshot of a node that has just started."""
    return {
        "topology": "trading-floor",
        "node": name,
        "role": role,
        "pid": 1,
        "uptime_s": 1.0,
        "rss_bytes": 1,
        "cpu_s": 0.1,
        "counters": counters,
        "rates": {},
        "last_event": None,
        "events": [],
        "sessions": [],
        "subjects": {},
        "segments": [],
    }


def row(name: str, role: str = "receiver", **counters: int) -> dict[str, Any]:
    """Return the row of a node that runs."""
    return {
        "topology": "trading-floor",
        "node": name,
        "role": role,
        "state": "up",
        "for_s": 5.0,
        "snapshot": snapshot(name, role, **counters),
    }


def answer(at: FleetHost, agent: str, *rows: Any, **more: Any) -> HostAnswer:
    """Return the answer of an agent that tells of some nodes."""
    state = {"agent": agent, "host": f"host-{agent}", "version": "1", "nodes": list(rows), **more}
    return HostAnswer(at, at.addresses[0], 0.01, state)


def silence(host: FleetHost) -> HostAnswer:
    """Return the absence of an agent."""
    return HostAnswer(host, host.addresses[0], 2.0, problem=ProcessError("no answer within 2 s", remedy="start it"))
