"""Tables of `pgm status --detail`: the whole snapshot of a node."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import Any, TypeAlias

from rich.console import RenderableType
from rich.text import Text

from deploy.terminal.tables import TableColumn, console, table
from pgm.core.counters import ROWS

DetailTable: TypeAlias = tuple[str, list[TableColumn], list[list[str]]]


def print_details(rows: list[dict[str, Any]], *, clear: bool) -> None:
    """Print the snapshots of nodes, on a cleared screen if `clear`."""
    terminal = console()
    if clear:
        terminal.clear()
    for row in rows:
        for part in details(row, terminal.width):
            terminal.print(part)


def details(row: dict[str, Any], width: int) -> Iterator[RenderableType]:
    """Yield the snapshot of one node as lines and tables, at most `width` characters wide."""
    memory, up = row["rss_bytes"] / 1e6, row["uptime_s"]
    yield Text(f"{row['role']} {row['node']}: up {up:.0f} s, {memory:.0f} MB, {row['cpu_s']:.1f} s of CPU time")
    event = row.get("last_event")
    if event:
        yield Text(f"last event, {_clock(event['at_s'])}: {event['id']}: {event['text']}")
    for title, columns, cells in tables(row):
        if cells:
            yield Text()
            yield table(title, columns, cells, width)
    yield Text()


def _clock(at_s: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(at_s))


def tables(row: dict[str, Any]) -> Iterator[DetailTable]:
    """Yield title, columns and cells of every table of a node. A table may have no rows."""
    yield _sessions(row["sessions"])
    yield _session_counts(row["sessions"])
    yield _lines(row["sessions"])
    yield _nak_children(row["sessions"])
    yield _members(row["sessions"])
    yield _rates(row.get("rates", {}))
    yield _links(row["segments"])
    yield _counters(row["counters"])


def _name(session: dict[str, Any]) -> str:
    """Return stream and source of a session, or the TSI if both are unknown."""
    known = " of ".join(filter(None, (session["stream"], session["source"])))
    return f"{known or session['tsi']}"


def _columns(first: str, *others: str) -> list[TableColumn]:
    return [TableColumn(first), *(TableColumn(heading) for heading in others)]


def _sessions(sessions: Iterable[dict[str, Any]]) -> DetailTable:
    cells = [
        [
            _name(session),
            session["tsi"],
            session["state"],
            f"{session['trail']:,} to {session['lead']:,}",
            f"{session['missing_sqns']:,}",
            f"{session['pending_sqns']:,}",
            f"{session['held_octets']:,}",
            session["parent"] or "-",
            f"{session['silent_ns'] / 1e9:.1f} s",
        ]
        for session in sessions
    ]
    ranks = {"tsi": 5, "state": 0, "window": 0, "missing": 0, "owed": 2, "held octets": 4, "asks": 1, "silent for": 3}
    return "sessions", [TableColumn("stream"), *(TableColumn(heading, rank) for heading, rank in ranks.items())], cells


def _session_counts(sessions: Iterable[dict[str, Any]]) -> DetailTable:
    """Return the table of the counters of each session, one counter per row."""
    cells = [
        [_name(session), key.replace("_", " "), f"{value:,}"]
        for session in sessions
        for key, value in session["counts"].items()
    ]
    return "counters by session", _columns("stream", "counter", "count"), cells


def _lines(sessions: Iterable[dict[str, Any]]) -> DetailTable:
    cells = [
        [
            _name(session),
            line["segment"],
            f"{line['packets']:,}",
            f"{line['first_packets']:,}",
            f"{line['lost_packets']:,}",
            f"{line['behind_ns'] / 1e6:.2f} ms",
            "down" if line["is_down"] else "up",
        ]
        for session in sessions
        for line in session["lines"]
    ]
    return "lines", _columns("stream", "line", "packets", "first", "lost", "behind", "is"), cells


def _nak_children(sessions: Iterable[dict[str, Any]]) -> DetailTable:
    cells = [
        [
            _name(session),
            child["address"],
            f"{child['nak_packets']:,}",
            f"{child['nak_sqns']:,}",
            f"{child['braked']:,}",
            "yes" if child["is_crying"] else "",
        ]
        for session in sessions
        for child in session["askers"]
    ]
    return "children with NAKs", _columns("stream", "child", "NAKs", "sqns requested", "dropped", "excessive"), cells


def _members(sessions: Iterable[dict[str, Any]]) -> DetailTable:
    cells = [
        [_name(session), child, f"{sqn:,}", f"{session['lead'] - sqn:,}"]
        for session in sessions
        if session["acked"]
        for child, sqn in session["acked"]["acks"].items()
    ]
    return "acknowledged positions", _columns("stream", "child", "up to", "packets behind"), cells


def _rates(rates: dict[str, Any]) -> DetailTable:
    cells = [
        [
            f"{name.replace('_', ' ')}, {window}",
            f"{rate['per_s']:,.0f}",
            "-" if rate["peak_at"] is None else f"{rate['peak_per_s']:,.0f}",
            "-" if rate["peak_at"] is None else _clock(rate["peak_at"]),
        ]
        for name, windows in rates.items()
        for window, rate in windows.items()
    ]
    return "per second", _columns("rate, interval", "now", "peak", "at"), cells


def _links(segments: Iterable[dict[str, Any]]) -> DetailTable:
    cells = [
        [
            segment["segment"],
            segment["group"],
            segment["interface"],
            segment["address"],
            f"{segment['rcvbuf']:,}",
            f"{segment['sndbuf']:,}",
        ]
        for segment in segments
    ]
    return "segments", _columns("segment", "group", "interface", "address", "receive buffer", "send buffer"), cells


def _counters(counters: dict[str, Any]) -> DetailTable:
    docs = {row.name: (row.metadata["unit"], row.metadata["doc"]) for row in ROWS}
    cells = [[key, f"{value:,}", docs[key][0], docs[key][1]] for key, value in counters.items() if key in docs]
    cells += [[f"rejects: {key}", f"{value:,}", "packets", ""] for key, value in counters.get("rejects", {}).items()]
    return (
        "counters",
        [TableColumn("counter"), TableColumn("count"), TableColumn("unit", 1), TableColumn("meaning", 2)],
        cells,
    )
