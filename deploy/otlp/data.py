"""Metrics for Prometheus as data of the SDK of OpenTelemetry: the same names, labels and values.

Values are made into data points without instruments of the SDK. The counters are the nodes' own, so each sum has the start of
its node's process, and a collector sees a restart as one.
"""

from __future__ import annotations

import platform
from collections.abc import Iterable, Mapping

from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Metric,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from prometheus_client.core import Metric as Family

from deploy.terminal.version import VERSION

NodeKey = tuple[str, str]  # topology and node

_MONOTONIC = "counter"  # type of a family whose values only grow
_INFO = "info"


def metrics_data(
    families: Iterable[Family], starts_ns: Mapping[NodeKey, int], began_ns: int, now_ns: int
) -> MetricsData:
    """Return the data of families at `now_ns`, in ns since 1970.

    `starts_ns` has the start of each node's process. `began_ns` is that of counters of no node.
    """
    metrics = [_metric(family, starts_ns, began_ns, now_ns) for family in families if family.samples]
    # OTEL_RESOURCE_ATTRIBUTES and OTEL_SERVICE_NAME of the environment win, as the SDK documents.
    resource = Resource.create({"service.name": "pgm", "service.version": VERSION, "host.name": platform.node()})
    scope = ScopeMetrics(InstrumentationScope("pgm monitor", VERSION), metrics, "")
    return MetricsData([ResourceMetrics(resource, [scope], "")])


def _metric(family: Family, starts_ns: Mapping[NodeKey, int], began_ns: int, now_ns: int) -> Metric:
    points = [
        NumberDataPoint(
            dict(sample.labels),
            starts_ns.get((sample.labels.get("topology", ""), sample.labels.get("node", "")), began_ns),
            now_ns,
            float(sample.value),
        )
        for sample in family.samples
    ]
    if family.type == _MONOTONIC:
        data: Sum | Gauge = Sum(points, AggregationTemporality.CUMULATIVE, is_monotonic=True)
    else:
        data = Gauge(points)
    # A unit would become part of the name in Prometheus, and the names have theirs already.
    name = f"{family.name}_info" if family.type == _INFO else family.name
    return Metric(name, family.documentation, "", data)
