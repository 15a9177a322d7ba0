"""Read moderation: fewer and larger reads of a steady stream.

Network cards moderate their interrupts in the same way. A wake-up costs some hundred microseconds of CPU beside its
packets, because other processes have filled the caches. If several nodes share few cores, a node that wakes for each
train spends its core on wake-ups. The buffers of the others then overflow.
"""

from __future__ import annotations

import attrs

from pgm.core.counters import Counters
from pgm.net.driver.rest_settings import ReadSettings
from pgm.units import MILLISECOND, SECOND

# Length of a window in which the rate is measured: some trains of the slowest stream that is moderated.
_WINDOW_NS = 10 * MILLISECOND
# Step of a driver's timers: a shorter rest would take as long.
_LEAST_NS = MILLISECOND
# Losses in this many windows, each below this share of the packets, are losses of the path and no burst. A wake-up for
# every train on their account would cost more than all other work, and a repair takes several times this rest.
_STEADY_WINDOWS = 10
_FEW_SHARE = 1 / 16


@attrs.frozen
class _WindowStart:
    """Counters at the beginning of a window, and its time."""

    since_ns: int
    naks: int  # packets, own and received
    naks_in: int
    sqns_requested: int
    packets: int

    @classmethod
    def of(cls, counters: Counters, now_ns: int) -> _WindowStart:
        naks_in = counters.nak_packets_in
        return cls(now_ns, counters.nak_packets + naks_in, naks_in, counters.nak_sqns, counters.packets_in)


class ReadModeration:
    """Rests of one socket, by the rate of its data and the losses.

    There is no rest while repairs are outstanding, which must not wait. With few and constant losses the rest is the
    shortest that timers allow.
    """

    def __init__(self, settings: ReadSettings, room: int, counters: Counters) -> None:
        """Set the bounds. `room` is the number of octets that may wait.

        `settings` has the longest rest (`bulk_ivl`; 0 disables rests), the least rate to moderate (`bulk_rte`), and the
        bounds of prefaulted memory.
        """
        self._settings = settings
        self._room = room
        self._counters = counters
        self._octets = 0
        self._start = _WindowStart(0, 0, 0, 0, 0)
        self._few_sqns = 0.0  # bound on requested sqns, by the packets of the previous window
        self._lossy_windows = 0  # consecutive windows with few losses or none
        self._rest_ns = 0
        self.steady_rate = 0  # octets a second in the last window; 0 below the least rate to moderate
        self.warm_octets = 0  # octets of memory to prefault

    def read(self, octets: int) -> None:
        """Record octets read."""
        self._octets += octets

    def rest_ns(self, now_ns: int) -> int:
        """Return how long to leave the empty socket alone, in ns; 0 for no rest."""
        settings, start = self._settings, self._start
        elapsed_ns = now_ns - start.since_ns
        has_naks = self._counters.nak_packets + self._counters.nak_packets_in != start.naks
        may_rest = not has_naks or (self._lossy_windows >= _STEADY_WINDOWS and self._has_few_losses)
        if has_naks:  # at once: a burst is repaired before the end of the window
            self._rest_ns = min(self._rest_ns, _LEAST_NS) if may_rest else 0
        if elapsed_ns >= _WINDOW_NS:
            rate = self._octets * SECOND // elapsed_ns
            self.steady_rate = rate if rate >= settings.bulk_rte else 0
            self.warm_octets = min(settings.warm_octets, self.steady_rate * settings.warm_ivl // SECOND)
            rest_ns = min(settings.bulk_ivl, self._room * SECOND // rate) if self.steady_rate and may_rest else 0
            self._rest_ns = rest_ns if rest_ns >= _LEAST_NS else 0
            if has_naks:
                self._rest_ns = min(self._rest_ns, _LEAST_NS)
                self._lossy_windows = self._lossy_windows + 1 if self._has_few_losses else 0
            self._few_sqns = _FEW_SHARE * (self._counters.packets_in - start.packets)
            self._octets, self._start = 0, _WindowStart.of(self._counters, now_ns)
        return self._rest_ns

    @property
    def _has_few_losses(self) -> bool:
        """Return whether few sqns were requested in this window, none by children, which wait for answers."""
        counters, start = self._counters, self._start
        return counters.nak_packets_in == start.naks_in and counters.nak_sqns - start.sqns_requested <= self._few_sqns
