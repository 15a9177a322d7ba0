"""Sequence numbers: 64 bits inside, 32 on the wire."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgm.wire.sequence_numbers import HALF, MASK, is_newer, unwrap, wrap
from tests.strategies import u32s

sqns = st.one_of(st.integers(0, 1 << 40), st.integers(1 << 62, (1 << 63) - (1 << 33)), u32s)


@pytest.mark.rfc("W-17")
@given(near=sqns, distance=st.integers(-HALF, HALF - 1))
def test_unwrap_finds_every_number_within_half_the_space(near, distance):
    assert unwrap(wrap(near + distance), near) == near + distance


@pytest.mark.rfc("W-17")
@given(wire_sqn=u32s, near=sqns)
def test_unwrap_keeps_the_low_half_and_stays_near(wire_sqn, near):
    found = unwrap(wire_sqn, near)
    assert wrap(found) == wire_sqn
    assert -HALF <= found - near < HALF


@pytest.mark.rfc("W-17")
@given(than=u32s, distance=st.integers(0, MASK))
def test_newer_means_ahead_by_less_than_half_the_space(than, distance):
    """Covers the comparison of section 0: 0 < (x - y) mod 2^32 < 2^31."""
    assert is_newer(wrap(than + distance), than) == (0 < distance < HALF)


@given(one=u32s, other=u32s)
def test_newer_is_never_mutual(one, other):
    assert not (is_newer(one, other) and is_newer(other, one))


@pytest.mark.rfc("W-17", "RCV-20")
@pytest.mark.parametrize(
    ("sqn", "than", "newer"),
    [
        (0, MASK, True),
        (MASK, 0, False),
        (5, 5, False),
        (0x7FFFFFFF, 0, True),
        (0x80000000, 0, False),
        (0, 0x80000000, False),
        (0, 0x80000001, True),
    ],
)
def test_newer_at_the_edges(sqn, than, newer):
    assert is_newer(sqn, than) is newer


@pytest.mark.rfc("W-17")
def test_unwrap_crosses_the_wrap_in_both_directions():
    assert unwrap(3, (1 << 32) - 2) == (1 << 32) + 3
    assert unwrap(MASK - 3, 1 << 32) == MASK - 3
    assert unwrap(MASK, 0) == -1
