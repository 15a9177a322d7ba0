"""Blocks that are used again: never under somebody's eyes, and never more than a few."""

from __future__ import annotations

import random
import weakref
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgm.core.structures.arena import READING_OCTETS, BlockPool
from tests.unit.core.structures.test_arena import WAYS_TO_KEEP, octets_of

STEP = 64 << 10


def owner(octets: Any) -> int:
    """Which block octets lie in."""
    return id(octets.base)


@given(seed=st.integers(0, 1 << 30), share=st.sampled_from([0.0, 0.1, 0.5, 0.95]))
def test_block_pool_kept_block_is_never_overwritten(seed, share):
    rng = random.Random(seed)
    blocks = BlockPool()
    kept: list[tuple[Any, bytes]] = []
    for _ in range(60):
        octets = rng.choice([1, STEP - 1, STEP, 2 * STEP + 7])
        taken = blocks.take(octets)
        assert taken.shape == (octets,)
        taken[:] = rng.randrange(256)
        if rng.random() < share:
            view = rng.choice(list(WAYS_TO_KEEP.values()))(taken, 0, octets)
            kept.append((view, octets_of(view)))
            del view
        del taken
        while len(kept) > 10 or (kept and rng.random() < 0.1):
            kept.pop(rng.randrange(len(kept)))
        assert all(octets_of(view) == then for view, then in kept)


@pytest.mark.parametrize("way", WAYS_TO_KEEP)
def test_every_kind_of_view_keeps_a_block(way):
    blocks = BlockPool()
    taken = blocks.take(STEP)
    taken[:] = 1
    kept = WAYS_TO_KEEP[way](taken, 0, STEP)
    del taken
    before = octets_of(kept)
    for value in range(2, 20):
        blocks.take(STEP)[:] = value
    assert octets_of(kept) == before


def test_block_pool_free_block_is_reused_for_similar_size():
    blocks = BlockPool()
    first = owner(blocks.take(3 * STEP))
    assert owner(blocks.take(2 * STEP + 1)) == first
    assert owner(blocks.take(2 * STEP)) == first
    assert owner(blocks.take(STEP)) != first  # it would keep three times its octets
    assert owner(blocks.take(4 * STEP)) != first


def test_only_a_few_are_remembered_and_none_that_are_small_or_huge():
    blocks = BlockPool()
    kept = [blocks.take(STEP) for _ in range(50)]
    assert len({owner(one) for one in kept}) == 50
    remembered = [weakref.ref(one.base) for one in kept]
    kept.clear()
    assert sum(block() is not None for block in remembered) == 4
    for octets in (0, STEP - 1, READING_OCTETS + 1):
        assert blocks.take(octets).base is None
    largest = weakref.ref(blocks.take(READING_OCTETS).base)
    assert largest() is not None
