"""Much that comes steadily is read less often and more at once, as a network card moderates its interrupts.

A wake-up costs some hundred microseconds of CPU beside the packets it brings, in caches that others have filled meanwhile.
Where several nodes share few cores, a node that wakes for each train has its core spent on wake-ups, and the buffers
of the others overflow.
"""

from __future__ import annotations

from pgm.core.counters import Counters
from pgm.units import MILLISECOND, SECOND

# Over so long it is found out how much comes: some trains of the slowest stream that counts as much.
_WINDOW_NS = 10 * MILLISECOND
# A driver's timers step by this: a shorter rest would be as long.
_LEAST_NS = MILLISECOND


class Moderation:
    """How long one socket may be left alone. Not at all while repairs are asked for: they must not wait."""

    def __init__(
        self,
        rest_ivl: int,
        least_rte: int,
        room: int,
        counters: Counters,
        *,
        warm_ivl: int = 0,
        warm_octets: int = 0,
    ) -> None:
        """`rest_ivl` is the longest rest, in ns, 0 for none; `least_rte` the octets a second that are much, `room` those that may wait.

        Memory is to be ready for as much as comes in `warm_ivl` ns, `warm_octets` at most.
        """
        self._rest_ivl = rest_ivl
        self._least_rte = least_rte
        self._room = room
        self._counters = counters
        self._warm_ivl, self._most_warm = warm_ivl, warm_octets
        self._octets = 0
        self._naks = 0
        self._since_ns = 0
        self._rest_ns = 0
        self.steady_rate = 0  # octets a second that came lately, if they are much
        self.warm_octets = 0  # that should have memory ready, touched before it is needed

    def read(self, octets: int) -> None:
        """Take note of what was read."""
        self._octets += octets

    def rest_ns(self, now_ns: int) -> int:
        """For how long to leave the socket alone, now that it is empty; 0 for not at all."""
        elapsed_ns = now_ns - self._since_ns
        naks = self._counters.nak_packets + self._counters.nak_packets_in
        if naks != self._naks:
            self._rest_ns = 0  # at once: a burst is repaired before it was found out how much comes
        if elapsed_ns >= _WINDOW_NS:
            rate = self._octets * SECOND // elapsed_ns
            self.steady_rate = rate if rate >= self._least_rte else 0
            self.warm_octets = min(self._most_warm, self.steady_rate * self._warm_ivl // SECOND)
            may_rest = self.steady_rate and naks == self._naks
            rest_ns = min(self._rest_ivl, self._room * SECOND // rate) if may_rest else 0
            self._rest_ns = rest_ns if rest_ns >= _LEAST_NS else 0
            self._octets, self._since_ns, self._naks = 0, now_ns, naks
        return self._rest_ns
