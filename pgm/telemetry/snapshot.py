"""Snapshot of one node as plain values, for `pgm status` and the sums of `pgm demo`.

A snapshot is taken between two calls of the core, so it is consistent. Keys are stable: they are added, never renamed.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import attrs

from pgm.core.counters import Counters
from pgm.core.interface import Core
from pgm.core.status import SessionStatus
from pgm.deprecated import KEYS, with_former_names
from pgm.telemetry.rates import Rates
from pgm.topology.node_plan import CLEAR, NodePlan

Snapshot = dict[str, Any]
MOST_EVENTS = 16  # of a snapshot: the last ones


def take_snapshot(
    parts: Sequence[tuple[NodePlan, Core]],
    gone: Counters,
    now_ns: int,
    started_ns: int,
    segments: list[dict[str, Any]],
    rates: Rates | None = None,
    events: Sequence[dict[str, Any]] = (),
) -> Snapshot:
    """Return the snapshot of a node at `now_ns`; the node started at `started_ns`, both on the core's clock.

    `parts` are the node's endpoints, and `gone` the counters of ended ones. `segments` has one row of the driver for each
    link. `rates` holds the readings so far. `events` are rows of `event_row`, the oldest first.
    """
    plan = parts[0][0]
    # `status` also updates the counters
    sessions = [_session(own, row) for own, core in parts for row in core.status(now_ns)]
    return {
        "topology": plan.topology,
        "node": plan.name,
        "role": plan.role.value,
        "file": plan.digest,
        "pid": os.getpid(),
        "uptime_s": round((now_ns - started_ns) / 1e9, 3),
        "rss_bytes": rss_octets(),
        "cpu_s": round(sum(resource.getrusage(resource.RUSAGE_SELF)[:2]), 3),
        "counters": Counters.total([gone, *(core.counters for _, core in parts)]).snapshot(),
        "rates": {} if rates is None else rates.snapshot(),
        "last_event": events[-1] if events else None,
        "events": list(events),
        "sessions": sessions,
        "subjects": _subjects(parts),
        "segments": segments,
    }


def event_row(event_id: str, text: str, at_s: float) -> dict[str, Any]:
    """Return the row of an event: its id of docs/reference/events.md, its text, and its time in seconds since 1970."""
    return {"id": event_id, "text": text, "at_s": round(at_s, 3)}


def _session(plan: NodePlan, row: SessionStatus) -> dict[str, Any]:
    """Return a session with the name and framing of its stream."""
    stream = next((stream for stream in plan.streams if stream.data_port == row.data_port), None)
    names = ("", "") if stream is None else (stream.name, stream.framing)
    protection = CLEAR if stream is None else stream.protection
    values = {"stream": names[0], "framing": names[1], "protection": protection.row(), **attrs.asdict(row)}
    values["askers"] = [with_former_names(asker, KEYS) for asker in values["askers"]]
    return values


def _subjects(parts: Sequence[tuple[NodePlan, Core]]) -> dict[str, dict[str, int]]:
    """Return the messages of each stream with batches, by subject, summed over a node's endpoints."""
    sums: dict[str, dict[str, int]] = {}
    for plan, core in parts:
        for stream in plan.streams:
            if stream.data_port in core.counters.subjects:
                counts = sums.setdefault(stream.name, {})
                for subject, count in core.counters.subjects[stream.data_port].snapshot().items():
                    counts[subject] = counts.get(subject, 0) + count
    return sums


def rss_octets() -> int:
    """Return the resident memory of this process in octets."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
