"""Numbers of running nodes in Prometheus format, one family for each counter.

The help of a family comes from the table in docs/reference/counters.md. Labels are names of the topology: topology, node, role,
and stream or segment. Digests of files are labels of one family with one series a node. TSIs and addresses of peers are no labels, because their number has no bound. Counters of 0 are
exported too: an alarm on an increase would miss a counter that first appears as 7.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from typing import Any, TypeAlias

import attrs
from prometheus_client.core import CollectorRegistry, CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from pgm.core.counters import ROWS
from pgm.core.session.session_counters import SESSION_COUNTERS
from pgm.deprecated import COUNTERS
from pgm.fleet.nodes import NodeRecord, NodeState, TreeView
from pgm.mutual_tls.refusals import Refusals
from pgm.wire.rejects import REASONS

_NODE = ("topology", "node", "role")
_STREAM = (*_NODE, "stream")

# gauge -> key of the sessions' values to add up, help
_SUMS = {
    "pgm_stream_missing_now_sqns": ("missing_sqns", "Packets missing now and requested."),
    "pgm_stream_owed_now_sqns": ("pending_sqns", "Repairs requested and not sent yet."),
    "pgm_stream_held_octets": ("held_octets", "Octets in the window or cache."),
}
# gauge -> what is counted of the sessions, help
_COUNTS = {
    "pgm_stream_sessions": ("sessions", "Sessions of the stream now."),
    "pgm_stream_other_file_sessions": ("other", "Sessions now whose source runs another topology file than the node."),
}
_DIGEST = re.compile(r"[0-9a-f]{1,64}")
_Labels: TypeAlias = tuple[str, ...]
_Family: TypeAlias = CounterMetricFamily | GaugeMetricFamily


@attrs.define
class _StreamCounts:
    """Counts of one process by stream. Ended sessions stay in the sum, because counters must not decrease."""

    pid: int
    last: dict[tuple[str, str], dict[str, int]] = attrs.field(factory=dict)  # by stream and TSI
    ended: dict[str, Counter[str]] = attrs.field(factory=lambda: defaultdict(Counter))

    def take(self, sessions: Iterable[dict[str, Any]]) -> dict[str, Counter[str]]:
        """Return the sums by stream; streams without a name in the topology are one."""
        now = {(session["stream"], session["tsi"]): session["counts"] for session in sessions}
        for key, counts in self.last.items():
            if key not in now or any(now[key].get(name, 0) < count for name, count in counts.items()):
                self.ended[key[0]].update(counts)
        self.last = now
        totals = {stream: Counter(counts) for stream, counts in self.ended.items()}
        for (stream, _), counts in now.items():
            totals.setdefault(stream, Counter()).update(counts)
        return totals


class Metrics:
    """Renderer of views for Prometheus. Sums by stream are kept as long as a node is seen."""

    def __init__(self, refusals: Refusals | None = None) -> None:
        self._refusals = refusals or Refusals()
        self._streams: dict[tuple[str, str], _StreamCounts] = {}

    def render(self, view: TreeView, accept: str = "") -> tuple[bytes, str]:
        """Return the text and its content type: OpenMetrics if `accept` allows it, else Prometheus text."""
        registry = CollectorRegistry(auto_describe=False)
        registry.register(_FamilyCollector(self.families(view)))
        encoder, content_type = choose_encoder(accept)
        return encoder(registry), content_type

    def families(self, view: TreeView) -> list[Metric]:
        """Return the families of a view."""
        view = _without_namesakes(view)
        return _with_hosts(self._families(view), view)

    def _families(self, view: TreeView) -> list[Metric]:
        up = [node for node in view.nodes if node.is_up]
        by_stream = self._by_stream(view.nodes)
        families = [*_states(view), *_processes(up), *_counters(up), *_stream_gauges(up), *_buffers(up), _files(up)]
        return [*families, *_stream_counters(by_stream), self._refused()]

    def _refused(self) -> Metric:
        doc = "Connections and requests that the monitor refused, by the keys of their nodes."
        counts = (((reason,), float(count)) for reason, count in self._refusals.counts.items())
        return _filled(CounterMetricFamily("pgm_monitor_refused", doc, labels=("reason",)), counts)

    def _by_stream(self, nodes: Iterable[NodeRecord]) -> dict[_Labels, Counter[str]]:
        kept, self._streams = self._streams, {}
        counts_by_stream: dict[_Labels, Counter[str]] = {}
        for node in nodes:
            if node.snapshot is None:
                continue
            key, pid = (node.topology, node.name), node.snapshot["pid"]
            streams = kept.get(key)
            if streams is None or streams.pid != pid:
                streams = _StreamCounts(pid)
            self._streams[key] = streams  # a node that is stuck for a moment keeps its sums
            if node.is_up:
                for stream, counts in streams.take(node.snapshot["sessions"]).items():
                    counts_by_stream[*_labels(node), stream] = counts
        return counts_by_stream


class _FamilyCollector(Collector):
    """Collector of finished families, as a registry requires."""

    def __init__(self, families: list[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        """Return the families."""
        return self._families


def _without_namesakes(view: TreeView) -> TreeView:
    """Return a view with one node for each name.

    Two samples with equal labels are invalid, and a tree may run again in another folder. The first node that is up
    stays. `left_out` counts the other nodes that are up.
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


def _with_hosts(families: list[Metric], view: TreeView) -> list[Metric]:
    """Add the label `host` to each sample of a node of a fleet."""
    hosts = {(node.topology, node.name): node.host for node in view.nodes} if view.hosts else {}
    for family in families:
        for sample in family.samples if hosts else ():
            if "node" in sample.labels:
                sample.labels["host"] = hosts[sample.labels["topology"], sample.labels["node"]]
    return families


def _labels(node: NodeRecord) -> _Labels:
    return node.topology, node.name, node.role


def _snapshots(up: Iterable[NodeRecord]) -> Iterator[tuple[_Labels, dict[str, Any]]]:
    for node in up:
        assert node.snapshot is not None
        yield _labels(node), node.snapshot


def _filled(family: _Family, samples: Iterable[tuple[_Labels, float]]) -> _Family:
    for labels, value in samples:
        family.add_metric(labels, value)
    return family


def _states(view: TreeView) -> Iterator[Metric]:
    doc = "1 for a node that answers, 0 for a node of this host that does not."
    unknown = (NodeState.ELSEWHERE, NodeState.UNREACHABLE)
    here = (node for node in view.nodes if node.state not in unknown)
    up = ((_labels(node), float(node.is_up)) for node in here)
    yield _filled(GaugeMetricFamily("pgm_up", doc, labels=_NODE), up)
    family = GaugeMetricFamily("pgm_monitor_nodes", "Nodes that the monitor knows.", labels=("state",))
    counts = (((state.value,), sum(node.state is state for node in view.nodes)) for state in NodeState)
    yield _filled(family, [*counts, (("left out",), view.left_out)])
    agents = (((host.name,), float(not host.problem)) for host in view.hosts)
    doc = "1 for a host of a fleet whose agent answers, else 0."
    yield _filled(GaugeMetricFamily("pgm_agent_up", doc, labels=("host",)), agents)
    files = (((host.name,), float(host.has_other_file)) for host in view.hosts)
    doc = "1 for a host of a fleet with another topology file."
    yield _filled(GaugeMetricFamily("pgm_agent_other_file", doc, labels=("host",)), files)
    took = "Time needed to ask all nodes."
    yield GaugeMetricFamily("pgm_monitor_look_seconds", took, value=view.took_s)


def _processes(up: Iterable[NodeRecord]) -> Iterator[Metric]:
    families: dict[str, _Family] = {
        "uptime_s": GaugeMetricFamily("pgm_uptime_seconds", "Time since the node started.", labels=_NODE),
        "rss_bytes": GaugeMetricFamily("pgm_resident_memory_bytes", "Memory of the node's process.", labels=_NODE),
        "cpu_s": CounterMetricFamily("pgm_cpu_seconds", "CPU time of the node's process.", labels=_NODE),
    }
    for labels, snapshot in _snapshots(up):
        for key, family in families.items():
            family.add_metric(labels, snapshot[key])
    yield from families.values()


def _family(name: str, unit: str, doc: str, labels: _Labels) -> _Family:
    """Return the family of a counter; a value that can decrease is a gauge."""
    text = f"{doc.rstrip('.')} ({unit})."
    is_gauge = unit.endswith((" now", " at most"))
    return (GaugeMetricFamily if is_gauge else CounterMetricFamily)(name, text, labels=labels)


def _counters(up: list[NodeRecord]) -> Iterator[Metric]:
    snapshots = list(_snapshots(up))
    rows = {row.name: row.metadata for row in ROWS}
    former_rows = {former: {**rows[name], "doc": f"Deprecated: now pgm_{name}."} for former, name in COUNTERS.items()}
    for name, meta in (rows | former_rows).items():
        family = _family(f"pgm_{name}", meta["unit"], meta["doc"], _NODE)
        yield _filled(family, ((labels, snapshot["counters"].get(name, 0)) for labels, snapshot in snapshots))
    rejects = CounterMetricFamily(
        "pgm_rejects", "Datagrams that are not PGM packets, by reason (packets).", labels=(*_NODE, "reason")
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
        yield _filled(family, ((labels, counts[name]) for labels, counts in by_stream.items()))


def _stream_gauges(up: Iterable[NodeRecord]) -> Iterator[Metric]:
    sums: dict[_Labels, Counter[str]] = defaultdict(Counter)
    for labels, snapshot in _snapshots(up):
        for session in snapshot["sessions"]:
            # A source's SPMs tell its file, and nobody vouches for them: their digests are compared, and are no labels.
            theirs, own = str(session.get("file", "")).partition(" ")[0], snapshot.get("file")
            row = {key: session[key] for key, _ in _SUMS.values()}
            sums[*labels, session["stream"]].update(
                row | {"sessions": 1, "other": int(bool(theirs and own) and theirs != own)}
            )
    for name, (key, doc) in {**_SUMS, **_COUNTS}.items():
        family = GaugeMetricFamily(name, doc, labels=_STREAM)
        yield _filled(family, [(labels, values[key]) for labels, values in sums.items()])


def _files(up: Iterable[NodeRecord]) -> Metric:
    """Return the fingerprints of the topology files by which nodes run. Nodes without a file have none."""
    family = InfoMetricFamily(
        "pgm_topology_file",
        "Digests of the topology file by which the node runs, and of the node's part of it.",
        labels=_NODE,
    )
    for labels, snapshot in _snapshots(up):
        file, part = (_digest(snapshot.get(key)) for key in ("file", "file_part"))
        if file:
            family.add_metric(labels, {"file": file, "part": part})
    return family


def _digest(value: object) -> str:
    """Return a digest that a node tells, or nothing for what is none."""
    return value if isinstance(value, str) and _DIGEST.fullmatch(value) else ""


def _buffers(up: Iterable[NodeRecord]) -> Iterator[Metric]:
    family = GaugeMetricFamily(
        "pgm_receive_buffer_bytes", "Receive buffer that the kernel granted.", labels=(*_NODE, "segment")
    )
    rows = ((labels, segment) for labels, snapshot in _snapshots(up) for segment in snapshot["segments"])
    yield _filled(family, (((*labels, segment["segment"]), segment["rcvbuf"]) for labels, segment in rows))
