"""Comparison of two copies of the same packets.

Copies are alike if payload and OPT_FRAGMENT are. Type, trail, checksum and other options differ between a packet and its
repair, and between senders, so they do not count. Parity packets have no copies here: they never enter a window or cache.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from pgm.core.structures.ranges import Span, merged
from pgm.wire.train import Run, fragment_of


def differing(kept: Iterable[Run], run: Run) -> list[Span]:
    """Return the sqns of which `run` has another copy than the parts of it that are kept, in order."""
    spans: list[Span] = []
    for mine in kept:
        spans += _differing(mine, run.part(mine.first, mine.end))
    return merged(spans) if spans else spans


def _differing(mine: Run, other: Run) -> list[Span]:
    """Compare two runs of the same sqns. The fragments of a run are successive, so their first ones tell of all."""
    ours, theirs = mine.payloads, other.payloads
    if ours.shape != theirs.shape or fragment_of(mine) != fragment_of(other):
        return [(mine.first, mine.end)]
    if np.array_equal(ours, theirs):
        return []
    rows = np.flatnonzero((ours != theirs).any(axis=1)).tolist()
    return [(mine.first + row, mine.first + row + 1) for row in rows]
