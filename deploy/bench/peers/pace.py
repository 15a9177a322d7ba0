"""Pacing for contenders without a sending rate of their own."""

from __future__ import annotations

import time

_SLEEP_NS = 2_000_000  # longer waits sleep, except for a margin at the end, because the kernel may oversleep
_SLEEP_MARGIN_NS = 1_000_000


class Pace:
    """Pacer for at most `rate` messages a second; a rate of 0 means no limit. Time lost in a pause is not caught up."""

    def __init__(self, rate: float) -> None:
        self._ns_each = 1e9 / rate if rate else 0.0
        self._due_ns = 0.0

    def wait(self, count: int) -> None:
        """Return when the next `count` messages may leave."""
        if not self._ns_each:
            return
        now_ns = time.monotonic_ns()
        while now_ns < self._due_ns:
            if self._due_ns - now_ns > _SLEEP_NS:
                time.sleep((self._due_ns - now_ns - _SLEEP_MARGIN_NS) / 1e9)
            now_ns = time.monotonic_ns()
        self._due_ns = max(self._due_ns, now_ns - _SLEEP_NS) + count * self._ns_each
