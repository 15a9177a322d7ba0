"""The numbers of running nodes as Prometheus reads them: one family a counter, its help from the table that docs/reference/counters.md shows.

Labels are the names of the topology: topology, node, role, and stream or segment where it says which. TSIs and addresses of peers
are none, since they are without bound. Counters that are 0 are said too: an alarm on an increase misses one that begins at 7.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from typing import Any, TypeAlias

import attrs
from prometheus_client.core import CollectorRegistry, CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from deploy.monitor.nodes import NodeRecord, NodeState, TreeView
from pgm.core.counters import ROWS
from pgm.core.session.counts import SESSION_COUNTERS
from pgm.wire.rejects import REASONS

_NODE = ("topology", "node", "role")
_STREAM = (*_NODE, "stream")

# gauge -> the key of a session it is the sum of, what it is
_SUMS = {
    "pgm_stream_missing_now_sqns": ("missing_sqns", "Missing now and asked for."),
    "pgm_stream_owed_now_sqns": ("pending_sqns", "Repairs that are owed now."),
    "pgm_stream_held_octets": ("held_octets", "Octets in the window or cache."),
}
_Labels: TypeAlias = tuple[str, ...]


@attrs.define
class _Streams:
    """What one process has counted by stream. A session that is forgotten stays in the sum, since counters only grow."""

    pid: int
    last: dict[tuple[str, str], dict[str, int]] = attrs.field(factory=dict)  # by stream and TSI
    ended: dict[str, Counter[str]] = attrs.field(factory=lambda: defaultdict(Counter))

    def take(self, sessions: Iterable[dict[str, Any]]) -> dict[str, Counter[str]]:
        """The sums by stream; streams that the topology does not name are one."""
        now = {(one["stream"], one["tsi"]): one["counts"] for one in sessions}
        for key, counts in self.last.items():
            if key not in now or any(now[key].get(name, 0) < count for name, count in counts.items()):
                self.ended[key[0]].update(counts)
        self.last = now
        totals = {stream: Counter(counts) for stream, counts in self.ended.items()}
        for (stream, _), counts in now.items():
            totals.setdefault(stream, Counter()).update(counts)
        return totals


class Metrics:
    """Turns views into what Prometheus reads. Keeps sums by stream, for as long as a node is seen."""

    def __init__(self) -> None:
        self._streams: dict[tuple[str, str], _Streams] = {}

    def render(self, view: TreeView, accept: str = "") -> tuple[bytes, str]:
        """The text and its content type: OpenMetrics for who accepts it, else Prometheus's own."""
        registry = CollectorRegistry(auto_describe=False)
        registry.register(_Families(self._families(_without_namesakes(view))))
        encoder, content_type = choose_encoder(accept)
        return encoder(registry), content_type

    def _families(self, view: TreeView) -> list[Metric]:
        up = [node for node in view.nodes if node.is_up]
        by_stream = self._by_stream(view.nodes)
        families = [*_states(view), *_processes(up), *_counters(up), *_stream_gauges(up), *_buffers(up)]
        return [*families, *_stream_counters(by_stream)]

    def _by_stream(self, nodes: Iterable[NodeRecord]) -> dict[_Labels, Counter[str]]:
        kept, self._streams = self._streams, {}
        found: dict[_Labels, Counter[str]] = {}
        for node in nodes:
            if node.snapshot is None:
                continue
            key, pid = (node.topology, node.name), node.snapshot["pid"]
            streams = kept.get(key)
            if streams is None or streams.pid != pid:
                streams = _Streams(pid)
            self._streams[key] = streams  # of who hangs for a moment too
            if node.is_up:
                for stream, counts in streams.take(node.snapshot["sessions"]).items():
                    found[*_labels(node), stream] = counts
        return found


class _Families(Collector):
    """What a registry wants to be given."""

    def __init__(self, families: list[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        """The families, once a rendering."""
        return self._families


def _without_namesakes(view: TreeView) -> TreeView:
    """A node for each name, since two samples with the same labels are none: a demo may have ended and run again, elsewhere.

    The first that is up; others that are, are left out.
    """
    chosen: dict[tuple[str, str], NodeRecord] = {}
    left_out = view.left_out
    for node in view.nodes:
        known = chosen.setdefault((node.topology, node.name), node)
        if node is not known and node.is_up:
            left_out += known.is_up
            if not known.is_up:
                chosen[node.topology, node.name] = node
    return attrs.evolve(view, nodes=tuple(chosen.values()), left_out=left_out)


def _labels(node: NodeRecord) -> _Labels:
    return node.topology, node.name, node.role


def _snapshots(up: Iterable[NodeRecord]) -> Iterator[tuple[_Labels, dict[str, Any]]]:
    for node in up:
        assert node.snapshot is not None
        yield _labels(node), node.snapshot


def _states(view: TreeView) -> Iterator[Metric]:
    family = GaugeMetricFamily("pgm_up", "1 for a node that answers, 0 for one that does not any more.", labels=_NODE)
    for node in view.nodes:
        family.add_metric(_labels(node), float(node.is_up))
    yield family
    family = GaugeMetricFamily("pgm_monitor_nodes", "Nodes that the monitor knows of.", labels=("state",))
    for state in NodeState:
        family.add_metric((state.value,), sum(node.state is state for node in view.nodes))
    family.add_metric(("left out",), view.left_out)
    yield family
    took = "How long it took to ask all of them."
    yield GaugeMetricFamily("pgm_monitor_look_seconds", took, value=view.took_s)


def _processes(up: Iterable[NodeRecord]) -> Iterator[Metric]:
    families: dict[str, CounterMetricFamily | GaugeMetricFamily] = {
        "uptime_s": GaugeMetricFamily("pgm_uptime_seconds", "Since the node started.", labels=_NODE),
        "rss_bytes": GaugeMetricFamily("pgm_resident_memory_bytes", "Memory of the node's process.", labels=_NODE),
        "cpu_s": CounterMetricFamily("pgm_cpu_seconds", "CPU time of the node's process.", labels=_NODE),
    }
    for labels, snapshot in _snapshots(up):
        for key, family in families.items():
            family.add_metric(labels, snapshot[key])
    yield from families.values()


def _family(name: str, unit: str, doc: str, labels: _Labels) -> CounterMetricFamily | GaugeMetricFamily:
    """Of a row of the counters' table; what does not only grow is a gauge."""
    text = f"{doc.rstrip('.')} ({unit})."
    is_gauge = unit.endswith((" now", " at most"))
    return (GaugeMetricFamily if is_gauge else CounterMetricFamily)(name, text, labels=labels)


def _counters(up: list[NodeRecord]) -> Iterator[Metric]:
    snapshots = list(_snapshots(up))
    for row in ROWS:
        family = _family(f"pgm_{row.name}", row.metadata["unit"], row.metadata["doc"], _NODE)
        for labels, snapshot in snapshots:
            family.add_metric(labels, snapshot["counters"].get(row.name, 0))
        yield family
    rejects = CounterMetricFamily(
        "pgm_rejects", "Datagrams that are no packets, by reason (packets).", labels=(*_NODE, "reason")
    )
    for labels, snapshot in snapshots:
        for reason, count in snapshot["counters"].get("rejects", {}).items():
            if reason in REASONS:
                rejects.add_metric((*labels, reason), count)
    yield rejects


def _stream_counters(by_stream: dict[_Labels, Counter[str]]) -> Iterator[Metric]:
    rows = {row.name: row.metadata for row in ROWS}
    for name in SESSION_COUNTERS:
        meta = rows[name]
        family = _family(f"pgm_stream_{name}", f"{meta['unit']}, of one stream", meta["doc"], _STREAM)
        for labels, counts in by_stream.items():
            family.add_metric(labels, counts[name])
        yield family


def _stream_gauges(up: Iterable[NodeRecord]) -> Iterator[Metric]:
    sums: dict[_Labels, Counter[str]] = defaultdict(Counter)
    for labels, snapshot in _snapshots(up):
        for one in snapshot["sessions"]:
            sums[*labels, one["stream"]].update({key: one[key] for key, _ in _SUMS.values()} | {"sessions": 1})
    for name, (key, doc) in {**_SUMS, "pgm_stream_sessions": ("sessions", "Sessions of the stream now.")}.items():
        family = GaugeMetricFamily(name, doc, labels=_STREAM)
        for labels, values in sums.items():
            family.add_metric(labels, values[key])
        yield family


def _buffers(up: Iterable[NodeRecord]) -> Iterator[Metric]:
    family = GaugeMetricFamily(
        "pgm_receive_buffer_bytes", "Receive buffer that the kernel granted.", labels=(*_NODE, "segment")
    )
    for labels, snapshot in _snapshots(up):
        for one in snapshot["segments"]:
            family.add_metric((*labels, one["segment"]), one["rcvbuf"])
    yield family
