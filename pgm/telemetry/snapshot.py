"""One node at one moment, as plain values: what `pgm status` shows and `pgm demo` adds up.

Taken between two calls of the core, so it is consistent. Keys are stable: extended, never renamed.
"""

from __future__ import annotations

import os
import resource
from pathlib import Path
from typing import Any

import attrs

from pgm.core.interface import Core
from pgm.core.status import SessionStatus
from pgm.telemetry.rates import Rates
from pgm.topology.node_plan import NodePlan

Snapshot = dict[str, Any]


def take_snapshot(
    plan: NodePlan,
    core: Core,
    now_ns: int,
    started_ns: int,
    segments: list[dict[str, Any]],
    rates: Rates | None = None,
    last_event: dict[str, Any] | None = None,
) -> Snapshot:
    """The snapshot of a node. `segments` is what its driver knows of its links, a row each; `rates` what was read so far.

    `last_event` is a row of `event_row`.
    """
    sessions = [_session(plan, row) for row in core.status(now_ns)]  # which also brings counters up to date
    return {
        "topology": plan.topology,
        "node": plan.name,
        "role": plan.role.value,
        "pid": os.getpid(),
        "uptime_s": round((now_ns - started_ns) / 1e9, 3),
        "rss_bytes": rss_octets(),
        "cpu_s": round(sum(resource.getrusage(resource.RUSAGE_SELF)[:2]), 3),
        "counters": core.counters.snapshot(),
        "rates": {} if rates is None else rates.snapshot(),
        "last_event": last_event,
        "sessions": sessions,
        "segments": segments,
    }


def event_row(found: str, text: str, at_s: float) -> dict[str, Any]:
    """An event: its id of docs/reference/events.md, its words, and when, in seconds since 1970."""
    return {"id": found, "text": text, "at_s": round(at_s, 3)}


def _session(plan: NodePlan, row: SessionStatus) -> dict[str, Any]:
    """A session, with the name and framing of its stream, and the stream's source if there is only one."""
    stream = next((one for one in plan.streams if one.data_port == row.data_port), None)
    names = {"stream": "" if stream is None else stream.name, "source": (stream and stream.source) or ""}
    names["framing"] = "" if stream is None else stream.framing
    return names | attrs.asdict(row)


def rss_octets() -> int:
    """Resident memory of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
