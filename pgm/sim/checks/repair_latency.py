"""Repair latency in a simulated tree: one histogram over all receivers. No repair has a row of its own."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from pgm.core.loss_observer import MissingView
from pgm.sim.checks.checker import Checker
from pgm.sim.node import SimulatedNode
from pgm.units import MICROSECOND
from pgm.wire.formats import Nla, PacketType, Tsi

_STEPS_PER_E = 50  # of the histogram: steps of two per cent


class RepairLatency(Checker):
    """Observer of the repairs of all receivers, in the place of telemetry at `Counters.watch`; for `simulate`."""

    def __init__(self) -> None:
        self.waits: Counter[int] = Counter()  # packets by step of latency
        self.sum_ns = 0

    def started(self, node: SimulatedNode) -> None:
        """Observe a receiver's new core."""
        if node.is_receiver and node.core is not None:
            node.core.counters.watch = self

    @property
    def packets(self) -> int:
        """Missed packets that arrived, late ones included."""
        return sum(self.waits.values())

    @property
    def mean_ns(self) -> float:
        """Mean wait, ns; 0 if no packet was missed."""
        return self.sum_ns / max(1, self.packets)

    def quantile_ns(self, share: float) -> float:
        """Return the wait, ns, that this share of packets did not exceed, to two per cent; 0 without any."""
        left = share * self.packets
        for step in sorted(self.waits):
            left -= self.waits[step]
            if left <= 0:
                return math.exp(step / _STEPS_PER_E) * MICROSECOND
        return 0.0

    def arrived(self, tsi: Tsi, found: Sequence[MissingView], now_ns: int) -> None:
        """Add the waits of packets that arrived."""
        for gap in found:
            waited, packets = now_ns - gap.found_at_ns, gap.end - gap.first
            self.sum_ns += waited * packets
            self.waits[round(math.log(max(1, waited // MICROSECOND)) * _STEPS_PER_E)] += packets

    def missing(self, tsi: Tsi, first: int, end: int, now_ns: int) -> None:
        """Do nothing: only arrivals count."""

    def filled(self, kind: PacketType, peer: Nla) -> None:
        """Do nothing: the kind of the repair does not matter."""

    def skipped(self, tsi: Tsi, first: int, end: int) -> None:
        """Do nothing: no packet arrived."""

    def gave_up(self, tsi: Tsi, found: MissingView, now_ns: int) -> None:
        """Do nothing: the delivery check counts losses."""

    def confirmed(self, tsi: Tsi, found: MissingView, now_ns: int) -> None:
        """Do nothing: only arrivals count."""

    def suppressed(self, tsi: Tsi, found: MissingView, now_ns: int) -> None:
        """Do nothing: only arrivals count."""

    def timed_out(self, tsi: Tsi, found: MissingView, now_ns: int) -> None:
        """Do nothing: only arrivals count."""

    def mended(self, tsi: Tsi, first: int, end: int) -> None:
        """Do nothing: this event belongs to aggregators."""

    def line_came(self, tsi: Tsi, segment: str, end: int, lost: int, behind_ns: int, now_ns: int) -> None:
        """Do nothing: lines are not compared."""

    def parent_changed(self, old: Nla | None, new: Nla | None) -> None:
        """Do nothing: only arrivals count."""
