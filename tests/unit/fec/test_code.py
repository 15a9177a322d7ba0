"""The erasure code: any k of n rows give the originals, and the matrix equals OpenPGM's."""

from __future__ import annotations

import functools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgm.errors import UsageError
from pgm.fec import code

GROUPS = [2, 4, 8, 16, 32, 64, 128]


@pytest.mark.rfc("FEC-01")
@given(st.data())
def test_any_k_of_n_rebuild_the_group(data):
    size = data.draw(st.sampled_from(GROUPS[:5]))
    width = data.draw(st.sampled_from([0, 1, 2, 7, 100]))
    rows = np.random.default_rng(data.draw(st.integers(0, 99))).integers(0, 256, (size, width), np.uint8)
    most = code.parity_limit(size)
    indexes = data.draw(st.lists(st.integers(0, most - 1), min_size=1, max_size=size, unique=True))
    kept = data.draw(st.permutations(range(size)))[: size - len(indexes)]
    parity = code.encode(rows, indexes)
    assert parity.shape == (len(indexes), width)
    numbers = [*kept, *(size + index for index in indexes)]
    found = code.decode(np.vstack([rows[kept], parity]) if width else np.zeros((size, 0), np.uint8), numbers)
    assert np.array_equal(found, rows)


# The following code is an independent version from the description of Rizzo's construction.


@functools.cache
def _tables() -> tuple[list[int], dict[int, int]]:
    powers, value = [], 1
    for _ in range(255):
        powers.append(value)
        value <<= 1
        value ^= 0x11D if value & 0x100 else 0
    return powers, {power: at for at, power in enumerate(powers)}


def _times(a: int, b: int) -> int:
    powers, logs = _tables()
    return powers[(logs[a] + logs[b]) % 255] if a and b else 0


def _inverse(matrix: list[list[int]]) -> list[list[int]]:
    powers, logs = _tables()
    size = len(matrix)
    work = [[*row, *(int(at == column) for column in range(size))] for at, row in enumerate(matrix)]
    for at in range(size):
        pivot = next(row for row in range(at, size) if work[row][at])
        work[at], work[pivot] = work[pivot], work[at]
        scale = powers[-logs[work[at][at]] % 255]
        work[at] = [_times(scale, one) for one in work[at]]
        for row in range(size):
            if row != at and work[row][at]:
                factor = work[row][at]
                work[row] = [one ^ _times(factor, other) for one, other in zip(work[row], work[at], strict=True)]
    return [row[size:] for row in work]


def _rizzo(size: int, index: int) -> list[int]:
    """Return row `size + index` of a Vandermonde matrix over 0x11D, made systematic."""
    powers, _ = _tables()

    def row_of(number: int) -> list[int]:
        return [int(column == 0) if number == 0 else powers[(number - 1) * column % 255] for column in range(size)]

    top = _inverse([row_of(number) for number in range(size)])
    row = row_of(size + index)
    return [
        functools.reduce(lambda a, b: a ^ b, (_times(row[at], top[at][column]) for at in range(size)))
        for column in range(size)
    ]


@pytest.mark.rfc("FEC-01")
@pytest.mark.parametrize("size", GROUPS[:5])
def test_the_matrix_is_rizzos(size):
    identity = np.eye(size, dtype=np.uint8)
    for index in (0, 1, size, code.parity_limit(size) - 1):
        assert code.encode(identity, [index])[0].tolist() == _rizzo(size, index)


def test_fec_code_without_zfec_names_the_remedy(monkeypatch):
    monkeypatch.setattr(code, "zfec", None)
    assert not code.is_available()
    with pytest.raises(UsageError, match="zfec") as failure:
        code.encode(np.zeros((101, 1), np.uint8), [0])  # a size without cached coders
    assert "pgm-repair-network[fec]" in failure.value.remedy
