"""Dropping from a queue: what goes is told as lost, in its place, and all octets are accounted for."""

from __future__ import annotations

from collections import deque
from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pgm.core.effects import Lost, Opened
from pgm.core.window.reassembly import LargeMessage, WholeMessages
from pgm.net.endpoint.policies import drop_newest, drop_oldest
from pgm.net.endpoint.queue_item import QueueItem
from pgm.wire.train import Run
from tests.reference import TSI

STRIDE = 100


def run(first: int, count: int) -> Run:
    return Run(first, count, np.zeros(count * STRIDE, np.uint8), 0, STRIDE, 24)


def queue_of(shapes: list[tuple[str, int]]) -> deque[QueueItem]:
    found: deque[QueueItem] = deque()
    sqn = 10
    for what, count in shapes:
        if what == "run":
            found.append(QueueItem(WholeMessages(TSI, run(sqn, count)), count * STRIDE))
        elif what == "large":
            found.append(QueueItem(LargeMessage(TSI, sqn, count, b"x"), count * STRIDE))
        elif what == "unaccounted":
            found.append(QueueItem(LargeMessage(TSI, sqn, count, b"x"), 0))
        else:
            found.append(QueueItem(Opened(TSI, sqn, "10.0.0.1", 1), 0))
            continue
        sqn += count
    return found


def spans(queue: deque[QueueItem]) -> list[tuple[int, int]]:
    found = []
    for one in queue:
        what = one.found
        if isinstance(what, WholeMessages):
            found.append((what.run.first, what.run.end))
        elif isinstance(what, (LargeMessage, Lost)):
            found.append((what.first, what.first + what.count))
    return found


shapes = st.lists(
    st.tuples(st.sampled_from(["run", "large", "unaccounted", "opened"]), st.integers(1, 30)), min_size=1, max_size=8
)


@given(shapes, st.integers(1, 10_000), st.booleans())
def test_nothing_goes_without_a_word(made, excess, oldest):
    queue = queue_of(made)
    before = spans(queue)
    total = sum(one.frees_octets for one in queue)
    marks = sum(isinstance(one.found, Opened) for one in queue)
    freed = (drop_oldest if oldest else drop_newest)(queue, excess)
    assert freed >= min(excess, total) - STRIDE
    assert freed + sum(one.frees_octets for one in queue) == total
    after = spans(queue)
    assert all(end == first for (_, end), (first, _) in pairwise(after))
    if before:
        assert (after[0][0], after[-1][1]) == (before[0][0], before[-1][1])
    assert sum(isinstance(one.found, Opened) for one in queue) == marks


def test_only_as_much_goes_as_must():
    queue = queue_of([("run", 100)])
    assert drop_oldest(queue, 1000) == 1000
    assert [type(one.found) for one in queue] == [Lost, WholeMessages]
    assert spans(queue) == [(10, 20), (20, 110)]
    assert drop_newest(queue, 1000) == 1000
    assert spans(queue) == [(10, 20), (20, 100), (100, 110)]
