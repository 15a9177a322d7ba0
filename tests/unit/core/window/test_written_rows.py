"""Messages that are written where their packets stay, without being built anywhere else before."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pgm.core.window.transmit_window import TransmitWindow
from pgm.units import SECOND
from tests.reference import DATA_PORT, TSI
from tests.unit.core.makers import parameters

MOST_OCTETS = 65_400
CHUNK_PACKETS = (4 << 20) // 100


class Written:
    """Rows of an array that are asked for where they are to lie."""

    def __init__(self, payloads):
        self._payloads = payloads
        self.count, self.octets = payloads.shape

    def write(self, rows, first):
        rows[...] = self._payloads[first : first + len(rows)]


@given(
    count=st.integers(0, 40),
    size=st.integers(1, 300),
    mark_ends=st.booleans(),
    hole=st.booleans(),
    before=st.sampled_from([0, 1, CHUNK_PACKETS - 20]),
)
def test_messages_written_in_place_are_sent_like_any_other(count, size, mark_ends, hole, before):
    """Also where the memory at hand ends between them, where they need fragments, and behind a group that was short."""
    payloads = np.random.default_rng(count).integers(0, 256, (count, size), np.uint8)
    sent = []
    for is_written in (True, False):
        made = TransmitWindow(TSI, DATA_PORT, parameters(max_tpdu=128, mark_ends=mark_ends, txw_bytes=8 << 20), 7)
        made.append_rows(np.zeros((before, 76), np.uint8))
        while made.has_unsent:
            made.next_train(MOST_OCTETS, SECOND)
        if hole and before:
            made.resume_at(made.end + 3)

        made.append_rows(Written(payloads) if is_written else payloads)
        rows = []
        while made.has_unsent:
            rows += [bytes(row) for row in made.next_train(MOST_OCTETS, SECOND)]
        sent.append((rows, made.end, made.next_sqn, made.held_octets))
    assert sent[0] == sent[1]
