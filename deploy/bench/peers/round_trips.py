"""Round trips, measured by whoever asks."""

from __future__ import annotations

import enum
import time

import numpy as np

_WARM_UP_S = 0.3  # not counted: caches, window memory, adaptive spinning


class TripResult(enum.Enum):
    """What became of a question."""

    YES = "yes"
    NO = "no"  # nothing came for a long time
    LOST = "lost"  # and it was said so


class RoundTrips:
    """Takes the times for `seconds`, after a while to warm up."""

    def __init__(self, seconds: float) -> None:
        self._times_ns: list[int] = []
        self._lost = 0
        self._begun_ns = 0
        self._counts_from_ns = time.monotonic_ns() + round(_WARM_UP_S * 1e9)
        self._until_ns = self._counts_from_ns + round(seconds * 1e9)

    @property
    def are_over(self) -> bool:
        """Whether the time is up."""
        return time.monotonic_ns() >= self._until_ns

    def begin(self) -> None:
        """A question is about to go."""
        self._begun_ns = time.monotonic_ns()

    def end(self, answered: TripResult) -> None:
        """Its answer has come, or will not."""
        if self._begun_ns < self._counts_from_ns:
            return
        if answered is TripResult.YES:
            self._times_ns.append(time.monotonic_ns() - self._begun_ns)
        else:
            self._lost += 1

    def result(self) -> dict[str, float | int]:
        """Microseconds."""
        times = np.array(self._times_ns or [0], np.float64) / 1000
        p50, p99, p999 = np.percentile(times, (50, 99, 99.9)).tolist()
        return {
            "trips": len(self._times_ns),
            "lost_trips": self._lost,
            "mean_us": round(float(times.mean()), 2),
            "p50_us": round(p50, 2),
            "p99_us": round(p99, 2),
            "p999_us": round(p999, 2),
            "min_us": round(float(times.min()), 2),
            "max_us": round(float(times.max()), 2),
        }
