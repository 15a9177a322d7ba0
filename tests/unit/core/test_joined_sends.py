"""Trains and shorter packets behind them that leave together."""

from __future__ import annotations

import numpy as np

from pgm.core.effects import closed_up, data
from tests.unit.core.makers import SEGMENT


def test_parts_of_rows_in_memory_are_joined_by_octets_alone() -> None:
    flat = np.arange(100, dtype=np.uint8)
    [joined] = closed_up([data(SEGMENT, flat[:80].reshape(2, 40)), data(SEGMENT, flat[80:].reshape(1, 20))])
    assert (bytes(joined.octets), joined.stride) == (bytes(flat), 40)
    rows = np.arange(120, dtype=np.uint8).reshape(3, 40).copy()  # as parts that an element has made anew
    sends = closed_up([data(SEGMENT, rows[:2]), data(SEGMENT, rows[2:])])
    assert b"".join(bytes(send.octets) for send in sends) == rows.tobytes()
    assert all(np.ndim(send.octets) == 1 for send in sends)
