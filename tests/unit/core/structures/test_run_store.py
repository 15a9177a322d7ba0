"""The run store against a set of sqns, pinned memory included."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from pgm.core.structures.run_store import _FEW_RUNS, RunStore
from pgm.wire.train import Run
from tests.unit.core.makers import chunk_of_runs, run_of, sqns_of

SPACE = 48
sqns = st.integers(0, SPACE)


class StoreAsASet(RuleBasedStateMachine):
    """Runs come in from a few chunks, whole or in parts, and leave from the front."""

    def __init__(self) -> None:
        super().__init__()
        self.store = RunStore()
        self.chunks: dict[int, Run] = {}
        self.held: dict[int, int] = {}  # sqn -> chunk

    def chunk(self, number: int) -> Run:
        if number not in self.chunks:
            self.chunks[number] = run_of(0, SPACE + 8, size=12 if number < 3 else 13)
        return self.chunks[number]

    @rule(first=sqns, count=st.integers(1, 8), number=st.integers(0, 4))
    def add(self, first: int, count: int, number: int) -> None:
        if any(sqn in self.held for sqn in range(first, first + count)):
            return
        self.store.add(self.chunk(number).part(first, first + count))
        self.held.update(dict.fromkeys(range(first, first + count), number))

    @rule(most=st.integers(1, 10))
    @precondition(lambda self: self.held)
    def cut_oldest(self, most: int) -> None:
        run = self.store.cut_oldest(most)
        taken = sqns_of(run)
        assert taken == sorted(self.held)[: len(taken)]
        assert 1 <= len(taken) <= most
        for sqn in taken:
            del self.held[sqn]

    @rule(counts=st.lists(st.integers(1, 3), min_size=1, max_size=4), holes=st.integers(1, 3), number=st.integers(0, 4))
    def extend(self, counts: list[int], holes: int, number: int) -> None:
        runs, at = [], max(self.held, default=-1) + 1
        for count in counts:
            if at + count > SPACE:
                break
            runs.append(self.chunk(number).part(at, at + count))
            at += count + holes
        self.store.extend(runs)
        self.held.update((sqn, number) for run in runs for sqn in range(run.first, run.end))

    @rule(wanted=st.sets(sqns, max_size=6), number=st.integers(0, 4))
    def insert(self, wanted: set[int], number: int) -> None:
        new = sorted(wanted - self.held.keys())
        self.store.insert([self.chunk(number).part(sqn, sqn + 1) for sqn in new])
        self.held.update(dict.fromkeys(new, number))

    @rule(sqn=sqns, most=st.integers(0, 400))
    def take_whole(self, sqn: int, most: int) -> None:
        runs = self.store.take_whole(sqn, most)
        taken = [one for run in runs for one in sqns_of(run)]
        assert taken == list(range(sqn, sqn + len(taken)))
        assert not taken or sqn == min(self.held)
        left = most - sum(run.octets for run in runs)
        assert left >= 0
        for gone in taken:
            del self.held[gone]
        behind = self.store.oldest
        assert behind is None or behind.first != sqn + len(taken) or behind.octets > left

    @rule(sqn=sqns, most=st.integers(1, 10))
    def take(self, sqn: int, most: int) -> None:
        run = self.store.take(sqn, most)
        assert (run is None) == (min(self.held, default=None) != sqn)
        if run is not None:
            assert run.first == sqn
            for gone in sqns_of(run):
                del self.held[gone]

    @rule(sqn=sqns)
    def drop_before(self, sqn: int) -> None:
        self.store.drop_before(sqn)
        self.held = {held: chunk for held, chunk in self.held.items() if held >= sqn}

    @rule(one=sqns, other=sqns)
    def look(self, one: int, other: int) -> None:
        first, end = min(one, other), max(one, other)
        found = [sqn for part in self.store.parts(first, end) for sqn in sqns_of(part)]
        assert found == sorted(sqn for sqn in self.held if first <= sqn < end)
        run = self.store.find(one)
        assert (run is not None) == (one in self.held)
        assert run is None or run.first <= one < run.end

    @rule(edges=st.lists(sqns, min_size=2, max_size=8, unique=True))
    def copy(self, edges: list[int]) -> None:
        """What is all there and of one size can be copied, wherever it lies; unless that is in too many places."""
        spans = list(zip(sorted(edges)[::2], sorted(edges)[1::2], strict=False))
        first, end = spans[0][0], spans[-1][1]
        sizes = {self.chunks[self.held[sqn]].stride if sqn in self.held else 0 for sqn in range(first, end)}
        stride = self.store.stride_of(first, end)
        assert stride in (0, *sizes)
        assert not stride or len(sizes) == 1
        if not stride:
            assert len(sizes) > 1 or sizes == {0} or len(list(self.store.parts(first, end))) > _FEW_RUNS
            return
        rows = self.store.copy_of(spans, stride)
        wanted = [part.rows for one, behind in spans for part in self.store.parts(one, behind)]
        assert rows.tobytes() == b"".join(part.tobytes() for part in wanted)
        assert rows.shape == (sum(behind - one for one, behind in spans), stride)
        rows[:] = 0  # what is kept stays what it is

    @invariant()
    def holds_the_same(self) -> None:
        assert [sqn for run in self.store for sqn in sqns_of(run)] == sorted(self.held)
        assert self.store.packets == len(self.held)
        assert self.store.octets == sum(self.chunks[number].stride for number in self.held.values())
        oldest = self.store.oldest
        assert (oldest.first if oldest else None) == min(self.held, default=None)

    @invariant()
    def pins_whole_chunks(self) -> None:
        pinned = {id(run.buffer): run.buffer.nbytes for run in self.store}
        assert self.store.pinned_octets == sum(pinned.values())
        assert set(pinned) == {id(self.chunks[number].buffer) for number in self.held.values()}


TestStoreAsASet: Any = StoreAsASet.TestCase


def test_neighbours_in_sqns_and_memory_become_one_run():
    store = RunStore()
    for run in chunk_of_runs(10, [3, 4, 5]):
        store.add(run)
    assert [(run.first, run.count) for run in store] == [(10, 12)]


def test_joining_leaves_the_runs_of_others_alone():
    """Runs that were handed in or out are descriptions of their own."""
    first, second, third = chunk_of_runs(10, [3, 4, 5])
    store = RunStore()
    store.add(first)
    seen = next(store.parts(0, 100))
    store.add(second)
    store.add(third)
    assert [(run.first, run.count) for run in store] == [(10, 12)]
    assert (first.count, seen.count) == (3, 3)


def test_overlaps_are_our_own_mistake():
    store = RunStore()
    store.add(run_of(10, 5))
    for first, count in ((8, 3), (12, 1), (14, 4), (5, 20)):
        with pytest.raises(AssertionError):
            store.add(run_of(first, count))
    assert store.packets == 5
