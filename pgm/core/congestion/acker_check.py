"""Whether the reports of an acker agree with its acks (draft-ietf-rmt-bb-pgmcc-03, 5; CC-41).

A receiver that says more losses or longer round trips than it has is elected, and then acknowledges as it likes. Its acks
tell of the same sqns as its loss rate does, and when they came; so the source reckons both by itself.
"""

from __future__ import annotations

from pgm.core.congestion.link_reports import moved
from pgm.core.congestion.window import MAP_BITS
from pgm.units import MILLISECOND

RTT_WEIGHT = 0.125
_SQNS = 512  # that they must disagree for: four times the memory of a loss rate, so that what was before does not count
_TIMES = 4  # the larger may be so many times the smaller: acks are lost, and repairs may be faster than the next one
_LOSS_SLACK = 0.01
_RTT_SLACK_NS = 20 * MILLISECOND  # of timers, and of packets that wait for their train


class AckerCheck:
    """What one acker's acks say, from the first one on."""

    def __init__(self) -> None:
        self.loss = 0.0
        self.rtt_ns = 0  # smoothed
        self._rx_max: int | None = None
        self._differs_from: int | None = None  # the sqn since which reports and acks disagree

    def acked(self, rx_max: int, bitmap: int, said_loss: float, took_ns: int | None) -> None:
        """Take an ack: the sqns that it is the first to tell of, and `took_ns` after the newest of them was sent."""
        if self._rx_max is None:
            self._rx_max, self.loss = rx_max, said_loss  # the doubt is in its favour
            return
        new = rx_max - self._rx_max
        if new <= 0:
            return
        self._rx_max = rx_max
        told = min(new, MAP_BITS)
        holes = told - (bitmap & ((1 << told) - 1)).bit_count()
        if not bitmap >> (MAP_BITS - 1) & 1:
            holes += new - told  # a gap that reaches out of the map
        self.loss = moved(self.loss, holes, new - holes)
        if took_ns is not None:
            self.rtt_ns = round((1 - RTT_WEIGHT) * self.rtt_ns + RTT_WEIGHT * took_ns) if self.rtt_ns else took_ns

    def differs(self, said_loss: float, said_rtt_ns: int) -> bool:
        """Whether reports and acks have disagreed for long."""
        agrees = _are_alike(self.loss, said_loss, _LOSS_SLACK) and (
            not self.rtt_ns or _are_alike(self.rtt_ns, said_rtt_ns, _RTT_SLACK_NS)
        )
        if agrees or self._rx_max is None:
            self._differs_from = None
            return False
        if self._differs_from is None:
            self._differs_from = self._rx_max
        return self._rx_max - self._differs_from >= _SQNS


def _are_alike(one: float, other: float, slack: float) -> bool:
    return max(one, other) <= _TIMES * min(one, other) + slack
