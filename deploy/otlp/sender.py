"""Sender of metrics: one request to a collector at each interval, as long as the monitor runs."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Awaitable, Callable

import trio
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics.export import MetricExportResult
from prometheus_client.core import Metric as Family

from deploy.otlp.data import NodeKey, metrics_data
from deploy.otlp.target import OtlpTarget
from deploy.terminal.log import log
from pgm.errors import PgmError
from pgm.fleet.nodes import TreeView

MOST_POINTS = 10_000  # of a request, some 2 MiB before compression; collectors accept 4 MiB and more
_LEAST_TIMEOUT_S, _MOST_TIMEOUT_S = 1.0, 10.0  # of a request with its repeats, which the SDK makes
_SDK = logging.getLogger("opentelemetry")
_QUERY = re.compile(r"\?\S*")


class _FirstWords(logging.Handler):
    """Handler that keeps the first message of the SDK, which tells failures by its log alone.

    The first message has the cause. The last one tells that all retries have ended.
    """

    text = ""

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the first line of a message, without the queries of URLs: they may have keys."""
        self.text = self.text or _QUERY.sub("", record.getMessage().partition("\n")[0])[:400]


class OtlpSender:
    """Sender to one collector. `families` makes the metrics of a view.

    A collector that fails is no fault of the monitor: its first failure and its return are logged.
    """

    def __init__(self, target: OtlpTarget, families: Callable[[TreeView], list[Family]]) -> None:
        self._target, self._families = target, families
        self._exporter = OTLPMetricExporter(
            target.url,
            headers=dict(target.headers),
            timeout=max(_LEAST_TIMEOUT_S, min(target.interval_s, _MOST_TIMEOUT_S)),
            compression=Compression.Gzip,
            max_export_batch_size=MOST_POINTS,
        )
        self._words = _FirstWords()
        _SDK.addHandler(self._words)
        _SDK.propagate = False  # the messages are told in the monitor's own log
        self._began_ns = time.time_ns()
        self._starts: dict[NodeKey, tuple[int, int]] = {}  # process and start of each node
        self._fails = False

    async def run(self, look: Callable[[], Awaitable[TreeView]]) -> None:
        """Send what `look` returns at each interval, until cancelled. An interval without an answer is left out."""
        due_s = trio.current_time()
        while True:
            try:
                view = await look()
            except (OSError, PgmError):  # the pages tell of it
                pass
            else:
                await trio.to_thread.run_sync(self.send, view, abandon_on_cancel=True)
            due_s = max(due_s + self._target.interval_s, trio.current_time())
            await trio.sleep_until(due_s)

    def send(self, view: TreeView) -> bool:
        """Send the metrics of a view in this thread. Return whether the collector has them."""
        now_ns = time.time_ns()
        starts_ns = self._starts_of(view, now_ns)
        data = metrics_data(self._families(view), starts_ns, self._began_ns, now_ns)
        self._words.text = ""
        has_sent = self._exporter.export(data) is MetricExportResult.SUCCESS
        if has_sent and self._fails:
            log("otlp-resumes", f"{self._target.shown} takes metrics again")
        elif not has_sent and not self._fails:
            log("otlp-fails", f"{self._target.shown} takes no metrics: {self._words.text or 'no reason is known'}")
        self._fails = not has_sent
        return has_sent

    def _starts_of(self, view: TreeView, now_ns: int) -> dict[NodeKey, int]:
        """Return the start of each node's process in ns since 1970, the same one as long as the process lives."""
        known, self._starts = self._starts, {}
        for node in view.nodes:
            if node.snapshot is not None:
                key, pid = (node.topology, node.name), node.snapshot["pid"]
                start_ns = now_ns - round(node.snapshot["uptime_s"] * 1e9)
                earlier = known.get(key)
                self._starts[key] = earlier if earlier is not None and earlier[0] == pid else (pid, start_ns)
        return {key: start_ns for key, (_, start_ns) in self._starts.items()}
