"""Collector of OpenTelemetry for tests: an HTTP server that reads requests by the SDK's own types."""

from __future__ import annotations

import gzip
import queue
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import attrs
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest


@attrs.frozen
class OtlpRequest:
    """One request: path, headers with names in lower case, and its message."""

    path: str
    headers: Mapping[str, str]
    message: Any

    def points(self) -> dict[tuple[str, str], tuple[float, Any]]:
        """Return the value and the data point of each metric and node."""
        found = {}
        for metric in self.metrics():
            data = metric.sum if metric.HasField("sum") else metric.gauge
            for point in data.data_points:
                labels = labels_of(point)
                found[metric.name, labels.get("node", labels.get("state", ""))] = point.as_double, point
        return found

    def metrics(self) -> Iterator[Any]:
        """Yield the metrics."""
        for resource in self.message.resource_metrics:
            for scope in resource.scope_metrics:
                yield from scope.metrics


def labels_of(point: Any) -> dict[str, str]:
    """Return the labels of a data point."""
    return {one.key: one.value.string_value for one in point.attributes}


@attrs.define
class Collector:
    """Collector with its port, the requests so far, and the status of its answers."""

    port: int
    requests: queue.Queue[OtlpRequest] = attrs.field(factory=queue.Queue)
    status: int = 200

    @property
    def url(self) -> str:
        """Return the URL without a path."""
        return f"http://127.0.0.1:{self.port}"


@contextmanager
def collecting() -> Iterator[Collector]:
    """Yield a collector that runs in a thread during the block."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            octets = self.rfile.read(int(self.headers["content-length"]))
            headers = {key.lower(): value for key, value in self.headers.items()}
            if headers.get("content-encoding") == "gzip":
                octets = gzip.decompress(octets)
            message = ExportMetricsServiceRequest.FromString(octets)
            collector.requests.put(OtlpRequest(self.path, headers, message))
            self.send_response(collector.status)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        collector = Collector(server.server_address[1])
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield collector
        finally:
            server.shutdown()
            thread.join()
