"""Repairs of one read go to the holes that they are for, wherever these lie, and are runs of their own where there is none."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pgm.core.window.held_runs import HeldRuns
from pgm.wire.formats import PacketType
from pgm.wire.train import Data, DataWithGaps, Run, Train

STRIDE, PAYLOAD_AT, BASE = 32, 24, 1 << 40


def packet(sqn: int, stride: int) -> bytes:
    return sqn.to_bytes(8, "big") * (stride // 8)


def scattered(sqns: list[int], stride: int) -> DataWithGaps:
    """Repairs that ascend, one behind the other in memory behind something else."""
    octets = bytes(5) + b"".join(packet(sqn, stride) for sqn in sqns)
    train = Train.of(octets, stride)
    cuts = [at for at, sqn in enumerate(sqns) if not at or sqns[at - 1] != sqn - 1]
    ends = [*cuts[1:], len(sqns)]
    spans = [(sqns[at] - sqns[0], sqns[end - 1] + 1 - sqns[0]) for at, end in zip(cuts, ends, strict=True)]
    data = Data(
        PacketType.RDATA,
        b"session",
        7500,
        sqns[0] & 0xFFFFFFFF,
        spans[0][1],
        0,
        False,
        (),
        train.buffer,
        5,
        stride,
        PAYLOAD_AT,
        train.keeping,
    )
    return DataWithGaps(data, len(sqns), cuts, spans, True)


@given(
    runs=st.lists(st.tuples(st.integers(0, 3), st.integers(1, 12), st.booleans()), min_size=1, max_size=6),
    lost=st.sets(st.integers(0, 80), min_size=1),
    comes=st.lists(st.booleans(), min_size=81, max_size=81),
    stride=st.sampled_from([STRIDE, STRIDE, STRIDE, 40]),
)
def test_pieces_lie_where_their_packets_were_missing(
    runs: list[tuple[int, int, bool]], lost: set[int], comes: list[bool], stride: int
) -> None:
    """Between runs of which some have room for what is missing; all that was there is as it was."""
    held, sqn = HeldRuns(), BASE
    missing = []
    for ahead, count, has_room in runs:
        missing += range(sqn, sqn + ahead)
        sqn += ahead
        gone = [one for one in range(sqn, sqn + count) if one - BASE in lost]
        missing += gone
        there = [one for one in range(sqn, sqn + count) if one not in gone]
        octets = b"".join(bytes(STRIDE) if one in gone else packet(one, STRIDE) for one in range(sqn, sqn + count))
        if has_room:
            held.add(Run(sqn, count, np.frombuffer(bytearray(octets), np.uint8), 0, STRIDE, PAYLOAD_AT))
        else:
            for one in there:
                buffer = np.frombuffer(packet(one, STRIDE), np.uint8)
                held.add(Run(one, 1, buffer, 0, STRIDE, PAYLOAD_AT))
        sqn += count
    repaired = [one for one in missing if comes[one - BASE]]
    if not repaired:
        return
    some = scattered(repaired, stride)
    held.fill(some, repaired[0])
    found = {run.first + at: bytes(row) for run in held for at, row in enumerate(run.rows)}
    for one in repaired:
        assert found[one] == packet(one, stride)
    for one in range(BASE, sqn):
        if one not in missing:
            assert found[one] == packet(one, STRIDE)
    assert held.packets == sum(run.count for run in held)
    assert held.octets == sum(run.octets for run in held)
    own = some.data.buffer
    assert some.data.keeping.is_kept == any(run.buffer is own for run in held)
