"""Round trip times, measured by the end that sends requests."""

from __future__ import annotations

import enum
import time

import numpy as np

_WARM_UP_S = 0.3  # not counted: caches, window memory, adaptive polling
_MOST_UNANSWERED = 5  # requests after which a measurement without any answer ends


class TripResult(enum.Enum):
    """Outcome of a request."""

    YES = "yes"
    NO = "no"  # no answer within the timeout
    LOST = "lost"  # the receiver reported the loss


class RoundTrips:
    """Clock for round trips during `seconds`, after a warm-up.

    The measurement continues until a request is answered: a machine can stall for longer than `seconds`.
    """

    def __init__(self, seconds: float, warm_up_s: float = _WARM_UP_S) -> None:
        self._times_ns: list[int] = []
        self._lost = 0
        self._begun_ns = 0
        self._counts_from_ns = time.monotonic_ns() + round(warm_up_s * 1e9)
        self._until_ns = self._counts_from_ns + round(seconds * 1e9)

    @property
    def are_over(self) -> bool:
        """Return whether the measurement has ended."""
        is_measured = bool(self._times_ns) or self._lost >= _MOST_UNANSWERED
        return is_measured and time.monotonic_ns() >= self._until_ns

    def begin(self) -> None:
        """Note the time of a request, just before it is sent."""
        self._begun_ns = time.monotonic_ns()

    def end(self, answered: TripResult) -> None:
        """Note the outcome of the request."""
        if self._begun_ns < self._counts_from_ns:
            return
        if answered is TripResult.YES:
            self._times_ns.append(time.monotonic_ns() - self._begun_ns)
        else:
            self._lost += 1

    def result(self) -> dict[str, float | int]:
        """Return the figures in microseconds."""
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
