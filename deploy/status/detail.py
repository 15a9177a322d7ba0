"""Tables of `pgm status --detail`: the whole snapshot of a node."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any, TypeAlias

from rich.console import RenderableType
from rich.text import Text

from deploy.status.peers import NO_NAMES, PeerNames
from deploy.terminal.tables import TableColumn, console, table
from pgm.core.counters import ROWS

Rows: TypeAlias = Iterable[tuple[Any, ...]]
DetailTable: TypeAlias = tuple[str, list[TableColumn], list[list[str]]]
_MOST_SUBJECTS = 20


def print_details(rows: list[dict[str, Any]], names: PeerNames = NO_NAMES, *, clear: bool) -> None:
    """Print the snapshots of nodes, on a cleared screen if `clear`. Peers have their `names`."""
    terminal = console()
    if clear:
        terminal.clear()
    for row in rows:
        for part in details(row, terminal.width, names):
            terminal.print(part)


def details(row: dict[str, Any], width: int, names: PeerNames = NO_NAMES) -> Iterator[RenderableType]:
    """Yield the snapshot of one node as lines and tables, at most `width` characters wide. Peers have their `names`."""
    memory, up = row["rss_bytes"] / 1e6, row["uptime_s"]
    yield Text(f"{row['role']} {row['node']}: up {up:.0f} s, {memory:.0f} MB, {row['cpu_s']:.1f} s of CPU time")
    event = row.get("last_event")
    if event:
        yield Text(f"last event, {_clock(event['at_s'])}: {event['id']}: {names.in_text(event['text'])}")
    for title, columns, cells in tables(row, names):
        if cells:
            yield Text()
            yield table(title, columns, cells, width)
    yield Text()


def _clock(at_s: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(at_s))


def tables(row: dict[str, Any], names: PeerNames = NO_NAMES) -> Iterator[DetailTable]:
    """Yield title, columns and cells of every table of a node. A table may have no rows. Peers have their `names`."""
    for title, rows_of, columns in _TABLES:
        heads = [TableColumn(heading, rank) for heading, rank, _ in columns]
        cells = [[cell(*item) for _, _, cell in columns] for item in rows_of(row)]
        if title != "segments":  # whose addresses are the node's own
            cells = [list(map(names.in_text, line)) for line in cells]
        yield title, heads, cells


def _name(session: dict[str, Any], *_: object) -> str:
    """Return stream and source of a session, or the TSI if both are unknown."""
    known = " of ".join(filter(None, (session["stream"], session["source"])))
    return f"{known or session['tsi']}"


def _protection(session: dict[str, Any]) -> str:
    """Return the protection of a session, and for how long its signatures have been verified."""
    since_s = session.get("verified_ns", -1) / 1e9
    text = str(session.get("protection", {}).get("text", "-"))
    return text if since_s < 0 else f"{text}, for {since_s:,.0f} s"


def _key(key: str, form: str = "") -> Callable[..., str]:
    """Return a function that formats a key of a row's last item."""
    return lambda *items: format(items[-1][key], form)


def _each(key: str) -> Callable[[dict[str, Any]], Rows]:
    """Return a function that yields each session with each item of its list `key`."""
    return lambda row: ((session, item) for session in row["sessions"] for item in session[key])


def _session_counts(row: dict[str, Any]) -> Rows:
    return ((session, *count) for session in row["sessions"] for count in session["counts"].items())


def _subjects(row: dict[str, Any]) -> Rows:
    """Return the most frequent subjects of each stream."""
    streams = row.get("subjects", {}).items()
    return ((stream, *count) for stream, counts in streams for count in islice(counts.items(), _MOST_SUBJECTS))


def _members(row: dict[str, Any]) -> Rows:
    acked = (session for session in row["sessions"] if session["acked"])
    return ((session, child) for session in acked for child in session["acked"]["lags"])


def _rates(row: dict[str, Any]) -> Rows:
    rates = row.get("rates", {})
    return ((name, window, rate) for name, windows in rates.items() for window, rate in windows.items())


def _counters(row: dict[str, Any]) -> Rows:
    docs = {row.name: (row.metadata["unit"], row.metadata["doc"]) for row in ROWS}
    yield from ((key, value, *docs[key]) for key, value in row["counters"].items() if key in docs)
    for key, value in row["counters"].get("rejects", {}).items():
        yield f"rejects: {key}", value, "packets", ""


def _item(at: int, form: str = "") -> Callable[..., str]:
    return lambda *items: format(items[at], form)


def _known(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"


def _peak(rate: dict[str, Any], write: Callable[[dict[str, Any]], str]) -> str:
    return "-" if rate["peak_at"] is None else write(rate)


# fmt: off
# title, rows of a snapshot, columns: heading, rank, cell
_TABLES: tuple[tuple[str, Callable[[dict[str, Any]], Rows], tuple[tuple[str, int, Callable[..., str]], ...]], ...] = (
    ("sessions", lambda row: ((session,) for session in row["sessions"]), (
        ("stream", 0, _name),
        ("tsi", 5, _key("tsi")),
        ("state", 0, _key("state")),
        ("protection", 1, _protection),
        ("window", 0, lambda session: f"{session['trail']:,} to {session['lead']:,}"),
        ("missing", 0, _key("missing_sqns", ",")),
        ("owed", 2, _key("pending_sqns", ",")),
        ("held octets", 4, _key("held_octets", ",")),
        ("asks", 1, lambda session: session["parent"] or "-"),
        ("silent for", 3, lambda session: f"{session['silent_ns'] / 1e9:.1f} s"),
    )),
    ("counters by session", _session_counts, (
        ("stream", 0, _name),
        ("counter", 0, lambda _, key, _count: key.replace("_", " ")),
        ("count", 0, _item(2, ",")),
    )),
    ("messages by subject", _subjects, (
        ("stream", 0, _item(0)),
        ("subject", 0, _item(1)),
        ("messages", 0, _item(2, ",")),
    )),
    ("lines", _each("lines"), (
        ("stream", 0, _name),
        ("line", 0, _key("segment")),
        ("packets", 0, _key("packets", ",")),
        ("first", 0, _key("first_packets", ",")),
        ("lost", 0, _key("lost_packets", ",")),
        ("behind", 0, lambda _, line: f"{line['behind_ns'] / 1e6:.2f} ms"),
        ("is", 0, lambda _, line: "down" if line["is_down"] else "up"),
    )),
    ("children with NAKs", _each("askers"), (
        ("stream", 0, _name),
        ("child", 0, _key("address")),
        ("NAKs", 0, _key("nak_packets", ",")),
        ("sqns requested", 0, _key("nak_sqns", ",")),
        ("dropped", 0, _key("braked", ",")),
        ("excessive", 0, lambda _, child: "yes" if child["has_excess_naks"] else ""),
    )),
    ("acknowledged positions", _members, (
        ("stream", 0, _name),
        ("child", 0, _key("address")),
        ("is", 1, lambda _, child: f"branch of {child['members']:,}" if child["is_branch"] else "member"),
        ("up to", 0, lambda session, child: _known(session["acked"]["acks"].get(child["address"]))),
        ("packets behind", 0, _key("lag", ",")),
        ("last below it", 2, lambda _, child: child["held_up_by"] if child["is_branch"] else "-"),
    )),
    ("per second", _rates, (
        ("rate, interval", 0, lambda name, window, _: f"{name.replace('_', ' ')}, {window}"),
        ("now", 0, _key("per_s", ",.0f")),
        ("peak", 0, lambda _, _window, rate: _peak(rate, _key("peak_per_s", ",.0f"))),
        ("at", 0, lambda _, _window, rate: _peak(rate, lambda rate: _clock(rate["peak_at"]))),
    )),
    ("segments", lambda row: ((segment,) for segment in row["segments"]), (
        *((key, 0, _key(key)) for key in ("segment", "group", "interface", "address")),
        ("receive buffer", 0, _key("rcvbuf", ",")),
        ("send buffer", 0, _key("sndbuf", ",")),
    )),
    ("counters", _counters, (("counter", 0, _item(0)), ("count", 0, _item(1, ",")), ("unit", 1, _item(2)), ("meaning", 2, _item(3)))),
)
# fmt: on
