"""Shared memory between a node and its writing process: each item comes out once, whole and in order, or is refused."""

from __future__ import annotations

import mmap
import os
from collections import deque

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pgm.archive.recording.shared_ring import HELD, RingItem, RingItemKind, RingTally, SharedRing, cause_at, place_of
from pgm.core.effects import LossCause
from pgm.units import KIB

_FEED = b'{"session":{"tsi":"1.2.3.4.5.6.7500"}}'
_SIZES = st.integers(1, 4 * KIB)


@given(st.lists(st.tuples(_SIZES, st.booleans()) | st.none(), max_size=200))
def test_shared_ring_items_come_out_whole_and_in_order(steps: list[tuple[int, bool] | None]) -> None:
    """A number is a run of that many octets or a loss; None takes one item."""
    ring = SharedRing.new(16 * KIB)
    reader = SharedRing(os.dup(ring.fd))
    expected: deque[tuple[RingItemKind, int, bytes]] = deque()
    for at, step in enumerate(steps):
        if step is None:
            found = reader.get()
            assert (found is None) == (not expected)
            if found is not None:
                assert (found.kind, found.first, found.octets.tobytes()) == expected.popleft()
                assert (found.feed, found.begin, found.at_us) == (_FEED, HELD, 7)
            continue
        size, is_run = step
        octets = np.full(size if is_run else 0, at % 251, np.uint8)
        kind, count = (RingItemKind.RUN, 1) if is_run else (RingItemKind.LOSS, size)
        if ring.put(RingItem(kind, _FEED, HELD, at, count, 7, octets.size, 0, octets)):
            expected.append((kind, at, octets.tobytes()))
        else:
            assert expected, "an empty ring takes every item up to its largest"
        assert ring.waiting_octets == reader.waiting_octets <= ring.room
    while (found := reader.get()) is not None:
        assert (found.kind, found.first, found.octets.tobytes()) == expected.popleft()
    assert not expected
    ring.close()
    reader.close()


def test_a_ring_that_is_read_in_time_stays_at_its_beginning() -> None:
    ring = SharedRing.new(64 * 1024 * KIB)
    octets = np.zeros(60 * KIB, np.uint8)
    for at in range(2000):  # twice the ring's size in all
        assert ring.put(RingItem(RingItemKind.RUN, _FEED, 0, at, 1, 0, octets.size, 0, octets))
        assert ring.get() is not None
    blocks = os.fstat(ring.fd).st_blocks * 512
    assert blocks < 8 * 1024 * KIB, "unused memory is not allocated"
    assert blocks % mmap.PAGESIZE == 0


def test_both_sides_see_the_same_tally_and_signs() -> None:
    ring = SharedRing.new(KIB)
    reader = SharedRing(os.dup(ring.fd))
    tally = RingTally(5, 2, 1000, 3, {"recorder": 7, "retries": 1})
    reader.tally = tally
    assert ring.tally == tally
    assert not ring.wants_waking()
    reader.sleeps(True)
    assert (ring.wants_waking(), ring.wants_waking()) == (True, False)
    ring.is_closing = ring.has_overrun = True
    assert (reader.is_closing, reader.has_overrun) == (True, True)
    assert [cause_at(place_of(cause)) for cause in LossCause] == list(LossCause)
