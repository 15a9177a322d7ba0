"""Digests of blocks: equal for all cuts into reads, and different after every change of what is covered."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pgm.trust.blocks import BLOCK_BITS, SignedSession, parts_of_blocks
from pgm.wire.formats import DATA_HEADER_OCTETS, FRAGMENT_OCTETS, TYPE_AT
from pgm.wire.packet_run import Run
from tests.unit.trust.independent import block_digest
from tests.unit.trust.packets import packets_of, runs_of

SESSION = SignedSession(bytes(range(8)), 1_700_000_000_000_000_000)

lengths = st.integers(0, 40)
# Pieces of a block: number of packets, payload length, and the offset of a fragment in its message, or None.
pieces = st.lists(
    st.tuples(st.integers(1, 12), lengths, st.one_of(st.none(), st.integers(0, 2**32 - 1))), min_size=1, max_size=6
)
firsts = st.one_of(st.integers(0, 2**40), st.sampled_from([2**32 - 3, 2**32 - 1, 2**32]))


@given(firsts, pieces, st.randoms(use_true_random=False))
def test_digest_is_that_of_the_independent_program(first, pieces, rng) -> None:
    runs = runs_of(first, pieces, rng)
    packets = packets_of(runs)
    assert SESSION.digest(runs) == block_digest(SESSION.tsi, SESSION.epoch, first, packets)


@given(firsts, pieces, st.data(), st.randoms(use_true_random=False))
def test_cuts_into_reads_do_not_change_the_digest(first, pieces, data, rng) -> None:
    runs = runs_of(first, pieces, rng)
    cut = []
    for run in runs:
        places = (
            sorted(data.draw(st.sets(st.integers(run.first + 1, run.end - 1), max_size=3))) if run.count > 1 else []
        )
        cut += [run.part(low, end) for low, end in itertools.pairwise([run.first, *places, run.end])]
    assert SESSION.digest(cut) == SESSION.digest(runs)


@given(firsts, pieces, st.data(), st.randoms(use_true_random=False))
def test_fields_that_elements_rewrite_are_not_covered(first, pieces, data, rng) -> None:
    runs = runs_of(first, pieces, rng)
    before = SESSION.digest(runs)
    for run in runs:
        run.rows[:, :16] = data.draw(st.integers(0, 255))
        run.rows[:, 20:24] = 7  # the trail
        run.rows[:, TYPE_AT] = 5
    assert SESSION.digest(runs) == before


@given(firsts, pieces, st.data(), st.randoms(use_true_random=False))
def test_change_of_a_payload_changes_the_digest(first, pieces, data, rng) -> None:
    runs = runs_of(first, pieces, rng)
    covered = [run for run in runs if run.payloads.size]
    if not covered:
        return
    before, packets = SESSION.digest(runs), SESSION.digests_of_packets(runs)
    run = data.draw(st.sampled_from(covered))
    row = data.draw(st.integers(0, run.count - 1))
    at = data.draw(st.integers(0, run.payloads.shape[1] - 1))
    run.payloads[row, at] ^= data.draw(st.integers(1, 255))
    assert SESSION.digest(runs) != before
    wrong = [
        index
        for index, (old, new) in enumerate(zip(packets, SESSION.digests_of_packets(runs), strict=True))
        if old != new
    ]
    assert wrong == [run.first - first + row]


@given(firsts, pieces, st.randoms(use_true_random=False))
def test_session_and_place_are_covered(first, pieces, rng) -> None:
    runs = runs_of(first, pieces, rng)
    moved = [Run(run.first + 1, run.count, run.buffer, run.offset, run.stride, run.payload_at) for run in runs]
    digests = {
        SESSION.digest(runs),
        SESSION.digest(moved),
        SignedSession(bytes(8), SESSION.epoch).digest(runs),
        SignedSession(SESSION.tsi, SESSION.epoch + 1).digest(runs),
    }
    assert len(digests) == 4


def test_border_between_packets_is_covered() -> None:
    octets = np.arange(6 * DATA_HEADER_OCTETS, dtype=np.uint8)
    whole = Run(0, 1, octets, 0, DATA_HEADER_OCTETS + 8, DATA_HEADER_OCTETS)
    half = Run(0, 2, np.concatenate([octets[:28], octets[:24], octets[28:32]]), 0, 28, 24)
    assert half.payloads.tobytes() == whole.payloads.tobytes()
    assert SESSION.digest([half]) != SESSION.digest([whole])


def test_fragment_is_not_a_plain_packet() -> None:
    plain, fragment = (runs_of(0, [(1, 9, offset)], random.Random(1)) for offset in (None, 0))
    fragment[0].payloads[:] = plain[0].payloads
    fragment[0].rows[:, DATA_HEADER_OCTETS + 8 : DATA_HEADER_OCTETS + FRAGMENT_OCTETS] = 0
    assert SESSION.digest(plain) != SESSION.digest(fragment)


def test_gap_between_runs_is_refused() -> None:
    one, two = runs_of(5, [(2, 3, None), (1, 4, None)], random.Random(1))
    with pytest.raises(ValueError, match="sqn 7 follows sqn 7"):
        SESSION.digest([one, two, two])


@given(firsts, st.integers(1, 200), st.integers(0, 7))
@settings(max_examples=50)
def test_parts_of_blocks_are_the_run(first, count, bits) -> None:
    run = Run(first, count, np.zeros(count * 24, np.uint8), 0, 24, 24)
    parts = list(parts_of_blocks(run, bits))
    assert [sqn for _, part in parts for sqn in range(part.first, part.end)] == list(range(first, first + count))
    assert all(part.first >> bits == block == part.end - 1 >> bits for block, part in parts)
    assert parts_of_blocks(run).__next__()[0] == first >> BLOCK_BITS
