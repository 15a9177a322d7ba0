"""Sequence numbers: 64 bits internally, 32 bits on the wire.

Inside the project, a sqn is an integer that never wraps. The wire carries its low half (W-17). A wire number is read as
the 64-bit number nearest to a known one, so a session may cross 2^32 any number of times.
"""

from __future__ import annotations

from collections.abc import Iterable

MASK = 0xFFFFFFFF
HALF = 0x80000000
SPACE = 1 << 32


def wrap(sqn: int) -> int:
    """Return the 32-bit wire form."""
    return sqn & MASK


def unwrap(wire_sqn: int, near: int) -> int:
    """Return the 64-bit number nearest to `near` with this low half. The result may be negative just after a start."""
    return near + ((wire_sqn - near + HALF) & MASK) - HALF


def is_newer(wire_sqn: int, than: int) -> bool:
    """Compare two 32-bit numbers in half-space: 0 < (x - y) mod 2^32 < 2^31."""
    return 0 < (wire_sqn - than) & MASK < HALF


def spans_of(sqns: Iterable[int]) -> list[tuple[int, int]]:
    """Group ascending or mixed sqns into half-open spans, ordered and disjoint."""
    spans: list[tuple[int, int]] = []
    for sqn in sorted(set(sqns)):
        if spans and spans[-1][1] == sqn:
            spans[-1] = (spans[-1][0], sqn + 1)
        else:
            spans.append((sqn, sqn + 1))
    return spans
