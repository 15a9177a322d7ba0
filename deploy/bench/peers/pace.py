"""Sending at a rate, for contenders that have no rate of their own."""

from __future__ import annotations

import time

_SLEEP_NS = 2_000_000  # a wait of more than this is slept, but for its last part, which the kernel could oversleep
_SLEEP_MARGIN_NS = 1_000_000


class Pace:
    """Waits so that at most `rate` a second go, 0 for any; what was missed is not made up for."""

    def __init__(self, rate: float) -> None:
        self._ns_each = 1e9 / rate if rate else 0.0
        self._due_ns = 0.0

    def wait(self, count: int) -> None:
        """Return when the next `count` may go."""
        if not self._ns_each:
            return
        now_ns = time.monotonic_ns()
        while now_ns < self._due_ns:
            if self._due_ns - now_ns > _SLEEP_NS:
                time.sleep((self._due_ns - now_ns - _SLEEP_MARGIN_NS) / 1e9)
            now_ns = time.monotonic_ns()
        self._due_ns = max(self._due_ns, now_ns - _SLEEP_NS) + count * self._ns_each
