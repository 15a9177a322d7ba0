"""What is shown of a node in one line: the columns of `pgm top` and of the monitor's page."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

import attrs

from deploy.monitor.nodes import NodeRecord, NodeState

Value: TypeAlias = float | str | None  # None: the role has no such number, or the node has not answered
_NOW = "1s"  # of the windows that rates are kept for


@attrs.frozen
class MonitorColumn:
    """A column. `rank` says when it is left out for want of room: the highest first, 0 never; `help` is one sentence."""

    heading: str
    value: Callable[[NodeRecord], Value]  # what it is sorted by
    spell: Callable[[Value], str]
    help: str
    rank: int = 0
    words: Callable[[NodeRecord], str] | None = None  # where the cell says more than the value

    def text(self, node: NodeRecord) -> str:
        """The cell of a node."""
        return self.spell(self.value(node)) if self.words is None else self.words(node)

    def number(self, node: NodeRecord) -> float:
        """The value for sums: 0 where there is none."""
        found = self.value(node)
        return found if isinstance(found, (int, float)) else 0.0

    @property
    def is_text(self) -> bool:
        """Whether it stands on the left, and is sorted upwards first."""
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
    """A counter of all receivers among some nodes."""
    return sum(_counter(node, name) or 0.0 for node in nodes if node.role == "receiver")


def _rate(node: NodeRecord, *names: str) -> float | None:
    """The greatest of some sums a second; 0 of a node that is not there now."""
    if node.snapshot is None:
        return None
    rates: dict[str, Any] = node.snapshot["rates"] if node.is_up else {}
    return max(float(rates[name][_NOW]["per_s"]) if name in rates else 0.0 for name in names)


def _taken(node: NodeRecord) -> float | None:
    return _rate(node, "received_packets") if node.role in ("receiver", "repairer") else None


def _sent(node: NodeRecord) -> float | None:
    return None if node.role == "receiver" else _rate(node, "sent_packets")


def _megabytes(node: NodeRecord) -> float | None:
    octets = _rate(node, "sent_octets", "received_octets")
    return None if octets is None else octets / 1e6


def _repairs(node: NodeRecord) -> float | None:
    """What a receiver got, and everybody else sent."""
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
    """Packets that it has told an application as lost."""
    return _lost(node) or 0.0


def _missing(node: NodeRecord) -> float | None:
    if node.snapshot is None or node.role == "source":
        return None
    return float(sum(one["missing_sqns"] for one in node.snapshot["sessions"]))


def _up_s(node: NodeRecord) -> float | None:
    return float(node.snapshot["uptime_s"]) if node.is_up and node.snapshot is not None else None


def _state(node: NodeRecord) -> str:
    seconds = time.monotonic() - node.since_s
    if node.is_up and node.snapshot is not None:
        return f"up {span(node.snapshot['uptime_s'])}"
    return node.state.value if node.state is NodeState.ABSENT else f"{node.state.value} {span(seconds)}"


def _event(node: NodeRecord) -> str:
    event = node.snapshot.get("last_event") if node.snapshot is not None else None
    if event is None:
        return ""
    return f"{time.strftime('%H:%M:%S', time.localtime(event['at_s']))} {event['id']}: {event['text']}"


def span(seconds: float) -> str:
    """So many seconds in the largest unit that is at least one."""
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


FIGURES = {
    "topology": MonitorColumn("topology", lambda node: node.topology, _word, "Its tree, where several run."),
    "node": MonitorColumn("node", lambda node: node.name, _word, "Its name in the topology."),
    "role": MonitorColumn("role", lambda node: node.role, _word, "What it does.", 3),
    "state": MonitorColumn("state", _up_s, _word, "How long it runs, or does not answer any more.", 6, _state),
    "in": MonitorColumn("in/s", _taken, _number, "Packets of data taken in, a second; aggregators keep none."),
    "out": MonitorColumn("out/s", _sent, _number, "Packets of data sent, repairs included, a second."),
    "megabytes": MonitorColumn("MB/s", _megabytes, _decimal, "Of what it takes in or sends, the greater.", 1),
    "asked": MonitorColumn(
        "NAKs sent", lambda node: _counter(node, "nak_sqns"), _number, "Packets that it asked for.", 5
    ),
    "asked_for": MonitorColumn(
        "NAKs in", lambda node: _counter(node, "nak_sqns_in"), _number, "Packets it was asked for.", 5
    ),
    "repairs": MonitorColumn("repairs", _repairs, _number, "Repairs that a receiver got, or that others sent.", 1),
    "local": MonitorColumn(
        "local", _local, _share, "Share of a receiver's repairs that its own segment's repairer sent.", 2
    ),
    "missing": MonitorColumn("missing", _missing, _number, "Packets it lacks now.", 4),
    "lost": MonitorColumn("lost", _lost, _number, "Packets told to an application as lost."),
    "event": MonitorColumn(
        "last event", _event, _word, "What befell it last; docs/reference/events.md has the meanings.", 7
    ),
}


def as_markdown() -> str:
    """The table of docs/guide/monitoring.md."""
    lines = ["| column | what |", "|---|---|"]
    return "\n".join([*lines, *(f"| {one.heading} | {one.help} |" for one in FIGURES.values())]) + "\n"
