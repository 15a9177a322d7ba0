"""Pace of the rows for durable receivers, which all of them share."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

from pgm.units import SECOND


class RowPace:
    """Rate of record batches in octets a second, for any number of threads."""

    def __init__(self, rate: int, ends: threading.Event) -> None:
        """Slow down to `rate`. `ends` ends all waits."""
        self._rate = rate
        self._ends = ends
        self._lock = threading.Lock()
        self._free_at_ns = 0  # when all batches so far have passed

    def slowed(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Yield record batches at the rate."""
        for batch in batches:
            wait_ns = self._admit(batch.nbytes, time.monotonic_ns())
            if wait_ns > 0 and self._ends.wait(wait_ns / SECOND):
                return
            yield batch

    def _admit(self, octets: int, now_ns: int) -> int:
        """Return how long a batch waits for those before it, in ns."""
        with self._lock:
            begins_ns = max(now_ns, self._free_at_ns)
            self._free_at_ns = begins_ns + octets * SECOND // self._rate
            return begins_ns - now_ns
