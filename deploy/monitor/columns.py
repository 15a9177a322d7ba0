"""Columns of `pgm top` and of the monitor's page, with one line for each node."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

import attrs

from pgm.fleet.nodes import NodeRecord, NodeState

SOME_LOSS, MUCH_LOSS = 0.005, 0.05  # share of packets that did not reach a node at first: a link to look at, a bad link

Value: TypeAlias = float | str | None  # None: the role has no such number, or the node has not answered
_NOW, _MINUTE, _FIVE_MINUTES = "1s", "1min", "5min"  # windows of the rates


@attrs.frozen
class MonitorColumn:
    """Column of a table of nodes.

    With too little room, the column with the highest `rank` is left out first. Columns of rank 0 stay. `help` is one
    sentence.
    """

    heading: str
    value: Callable[[NodeRecord], Value]  # the sort key
    spell: Callable[[Value], str]
    help: str
    rank: int = 0
    words: Callable[[NodeRecord], str] | None = None  # text of the cell, if the cell says more than the value

    def text(self, node: NodeRecord) -> str:
        """Return the cell of a node."""
        return self.spell(self.value(node)) if self.words is None else self.words(node)

    def number(self, node: NodeRecord) -> float:
        """Return the value for sums, or 0 without a number."""
        value = self.value(node)
        return value if isinstance(value, (int, float)) else 0.0

    @property
    def is_text(self) -> bool:
        """Return whether the column is text, aligned left and sorted upwards first."""
        return self.spell is _word


def _word(value: Value) -> str:
    return "" if value is None else str(value)


def _number(value: Value) -> str:
    return "-" if value is None else f"{value:,.0f}"


def _decimal(value: Value) -> str:
    return "-" if value is None else f"{value:,.2f}"


def _share(value: Value) -> str:
    return "-" if not isinstance(value, float) else f"{value:.0%}"


def _counter(node: NodeRecord, *names: str) -> float | None:
    if node.snapshot is None:
        return None
    counters: dict[str, int] = node.snapshot["counters"]
    return sum(counters.get(name, 0) for name in names)


def total_of(nodes: Iterable[NodeRecord], name: str) -> float:
    """Return the sum of a counter over the receivers among `nodes`."""
    return sum(_counter(node, name) or 0.0 for node in nodes if node.role == "receiver")


def _rate(node: NodeRecord, *names: str, window: str = _NOW) -> float | None:
    """Return the highest rate of several counters, a second; 0 for an absent node."""
    if node.snapshot is None:
        return None
    rates: dict[str, Any] = node.snapshot["rates"] if node.is_up else {}
    return max(float(rates[name][window]["per_s"]) if name in rates else 0.0 for name in names)


def flow_of(node: NodeRecord, window: str = _NOW) -> float:
    """Return the data packets that a node receives, relays or sends, a second; a relay's on one of its segments."""
    if node.role in ("receiver", "repairer"):
        return _rate(node, "received_packets", window=window) or 0
    segments = sum(place.side == "down" for place in node.places) if node.role == "aggregator" else 1
    return (_rate(node, "sent_packets", window=window) or 0) / max(1, segments)


def loss_of(node: NodeRecord) -> float:
    """Return the share of packets that did not reach a node at first, over the last minute."""
    missing = _rate(node, "missing_sqns", window=_MINUTE) or 0.0
    return missing / (flow_of(node, _MINUTE) + missing) if missing else 0.0


def losing(node: NodeRecord) -> bool:
    """Return whether a node has reported packets as lost in the last five minutes."""
    return bool(node.role == "receiver" and _rate(node, "lost_sqns", window=_FIVE_MINUTES))


def health_of(node: NodeRecord) -> str:
    """Return the class of a node on the page: ok, odd (look at it), bad (act now) or away (nobody can tell)."""
    if not node.is_up:
        kinds = {NodeState.STUCK: "odd", NodeState.UNREACHABLE: "odd", NodeState.ELSEWHERE: "away"}
        return kinds.get(node.state, "bad")
    return "bad" if losing(node) else "odd" if lost_of(node) or loss_of(node) >= MUCH_LOSS else "ok"


def missing_of(node: NodeRecord) -> float:
    """Return the packets that a node is missing now."""
    return _missing(node) or 0.0


def _taken(node: NodeRecord) -> float | None:
    return _rate(node, "received_packets") if node.role in ("receiver", "repairer") else None


def _sent(node: NodeRecord) -> float | None:
    return None if node.role == "receiver" else _rate(node, "sent_packets")


def _megabytes(node: NodeRecord) -> float | None:
    octets = _rate(node, "sent_octets", "received_octets")
    return None if octets is None else octets / 1e6


def _repairs(node: NodeRecord) -> float | None:
    """Return the repairs that a receiver got, or that another role sent."""
    return (
        _counter(node, "repaired_sqns")
        if node.role == "receiver"
        else _counter(node, "rdata_packets", "rdata_forwarded")
    )


def _local(node: NodeRecord) -> float | None:
    repaired = _counter(node, "repaired_sqns") if node.role == "receiver" else None
    return (_counter(node, "repaired_locally") or 0) / repaired if repaired else None


def _lost(node: NodeRecord) -> float | None:
    return _counter(node, "lost_sqns") if node.role == "receiver" else None


def lost_of(node: NodeRecord) -> float:
    """Return the packets that a node reported to an application as lost."""
    return _lost(node) or 0.0


def _missing(node: NodeRecord) -> float | None:
    if node.snapshot is None or node.role == "source":
        return None
    return float(sum(session["missing_sqns"] for session in node.snapshot["sessions"]))


def _up_s(node: NodeRecord) -> float | None:
    return float(node.snapshot["uptime_s"]) if node.is_up and node.snapshot is not None else None


def _state(node: NodeRecord) -> str:
    seconds = time.monotonic() - node.since_s
    if node.is_up and node.snapshot is not None:
        return f"up {span(node.snapshot['uptime_s'])}"
    return node.state.value if node.state is node.unseen else f"{node.state.value} {span(seconds)}"


def events_of(node: NodeRecord) -> list[dict[str, Any]]:
    """Return the last events of a node, the oldest first. Nodes of earlier versions tell the last one alone."""
    if node.snapshot is None:
        return []
    last = node.snapshot.get("last_event")
    events: list[dict[str, Any]] = node.snapshot.get("events", [last] if last else [])
    return events


def event_text(event: dict[str, Any]) -> str:
    """Return an event with its time, for people."""
    return f"{time.strftime('%H:%M:%S', time.localtime(event['at_s']))} {event['id']}: {event['text']}"


def _event(node: NodeRecord) -> str:
    return "".join(map(event_text, events_of(node)[-1:]))


def _protection(node: NodeRecord) -> str:
    """Return the protection of each stream of the node that is known by name, once each."""
    sessions = [] if node.snapshot is None else node.snapshot["sessions"]
    texts = (session.get("protection", {}).get("text", "") for session in sessions if session["stream"])
    return "; ".join(filter(None, dict.fromkeys(texts)))


def span(seconds: float) -> str:
    """Return a duration in the largest unit of which it has at least one."""
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


COLUMNS = {
    "topology": MonitorColumn("topology", lambda node: node.topology, _word, "Tree of the node, if several trees run."),
    "host": MonitorColumn("host", lambda node: node.host, _word, "Host of the node, with --fleet.", 4),
    "node": MonitorColumn("node", lambda node: node.name, _word, "Name of the node in the topology."),
    "role": MonitorColumn("role", lambda node: node.role, _word, "Role of the node.", 3),
    "state": MonitorColumn(
        "state", _up_s, _word, "State of the node, and time since it started or stopped answering.", 6, _state
    ),
    "missing": MonitorColumn("missing", _missing, _number, "Packets missing now.", 4),
    "lost": MonitorColumn("lost", _lost, _number, "Packets reported to an application as lost."),
    "in": MonitorColumn("in/s", _taken, _number, "Data packets received, a second; aggregators keep none."),
    "out": MonitorColumn("out/s", _sent, _number, "Data packets sent, repairs included, a second."),
    "megabytes": MonitorColumn("MB/s", _megabytes, _decimal, "Data received or sent, whichever is more.", 1),
    "asked": MonitorColumn(
        "NAKs sent", lambda node: _counter(node, "nak_sqns"), _number, "Packets that the node requested.", 5
    ),
    "asked_for": MonitorColumn(
        "NAKs in", lambda node: _counter(node, "nak_sqns_in"), _number, "Packets requested from the node.", 5
    ),
    "repairs": MonitorColumn(
        "repairs", _repairs, _number, "Repairs that a receiver got, or that another role sent.", 1
    ),
    "local": MonitorColumn(
        "local", _local, _share, "Share of a receiver's repairs that the repairer of its own segment sent.", 2
    ),
    "protection": MonitorColumn(
        "protection", _protection, _word, "Protection of the node's streams: clear, signed or sealed, and for whom.", 6
    ),
    "event": MonitorColumn(
        "last event", _event, _word, "Last event of the node; docs/reference/events.md explains the events.", 7
    ),
}


def as_markdown() -> str:
    """Return the table of columns in docs/guide/monitoring.md."""
    lines = ["| column | meaning |", "|---|---|"]
    return "\n".join([*lines, *(f"| {column.heading} | {column.help} |" for column in COLUMNS.values())]) + "\n"
