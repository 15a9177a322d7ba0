"""Dashboard of a tree for Grafana, over the series of `pgm monitor` and `pgm agent` in Prometheus."""

from __future__ import annotations

import json
from typing import Any

import attrs

_SOURCE = {"type": "prometheus", "uid": "$datasource"}
_OF_TREE = 'topology="$topology",node=~"$node"'
_WIDTH, _HEIGHT = 12, 8  # of a panel; a row of the screen has 24 columns
_PER_ROW = 24 // _WIDTH


@attrs.frozen
class _Graph:
    """Time series of one panel: an expression with `$$` for the labels of the chosen tree, and its legend."""

    title: str
    expression: str
    unit: str = "short"
    legend: str = "{{node}}"
    text: str = ""


_STATES = (
    _Graph("Nodes up", "sum(pgm_up{$$})"),
    _Graph("Nodes that do not answer", "count(pgm_up{$$}) - sum(pgm_up{$$})"),
    _Graph("Packets lost for good, 1 h", "sum(increase(pgm_lost_sqns_total{$$}[1h]))"),
    _Graph("Packets repaired, 1 h", "sum(increase(pgm_repaired_sqns_total{$$}[1h]))"),
    _Graph("Missing now", "sum(pgm_stream_missing_now_sqns{$$})"),
    _Graph("Packets refused, 1 h", "sum(increase(pgm_rejects_total{$$}[1h]))"),
)
_GRAPHS = (
    _Graph("Packets lost for good", "increase(pgm_lost_sqns_total{$$}[5m]) > 0", text="Alarm PacketsLost."),
    _Graph("Missing now, and requested", "sum by (node) (pgm_stream_missing_now_sqns{$$}) > 0"),
    _Graph("Delivered", "rate(pgm_delivered_packets_total{$$}[1m]) > 0", "pps"),
    _Graph("Sent by sources", 'rate(pgm_odata_octets_total{role="source",$$}[1m])', "Bps"),
    _Graph(
        "Repairs from the own segment",
        'sum by (topology) (rate(pgm_repaired_locally_total{role="receiver",$$}[5m]))'
        ' / sum by (topology) (rate(pgm_repaired_sqns_total{role="receiver",$$}[5m]))',
        "percentunit",
        "{{topology}}",
        "Alarm RepairsFromFarAway below one half.",
    ),
    _Graph("Packets requested from each node", "rate(pgm_nak_sqns_in_total{$$}[1m]) > 0", "pps"),
    _Graph("Repairs sent by each node", "rate(pgm_rdata_packets_total{$$}[1m]) > 0", "pps"),
    _Graph("Dropped by receive buffers", "rate(pgm_socket_drops_total{$$}[1m]) > 0", "pps"),
    _Graph("Slowdowns of sources", "increase(pgm_rate_cuts_total{$$}[5m]) > 0"),
    _Graph("Refused packets, by reason", "sum by (reason) (rate(pgm_rejects_total{$$}[5m])) > 0", "pps", "{{reason}}"),
    _Graph("Processor time", "rate(pgm_cpu_seconds_total{$$}[1m])", "percentunit"),
    _Graph("Memory", "pgm_resident_memory_bytes{$$}", "bytes"),
)


def grafana_files() -> dict[str, str]:
    """Return the file of the dashboard. It has variables for the data source, the tree and the nodes."""
    stats = [_panel(at, graph, "stat", 24 // len(_STATES), 4, 0) for at, graph in enumerate(_STATES)]
    graphs = [_panel(len(stats) + at, graph, "timeseries", _WIDTH, _HEIGHT, 4) for at, graph in enumerate(_GRAPHS)]
    for at, panel in enumerate(graphs):
        panel["gridPos"] |= {"x": at % _PER_ROW * _WIDTH, "y": 4 + at // _PER_ROW * _HEIGHT}
    dashboard = {
        "uid": "pgm-tree",
        "title": "pgm: a tree",
        "tags": ["pgm", "multicast"],
        "schemaVersion": 41,
        "editable": True,
        "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": [_source_variable(), *map(_variable, ("topology", "node"))]},
        "annotations": {"list": []},
        "panels": [*stats, *graphs],
    }
    return {"pgm-dashboard.json": json.dumps(dashboard, indent=2)}


def _panel(at: int, graph: _Graph, kind: str, width: int, height: int, y: int) -> dict[str, Any]:
    return {
        "id": at + 1,
        "type": kind,
        "title": graph.title,
        "description": graph.text,
        "datasource": _SOURCE,
        "gridPos": {"x": at * width % 24, "y": y, "w": width, "h": height},
        "fieldConfig": {"defaults": {"unit": graph.unit, "min": 0}, "overrides": []},
        "targets": [
            {
                "refId": "A",
                "datasource": _SOURCE,
                "expr": graph.expression.replace("$$", _OF_TREE),
                "legendFormat": graph.legend,
            }
        ],
    }


def _source_variable() -> dict[str, Any]:
    return {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Prometheus"}


def _variable(label: str) -> dict[str, Any]:
    of = "" if label == "topology" else '{topology="$topology"}'
    return {
        "name": label,
        "type": "query",
        "datasource": _SOURCE,
        "query": {"query": f"label_values(pgm_up{of}, {label})", "refId": label},
        "refresh": 2,
        "multi": label == "node",
        "includeAll": label == "node",
        "allValue": ".*" if label == "node" else None,
    }
