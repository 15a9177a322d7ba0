"""Effects that send packets of two sizes together: a train, and a shorter packet behind it."""

from __future__ import annotations

import numpy as np
import pytest

from pgm.core.effects import Notice, Send, closed_up, with_tail
from pgm.core.segment import Segment
from pgm.wire.train import packets_a_train
from tests.unit.core.makers import SEGMENT

OTHER = Segment(1, "other", "10.0.1.1", "239.192.0.2", upstream=False, downstream=True)
STRIDE = 1424
FULL = packets_a_train(STRIDE)


def train(count: int, stride: int = STRIDE) -> Send:
    return Send(SEGMENT, np.arange(count * stride, dtype=np.uint32).astype(np.uint8), stride, is_data=True)


def packet(octets: int) -> Send:
    return Send(SEGMENT, bytes(octets), octets, is_data=True)


@pytest.mark.parametrize(
    ("count", "tail", "lengths"),
    [
        (1, 100, [1524]),
        (1, STRIDE, [2 * STRIDE]),
        (10, 450, [10 * STRIDE + 450]),
        (FULL, 450, [FULL * STRIDE + 450]),
        (FULL + 3, 450, [FULL * STRIDE, 3 * STRIDE + 450]),
        (FULL, STRIDE - 1, [FULL * STRIDE, STRIDE - 1]),  # longer than a datagram of the kernel
        (2, STRIDE + 1, [2 * STRIDE, STRIDE + 1]),
    ],
)
def test_last_system_call_of_a_train_takes_its_tail(count: int, tail: int, lengths: list[int]) -> None:
    sent = with_tail(train(count), packet(tail))
    assert [len(one.octets) for one in sent] == lengths
    octets = b"".join(bytes(one.octets) for one in sent)
    assert octets == bytes(train(count).octets) + bytes(tail)
    assert sent[0].stride == STRIDE


def test_short_packet_goes_behind_a_longer_one() -> None:
    [sent] = with_tail(train(1, 124), packet(202))
    assert (sent.stride, bytes(sent.octets)) == (202, bytes(202) + bytes(train(1, 124).octets))


def test_packets_for_others_leave_alone() -> None:
    alone = Send(SEGMENT, bytes(100), 100, "10.0.0.9", is_data=True)
    assert [one.to for one in with_tail(train(3), alone)] == [None, alone.to]


def both(count: int, tail: int, segment: Segment = SEGMENT) -> list[Send]:
    """Return the effects for a train and a packet behind it in memory, as a relay makes them."""
    memory = np.zeros(7 + count * STRIDE + tail, np.uint8)
    end = 7 + count * STRIDE
    return [
        Send(segment, memory[7:end], STRIDE, is_data=True),
        Send(segment, memory[end:], tail, is_data=True),
    ]


def test_packets_that_came_together_leave_together() -> None:
    above, below = both(5, 300), both(5, 300, OTHER)
    sent = closed_up([above[0], below[0], above[1], below[1]])
    assert [(one.segment, len(one.octets), one.stride) for one in sent] == [
        (SEGMENT, 5 * STRIDE + 300, STRIDE),
        (OTHER, 5 * STRIDE + 300, STRIDE),
    ]


def test_other_effects_and_gaps_keep_packets_apart() -> None:
    first, last = both(5, 300)
    notice = Notice("code", "text")
    assert [type(one) for one in closed_up([first, notice, last])] == [Send, Notice, Send]
    gap = Send(SEGMENT, last.octets[1:], 299, is_data=True)
    assert len(closed_up([first, gap])) == 2
    assert len(closed_up([first, both(5, 300)[1]])) == 2
    assert len(closed_up([last, first])) == 2
