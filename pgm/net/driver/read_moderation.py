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
# Losses that go on for so many windows, in each of them less than this share of what comes, are the path's and no burst: to wake
# for every train on their account would cost more than all else that is done for them, and a repair takes several times this rest.
_STEADY_WINDOWS = 10
_FEW = 1 / 16


class ReadModeration:
    """How long one socket may be left alone. Not at all while repairs are asked for, which must not wait; where a few are all the time, as shortly as timers can."""

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
        self._naks_in = self._sqns_asked = self._packets = 0  # when the window began
        self._few_sqns = 0.0  # of what came in the window before
        self._lossy_windows = 0  # in a row, in which a few were lost, or nothing
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
        has_asked = naks != self._naks
        may_rest = not has_asked or (self._lossy_windows >= _STEADY_WINDOWS and self._are_few)
        if has_asked:  # at once: a burst is repaired before it was found out how much comes
            self._rest_ns = min(self._rest_ns, _LEAST_NS) if may_rest else 0
        if elapsed_ns >= _WINDOW_NS:
            rate = self._octets * SECOND // elapsed_ns
            self.steady_rate = rate if rate >= self._least_rte else 0
            self.warm_octets = min(self._most_warm, self.steady_rate * self._warm_ivl // SECOND)
            rest_ns = min(self._rest_ivl, self._room * SECOND // rate) if self.steady_rate and may_rest else 0
            self._rest_ns = rest_ns if rest_ns >= _LEAST_NS else 0
            if has_asked:
                self._rest_ns = min(self._rest_ns, _LEAST_NS)
                self._lossy_windows = self._lossy_windows + 1 if self._are_few else 0
            self._begin(now_ns)
        return self._rest_ns

    def _begin(self, now_ns: int) -> None:
        """Begin a window."""
        counters = self._counters
        self._few_sqns = _FEW * (counters.packets_in - self._packets)
        self._octets, self._since_ns = 0, now_ns
        self._naks, self._naks_in = counters.nak_packets + counters.nak_packets_in, counters.nak_packets_in
        self._sqns_asked, self._packets = counters.nak_sqns, counters.packets_in

    @property
    def _are_few(self) -> bool:
        """Whether little was asked for since the window began, and by this node alone: children wait for answers."""
        counters = self._counters
        return counters.nak_packets_in == self._naks_in and counters.nak_sqns - self._sqns_asked <= self._few_sqns
