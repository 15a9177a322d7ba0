"""Check of an acker's reports against its acks (CC-41).

Reference: draft-ietf-rmt-bb-pgmcc-03, section 5. A receiver that reports more losses or longer round trips than it
has is elected, and then controls the rate by its acks. The acks cover the same sqns as the reported loss rate, and
their arrival times show the round trip. The source therefore computes both values from the acks.
"""

from __future__ import annotations

from pgm.core.congestion.link_reports import moved
from pgm.core.congestion.window import MAP_BITS
from pgm.units import MILLISECOND, NEVER

RTT_WEIGHT = 0.125
_SQNS = 512  # length of a disagreement before it counts: four times the memory of a loss rate, so older losses drop out
_TIMES = 4  # allowed ratio of the values, since acks may be lost, and a repair may be faster than the next ack
_LOSS_SLACK = 0.01
_RTT_SLACK_NS = 20 * MILLISECOND  # for timers, and for packets that wait for their train


class AckerCheck:
    """Loss rate and round trip of one acker, computed from its acks."""

    def __init__(self) -> None:
        self.loss = 0.0
        self.rtt_ns = 0  # smoothed
        self._rx_max = -NEVER  # before the first ack
        self._differs_from = NEVER  # the sqn since which reports and acks disagree

    def acked(self, rx_max: int, bitmap: int, reported_loss: float, took_ns: int) -> None:
        """Take an ack of sqns above the last `rx_max`. `took_ns` is the time since the newest was sent; -1: unknown."""
        if self._rx_max == -NEVER:
            self._rx_max, self.loss = rx_max, reported_loss  # the first report is believed
            return
        new = rx_max - self._rx_max
        if new <= 0:
            return
        self._rx_max = rx_max
        mapped = min(new, MAP_BITS)
        missing = mapped - (bitmap & ((1 << mapped) - 1)).bit_count()
        if not bitmap >> (MAP_BITS - 1) & 1:
            missing += new - mapped  # a gap that extends beyond the map
        self.loss = moved(self.loss, missing, new - missing)
        if took_ns >= 0:
            self.rtt_ns = round((1 - RTT_WEIGHT) * self.rtt_ns + RTT_WEIGHT * took_ns) if self.rtt_ns else took_ns

    def differs(self, reported_loss: float, reported_rtt_ns: int) -> bool:
        """Return whether reports and acks have disagreed for `_SQNS` sqns. There must be an ack."""
        agrees = _are_close(self.loss, reported_loss, _LOSS_SLACK) and (
            not self.rtt_ns or _are_close(self.rtt_ns, reported_rtt_ns, _RTT_SLACK_NS)
        )
        self._differs_from = NEVER if agrees else min(self._differs_from, self._rx_max)
        return self._rx_max - self._differs_from >= _SQNS


def _are_close(first: float, second: float, slack: float) -> bool:
    return max(first, second) <= _TIMES * min(first, second) + slack
