"""Numbers of each node over the last hour, for the page of a node.

One sample is taken every `SAMPLE_S`. The memory is bounded: `_KEPT` samples of six numbers with four octets for each node
of the last view.
"""

from __future__ import annotations

import math
import time
from array import array
from collections.abc import Callable, Mapping
from itertools import pairwise

import attrs

from deploy.monitor.columns import flow_of, loss_of, lost_of, missing_of
from pgm.fleet.nodes import NodeRecord, TreeView

SAMPLE_S = 10.0
_KEPT = 360
_MEGA = 1e6


@attrs.frozen
class Series:
    """One number of a node over time. `growth` is the factor of the growth between samples, if that is shown instead."""

    heading: str
    unit: str
    value: Callable[[NodeRecord], float]
    growth: float = 0.0


SERIES: Mapping[str, Series] = {
    "flow": Series("packets", "/s", flow_of),
    "loss": Series("lost on the way", "%", lambda node: 100 * loss_of(node)),
    "missing": Series("missing now", "", missing_of),
    "lost": Series("lost to the application, in ten seconds", "", lost_of, 1.0),
    "memory": Series("memory", "MB", lambda node: node.snapshot["rss_bytes"] / _MEGA if node.snapshot else 0.0),
    "cpu": Series("of a core", "%", lambda node: node.snapshot["cpu_s"] if node.snapshot else 0.0, 100 / SAMPLE_S),
}


class History:
    """Ring of samples. A node that has not answered has no number (NaN) in a sample."""

    def __init__(self) -> None:
        self._times = array("d")  # of the samples, seconds since 1970, the oldest first
        self._values: dict[tuple[str, str], dict[str, array[float]]] = {}

    def sample(self, view: TreeView, at_s: float | None = None) -> None:
        """Add a sample, and forget nodes that the view lacks."""
        self._times.append(time.time() if at_s is None else at_s)
        kept = {}
        for node in view.nodes:
            rings = self._values.get((node.topology, node.name)) or {
                name: array("f", [math.nan] * (len(self._times) - 1)) for name in SERIES
            }
            for name, series in SERIES.items():
                rings[name].append(series.value(node) if node.is_up else math.nan)
            kept[node.topology, node.name] = rings
        self._values = kept
        if len(self._times) > _KEPT:
            for ring in (self._times, *(ring for rings in kept.values() for ring in rings.values())):
                del ring[0]

    @property
    def times(self) -> list[float]:
        """Return the times of the samples, seconds since 1970."""
        return list(self._times)

    def of(self, node: NodeRecord, name: str) -> list[float]:
        """Return a series of a node, one number for each sample; NaN where the node has not answered."""
        rings = self._values.get((node.topology, node.name))
        if rings is None:
            return [math.nan] * len(self._times)
        values, growth = list(rings[name]), SERIES[name].growth
        if not growth:
            return values
        return [math.nan, *(_step(earlier, later) * growth for earlier, later in pairwise(values))]


def _step(earlier: float, later: float) -> float:
    """Return the growth between two samples. A node that has started again counts from 0."""
    return later if later < earlier else later - earlier
