"""Every feature of the older systems has a row, and every row marked as done names existing tests."""

from __future__ import annotations

import itertools

import pytest

from tests.seeds.features import EVERY_TEST, PAGE, features, functions_of, ids, render

ROWS = features()


def test_no_id_is_missing_and_none_is_unknown() -> None:
    covered = [*ROWS, *itertools.chain.from_iterable(row.details for row in ROWS.values())]
    assert sorted(covered) == sorted(ids()), "each id is a row, or a detail of one row"


@pytest.mark.parametrize("row", ROWS.values(), ids=lambda row: row.id)
def test_features_row_has_tests_a_refusal_or_a_plan(row) -> None:
    assert row.theirs.endswith((".", "?"))
    assert bool(row.ours) == bool(row.tests), "a present feature has a test, and no other row has one"
    assert row.ours or row.refused or row.later
    assert not (row.refused and (row.ours or row.later))


@pytest.mark.parametrize("row", ROWS.values(), ids=lambda row: row.id)
def test_the_tests_of_a_row_exist(row) -> None:
    for test in row.tests:
        file, _, name = test.partition("::")
        found = functions_of(file)
        assert found, f"there is no tests/{file} with tests"
        assert name == EVERY_TEST or name in found, f"tests/{file} has no {name}"


def test_the_page_is_fresh() -> None:
    assert PAGE.read_text() == render(), (
        "docs/reference/seed-features.md is stale; write it: python -m tests.seeds.features --write"
    )
