"""Time of day for cores, whose own clock counts from any instant and never jumps."""

from __future__ import annotations

import time


def wall_offset_ns() -> int:
    """Return the ns since 1970 when the clock of the cores showed 0. The value changes when the time of day is set."""
    return time.time_ns() - time.monotonic_ns()
