"""`pgm status --detail`: everything that a node says of itself, as tables."""

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
    """Print the snapshots of nodes."""
    terminal = console()
    if clear:
        terminal.clear()
    for row in rows:
        for part in details(row, terminal.width):
            terminal.print(part)


def details(row: dict[str, Any], width: int) -> Iterator[RenderableType]:
    """The snapshot of one node, as lines and tables that are `width` wide at most."""
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
    """Every table of a node: its title, its columns, its cells. Some have no rows."""
    yield _sessions(row["sessions"])
    yield _shares(row["sessions"])
    yield _lines(row["sessions"])
    yield _askers(row["sessions"])
    yield _members(row["sessions"])
    yield _rates(row.get("rates", {}))
    yield _links(row["segments"])
    yield _counters(row["counters"])


def _name(session: dict[str, Any]) -> str:
    """A session as people know it: its stream and source, or its TSI."""
    known = " of ".join(filter(None, (session["stream"], session["source"])))
    return f"{known or session['tsi']}"


def _headed(first: str, *others: str) -> list[TableColumn]:
    return [TableColumn(first), *(TableColumn(heading) for heading in others)]


def _sessions(sessions: Iterable[dict[str, Any]]) -> DetailTable:
    cells = [
        [
            _name(one),
            one["tsi"],
            one["state"],
            f"{one['trail']:,} to {one['lead']:,}",
            f"{one['missing_sqns']:,}",
            f"{one['pending_sqns']:,}",
            f"{one['held_octets']:,}",
            one["parent"] or "-",
            f"{one['silent_ns'] / 1e9:.1f} s",
        ]
        for one in sessions
    ]
    ranks = {"tsi": 5, "state": 0, "window": 0, "missing": 0, "owed": 2, "held octets": 4, "asks": 1, "silent for": 3}
    return "sessions", [TableColumn("stream"), *(TableColumn(heading, rank) for heading, rank in ranks.items())], cells


def _shares(sessions: Iterable[dict[str, Any]]) -> DetailTable:
    """What each session has counted, a counter a row."""
    cells = [
        [_name(one), key.replace("_", " "), f"{value:,}"] for one in sessions for key, value in one["counts"].items()
    ]
    return "counted by session", _headed("stream", "what", "count"), cells


def _lines(sessions: Iterable[dict[str, Any]]) -> DetailTable:
    cells = [
        [
            _name(one),
            line["segment"],
            f"{line['packets']:,}",
            f"{line['first_packets']:,}",
            f"{line['lost_packets']:,}",
            f"{line['behind_ns'] / 1e6:.2f} ms",
            "down" if line["is_down"] else "up",
        ]
        for one in sessions
        for line in one["lines"]
    ]
    return "lines", _headed("stream", "line", "packets", "first", "lost", "behind", "is"), cells


def _askers(sessions: Iterable[dict[str, Any]]) -> DetailTable:
    cells = [
        [
            _name(one),
            child["address"],
            f"{child['nak_packets']:,}",
            f"{child['nak_sqns']:,}",
            f"{child['braked']:,}",
            "yes" if child["is_crying"] else "",
        ]
        for one in sessions
        for child in one["askers"]
    ]
    return "who asks", _headed("stream", "child", "NAKs", "packets asked for", "dropped", "all the time"), cells


def _members(sessions: Iterable[dict[str, Any]]) -> DetailTable:
    cells = [
        [_name(one), child, f"{sqn:,}", f"{one['lead'] - sqn:,}"]
        for one in sessions
        if one["acked"]
        for child, sqn in one["acked"]["acks"].items()
    ]
    return "who has acknowledged what", _headed("stream", "child", "up to", "packets behind"), cells


def _rates(rates: dict[str, Any]) -> DetailTable:
    cells = [
        [
            f"{name.replace('_', ' ')}, {window}",
            f"{one['per_s']:,.0f}",
            "-" if one["peak_at"] is None else f"{one['peak_per_s']:,.0f}",
            "-" if one["peak_at"] is None else _clock(one["peak_at"]),
        ]
        for name, windows in rates.items()
        for window, one in windows.items()
    ]
    return "per second", _headed("what, over", "now", "most", "at"), cells


def _links(segments: Iterable[dict[str, Any]]) -> DetailTable:
    cells = [
        [one["segment"], one["group"], one["interface"], one["address"], f"{one['rcvbuf']:,}", f"{one['sndbuf']:,}"]
        for one in segments
    ]
    return "segments", _headed("segment", "group", "interface", "address", "receive buffer", "send buffer"), cells


def _counters(counters: dict[str, Any]) -> DetailTable:
    docs = {row.name: (row.metadata["unit"], row.metadata["doc"]) for row in ROWS}
    cells = [[key, f"{value:,}", docs[key][0], docs[key][1]] for key, value in counters.items() if key in docs]
    cells += [[f"rejects: {key}", f"{value:,}", "packets", ""] for key, value in counters.get("rejects", {}).items()]
    return (
        "counters",
        [TableColumn("counter"), TableColumn("count"), TableColumn("unit", 1), TableColumn("what", 2)],
        cells,
    )
