"""The arena: recycled when nothing refers to a chunk, and never under somebody's eyes."""

from __future__ import annotations

import gc
import os
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgm.core.structures import arena as arena_module
from pgm.core.structures.arena import ROOM, Arena
from pgm.core.structures.run_store import RunStore
from pgm.units import MIB
from pgm.wire.train import Run, Train
from tests.reference import data_packet

CHUNK = 1000


def fill(arena: Arena, octets: int, value: int, *, keep: bool) -> tuple[Any, int]:
    """One read: octets of one value at the cursor."""
    chunk, at = arena.room(octets)
    assert at + octets <= chunk.nbytes
    chunk[at : at + octets] = value
    if keep:
        arena.keep(octets)
    return chunk, at


WAYS_TO_KEEP = {
    "slice": lambda chunk, at, octets: chunk[at : at + octets],
    "slice of a slice": lambda chunk, at, octets: chunk[at:][:octets],
    "rows": lambda chunk, at, octets: chunk[at : at + octets].reshape(1, octets)[:, : octets // 2],
    "other dtype": lambda chunk, at, octets: chunk[at : at + octets].view(np.int8),
    "memoryview": lambda chunk, at, octets: memoryview(chunk)[at : at + octets],
    "data of a slice": lambda chunk, at, octets: chunk[at : at + octets].data,
    "array of a memoryview": lambda chunk, at, octets: np.frombuffer(chunk.data[at : at + octets], np.uint8),
    "run": lambda chunk, at, octets: Run(0, 1, chunk, at, octets, 0),
    "train": lambda chunk, at, octets: Train(chunk, at, octets, octets),
    "chunk": lambda chunk, at, octets: (chunk, at, octets),
}


def octets_of(kept: Any) -> bytes:
    if isinstance(kept, Run):
        return kept.rows.tobytes()
    if isinstance(kept, Train):
        return b"".join(kept.packets())
    if isinstance(kept, tuple):
        chunk, at, octets = kept
        return chunk[at : at + octets].tobytes()
    return kept.tobytes()


@given(seed=st.integers(0, 1 << 30), share=st.sampled_from([0.0, 0.1, 0.5, 0.95]))
def test_kept_octets_are_never_overwritten(seed, share):
    """An application may hold any view of what it got, for as long as it likes."""
    rng = random.Random(seed)
    arena = Arena(CHUNK)
    kept: list[tuple[Any, bytes]] = []
    most = 0
    for _ in range(300):
        octets = rng.choice([3, 50, 200, 400, CHUNK])
        chunk, at = fill(arena, octets, rng.randrange(256), keep=True)
        if rng.random() < share:
            way = rng.choice(list(WAYS_TO_KEEP.values()))
            view = way(chunk, at, octets)
            kept.append((view, octets_of(view)))
            del view
        del chunk
        while len(kept) > 20 or (kept and rng.random() < 0.1):
            kept.pop(rng.randrange(len(kept)))
        most = max(most, len(kept))
        assert all(octets_of(view) == then for view, then in kept)
    assert arena.chunks <= most + 2


@pytest.mark.parametrize("way", WAYS_TO_KEEP)
def test_every_kind_of_view_keeps_a_chunk(way):
    arena = Arena(CHUNK)
    chunk, at = fill(arena, 600, 1, keep=True)
    kept = WAYS_TO_KEEP[way](chunk, at, 600)
    del chunk
    before = octets_of(kept)
    for value in range(2, 20):
        fill(arena, 600, value, keep=True)
    assert octets_of(kept) == before
    assert arena.chunks == 2  # the kept one, and one that is filled again and again


def test_chunks_nobody_looks_at_are_recycled():
    arena = Arena(CHUNK)
    for value in range(200):
        fill(arena, 600, value % 256, keep=True)
    assert arena.chunks == 1
    assert arena.octets == CHUNK


def test_chunk_is_free_again_when_its_last_view_goes():
    arena = Arena(CHUNK)
    views = []
    for value in range(5):
        chunk, at = fill(arena, 600, value, keep=True)
        views.append(chunk[at : at + 600])
    del chunk
    assert arena.chunks == 5
    views.clear()
    for value in range(50):
        fill(arena, 600, value, keep=True)
    assert arena.chunks == 5


def test_of_free_chunks_the_one_used_last_comes_next():
    """A cache still has it; what was touched in reserve comes last of all."""
    arena = Arena(CHUNK)
    kept = [fill(arena, 600, value, keep=True)[0] for value in range(4)]
    while arena.warm_up(5 * CHUNK):
        pass
    assert arena.chunks == 5
    last = id(kept[2])
    kept.clear()
    arena.room(CHUNK)  # leaves the fourth, which comes behind the third
    fourth = id(fill(arena, 600, 4, keep=True)[0])
    assert {id(fill(arena, 600, value, keep=True)[0]) for value in range(20)} == {fourth}
    held = fill(arena, 600, 5, keep=True)[0]
    assert id(held) == fourth
    assert {id(fill(arena, 600, value, keep=True)[0]) for value in range(20)} == {last}


def test_reads_that_nobody_kept_are_written_over():
    arena = Arena(CHUNK)
    places = {fill(arena, 600, value, keep=False)[1] for value in range(9)}
    assert places == {0}


def test_kept_reads_lie_side_by_side():
    """So that consecutive trains become one run."""
    arena = Arena(CHUNK)
    places = [fill(arena, 100, value, keep=True)[1] for value in range(4)]
    assert places == [0, 100, 200, 300]


def test_a_read_that_was_kept_after_the_arena_had_moved_on():
    """A driver may keep a read late; then the cursor belongs to another chunk."""
    arena = Arena(CHUNK)
    chunk, _ = fill(arena, 600, 1, keep=False)
    arena.keep_until(chunk, 600)
    other, at = fill(arena, 600, 2, keep=False)
    assert other is not chunk
    arena.keep_until(chunk, 600)
    assert arena.room(600)[1] == at == 0
    for _ in range(2):  # by two endpoints
        arena.keep_until(other, 600)
    assert arena.room(100)[1] == 600


def test_reading_trains_leaves_nothing_for_the_garbage_collector():
    """What was read of a train must not refer back to it: until a collection their chunk would not be free."""
    arena = Arena(CHUNK)
    octets = np.frombuffer(b"".join(data_packet(sqn, bytes(16)) for sqn in range(10)), np.uint8)
    gc.disable()
    try:
        for _ in range(50):
            chunk, at = arena.room(400)
            chunk[at : at + 400] = octets
            train = Train(chunk, at, 400, 40)
            [item] = train.parse_untrusted()[0]
            assert item.run(0).end == 10
            assert train.kept
            arena.keep_until(train.buffer, train.offset + train.length)
            del chunk
    finally:
        gc.enable()
    assert arena.chunks <= 2


def test_rooms_larger_than_a_chunk():
    arena = Arena(CHUNK)
    chunk, at = arena.room(5 * CHUNK)
    assert (chunk.nbytes, at) == (5 * CHUNK, 0)
    assert arena.room(10)[0] is chunk


def test_a_read_always_gets_room_for_the_longest_train():
    assert ROOM >= 65_507
    chunk, at = Arena().room()
    assert chunk.nbytes - at >= ROOM


def test_runs_in_a_store_keep_their_chunks():
    """Windows and caches hold runs; what they drop is free again."""
    arena = Arena(CHUNK)
    store = RunStore()
    for first in range(0, 40, 2):
        chunk, at = fill(arena, 400, first, keep=True)
        store.add(Run(first, 2, chunk, at, 200, 24))
    del chunk
    for run in store:
        assert {run.rows[0, 0], run.rows[-1, 0]} <= set(range(0, 40, 2))
    for first in range(0, 40, 2):
        found = store.find(first)
        assert found is not None
        assert found.part(first, first + 2).rows.tobytes() == bytes([first]) * 400
    del found, run
    assert arena.octets == store.pinned_octets
    store.drop_before(100)
    chunks = arena.chunks
    for value in range(100):
        fill(arena, 400, value, keep=True)
    assert arena.chunks == chunks


def test_memory_is_made_ready_a_piece_at_a_time_up_to_what_was_said():
    chunk = 1 << 20
    arena = Arena(chunk)
    steps = 0
    while arena.warm_up(3 * chunk + 1):
        steps += 1
    assert arena.chunks == 3
    assert steps == 2 * 4  # a quarter of a chunk at a time
    kept = [fill(arena, chunk, number, keep=True) for number in range(3)]
    assert arena.chunks == 3
    assert [int(one[0]) for one, _ in kept] == [0, 1, 2]
    assert not arena.warm_up(3 * chunk)
    assert arena.octets == 3 * chunk


def test_arena_warm_chunks_are_used_before_new_ones():
    arena = Arena(CHUNK, warm_octets=3 * CHUNK + 1)
    kept = [fill(arena, CHUNK, number, keep=True) for number in range(4)]
    assert arena.chunks == 4
    assert [int(chunk[0]) for chunk, _ in kept] == [0, 1, 2, 3]
    fill(arena, CHUNK, 4, keep=True)
    assert arena.chunks == 5


@pytest.mark.parametrize("advice", [None, 1 << 20])
def test_memory_is_there_before_it_is_read_into(monkeypatch, advice):
    """Also where the kernel does not know how to have all of it at once."""
    if advice is not None:
        monkeypatch.setattr(arena_module, "_POPULATE_WRITE", advice)
    before = resident_octets()
    arena = Arena(MIB, warm_octets=16 * MIB)
    while arena.warm_up(32 * MIB):
        pass
    assert arena.octets == 32 * MIB
    assert resident_octets() - before >= 28 * MIB


def resident_octets() -> int:
    """What of this process is in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
