"""Rates of a node: growth of its counters over the last second, minute and five minutes, with peaks.

One reading a second is kept for five minutes. The number of sums is fixed, so the memory is bounded.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Any

import attrs

from pgm.core.counters import Counters
from pgm.units import SECOND

SAMPLE_IVL = SECOND
WINDOWS = {"1s": SECOND, "1min": 60 * SECOND, "5min": 300 * SECOND}
_TOLERANCE = SECOND // 2  # ns by which a reading may come early or late

# sum -> its counters
SUMS: dict[str, tuple[str, ...]] = {
    "sent_packets": ("odata_packets", "rdata_packets", "rdata_forwarded"),
    "sent_octets": ("odata_octets", "rdata_octets"),
    "received_packets": ("received_packets",),
    "received_octets": ("received_octets",),
    "delivered_packets": ("delivered_packets",),
    "delivered_octets": ("delivered_octets",),
    "repairs_sent": ("rdata_packets", "rdata_forwarded"),
    "missing_sqns": ("missing_sqns",),
    "repaired_sqns": ("repaired_sqns",),
    "lost_sqns": ("lost_sqns",),
    "asked_sqns": ("nak_sqns",),
    "asked_for_sqns": ("nak_sqns_in",),
}


@attrs.define
class _Peak:
    """Highest rate in one window, and its time in seconds since 1970."""

    per_s: float = 0.0
    at_s: float | None = None


class Rates:
    """Readings of one node's counters. The caller calls `sample` about once in `SAMPLE_IVL`."""

    def __init__(self) -> None:
        self._times: list[int] = []
        self._values: list[tuple[int, ...]] = []
        self._peaks = {(name, window): _Peak() for name in SUMS for window in WINDOWS}

    def sample(self, counters: Counters, now_ns: int, wall_s: float) -> None:
        """Read the counters at `now_ns` (the core's clock) and `wall_s` (seconds since 1970)."""
        self._times.append(now_ns)
        self._values.append(tuple(sum(getattr(counters, key) for key in keys) for keys in SUMS.values()))
        kept = bisect_right(self._times, now_ns - max(WINDOWS.values()) - _TOLERANCE)
        del self._times[:kept], self._values[:kept]
        for window, ivl in WINDOWS.items():
            if now_ns - self._times[0] < ivl - _TOLERANCE:
                continue  # a window has no peak before its first full length
            for name, per_s in self._over(ivl).items():
                peak = self._peaks[name, window]
                if per_s > peak.per_s:
                    peak.per_s, peak.at_s = per_s, wall_s

    def _over(self, ivl: int) -> dict[str, float]:
        """Return each sum per second over the last `ivl` ns, or over all readings if these are shorter."""
        if len(self._times) < 2:
            return dict.fromkeys(SUMS, 0.0)
        now_ns = self._times[-1]
        at = min(bisect_right(self._times, now_ns - ivl + _TOLERANCE), len(self._times) - 1)
        at = max(0, at - 1)
        seconds = (now_ns - self._times[at]) / SECOND
        return {
            name: (new - old) / seconds for name, new, old in zip(SUMS, self._values[-1], self._values[at], strict=True)
        }

    def snapshot(self) -> dict[str, dict[str, dict[str, Any]]]:
        """Return `per_s`, `peak_per_s` and `peak_at` (seconds since 1970) by sum and window, without sums of 0."""
        now = {window: self._over(ivl) for window, ivl in WINDOWS.items()}
        moved = [name for name, total in zip(SUMS, self._values[-1] if self._values else (), strict=False) if total]
        return {
            name: {
                window: {
                    "per_s": round(now[window][name], 3),
                    "peak_per_s": round(self._peaks[name, window].per_s, 3),
                    "peak_at": self._peaks[name, window].at_s,
                }
                for window in WINDOWS
            }
            for name in moved
        }
