"""How long repairs took in a simulated tree: a histogram over all receivers, without a row for each."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from pgm.core.loss_observer import MissingView
from pgm.sim.checks.checker import Checker
from pgm.sim.node import SimulatedNode
from pgm.units import MICROSECOND
from pgm.wire.formats import Nla, PacketType, Tsi

_STEPS_PER_E = 50  # of the histogram: two per cent apart


class RepairLatency(Checker):
    """Watches all receivers; hand it to `simulate`. It takes the place of telemetry at `Counters.watch`."""

    def __init__(self) -> None:
        self.waits: Counter[int] = Counter()  # packets, by step of latency
        self.sum_ns = 0

    def started(self, node: SimulatedNode) -> None:
        """Watch a receiver's new core."""
        if node.is_receiver and node.core is not None:
            node.core.counters.watch = self

    @property
    def packets(self) -> int:
        """How many were missed and came, late ones included."""
        return sum(self.waits.values())

    @property
    def mean_ns(self) -> float:
        """The mean wait; 0 where nothing was missed."""
        return self.sum_ns / max(1, self.packets)

    def quantile_ns(self, share: float) -> float:
        """The wait that this share of the packets did not exceed, to two per cent; 0 where nothing was missed."""
        left = share * self.packets
        for step in sorted(self.waits):
            left -= self.waits[step]
            if left <= 0:
                return math.exp(step / _STEPS_PER_E) * MICROSECOND
        return 0.0

    def arrived(self, tsi: Tsi, found: Sequence[MissingView], now_ns: int) -> None:
        """Add up what has come."""
        for one in found:
            waited, packets = now_ns - one.found_at_ns, one.end - one.first
            self.sum_ns += waited * packets
            self.waits[round(math.log(max(1, waited // MICROSECOND)) * _STEPS_PER_E)] += packets

    def missing(self, tsi: Tsi, first: int, end: int, now_ns: int) -> None:
        """Nothing of this, and of what follows, is measured."""

    def filled(self, kind: PacketType, peer: Nla) -> None:
        """By what does not matter."""

    def skipped(self, tsi: Tsi, first: int, end: int) -> None:
        """Nobody waits for these."""

    def gave_up(self, tsi: Tsi, found: MissingView, now_ns: int) -> None:
        """The account has it."""

    def confirmed(self, tsi: Tsi, found: MissingView, now_ns: int) -> None:
        """Only the repair counts."""

    def suppressed(self, tsi: Tsi, found: MissingView, now_ns: int) -> None:
        """Only the repair counts."""

    def timed_out(self, tsi: Tsi, found: MissingView, now_ns: int) -> None:
        """Only the repair counts."""

    def mended(self, tsi: Tsi, first: int, end: int) -> None:
        """Of aggregators."""

    def line_came(self, tsi: Tsi, segment: str, end: int, lost: int, behind_ns: int, now_ns: int) -> None:
        """Of no interest here."""

    def parent_changed(self, old: Nla | None, new: Nla | None) -> None:
        """Only the repair counts."""
