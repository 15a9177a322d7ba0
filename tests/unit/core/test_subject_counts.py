"""Counts of messages by subject."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgm.core.subject_counts import NO_SUBJECT, OTHERS, SubjectCounts

_TABLES = [("/a",), ("/a", "/b", "/c"), ("/c", "/d"), ()]


@st.composite
def _batches(draw: st.DrawFn) -> list[tuple[tuple[str, ...], list[int], bool]]:
    """Batches of messages: a table, the index of each message, and whether one index is given for all."""
    batches = []
    for table in draw(st.lists(st.sampled_from(_TABLES), max_size=8)):
        indexes = draw(st.lists(st.integers(0, len(table)), min_size=1, max_size=20))
        is_one = draw(st.booleans())
        batches.append((table, [indexes[0]] * len(indexes) if is_one else indexes, is_one))
    return batches


@given(_batches())
def test_subject_counts_of_few_subjects_are_exact(batches: list[tuple[tuple[str, ...], list[int], bool]]) -> None:
    counts, wanted = SubjectCounts(10), Counter[str]()
    for table, indexes, is_one in batches:
        counts.add(table, indexes[0] if is_one else np.array(indexes, np.uint8), len(indexes))
        wanted.update(table[index - 1] if index else NO_SUBJECT for index in indexes)
        assert counts.snapshot() == wanted


@pytest.mark.parametrize("subjects", [3, 40])
def test_subject_counts_of_large_batches_are_exact(subjects: int) -> None:
    """A small table and a large one are counted in different ways."""
    counts, table = SubjectCounts(100), tuple(f"/{number}" for number in range(subjects))
    indexes = np.random.default_rng(1).integers(0, subjects + 1, 200_001).astype(np.uint8)
    for part in np.array_split(indexes, 7):
        counts.add(table, part, len(part))
    wanted = dict(zip((NO_SUBJECT, *table), np.bincount(indexes).tolist(), strict=True))
    assert counts.snapshot() == wanted


def test_subject_counts_above_the_limit_go_to_others() -> None:
    counts = SubjectCounts(2)
    counts.add(("/a", "/b", "/c", "/d"), np.array([4, 2, 2, 1, 4, 2], np.uint8), 6)
    counts.add(("/d",), 1, 5)
    assert counts.snapshot() == {"/b": 3, "/a": 1, OTHERS: 7}
    assert list(counts.snapshot()) == ["/b", "/a", OTHERS]


def test_subject_counts_without_a_limit_hold_nothing() -> None:
    counts = SubjectCounts(0)
    counts.add(("/a",), 1, 5)
    assert counts.snapshot() == {}
