"""Every row of the RFC has a test or a reason, every claim names a row, and the page is fresh."""

from __future__ import annotations

import pytest

from tests.rfc.coverage import FAMILIES, PAGE, ROOT, STRENGTHS, SUBJECTS, claims, render, requirements, the_25

ROWS, CLAIMS = requirements(), claims()


@pytest.mark.parametrize("row", ROWS.values(), ids=lambda row: row.id)
def test_a_row_has_a_test_or_a_reason(row) -> None:
    assert row.family in FAMILIES
    assert row.strength in STRENGTHS
    assert row.text
    assert not (row.refused and row.later), "one reason is enough"
    assert row.later in ("", *SUBJECTS)
    if row.refused or row.later:
        return
    assert CLAIMS.get(row.id), f'{row.id} has neither: mark the test that asserts it with @pytest.mark.rfc("{row.id}")'
    assert row.code, f"{row.id} names no module"
    if row.must_be_tested:
        assert row.mutate is not None, f"{row.id}: name a change of the source that its tests notice"


@pytest.mark.parametrize("name", sorted(CLAIMS))
def test_a_marker_names_a_row_that_is_done(name: str) -> None:
    where = ", ".join(claim.node_id for claim in CLAIMS[name])
    assert name in ROWS, f"{where}: there is no row {name}"
    assert not ROWS[name].refused, f"{where}: {name} is refused"
    assert not ROWS[name].later, f"{where}: {name} comes later"


def test_code_and_changes_are_where_the_table_says() -> None:
    """The text to change occurs exactly once.

    An edit of that line must therefore update the change in the table.
    """
    for row in ROWS.values():
        for file in row.code:
            assert (ROOT / file).exists(), f"{row.id}: {file}"
        if row.mutate is not None:
            found = (ROOT / row.mutate.file).read_text().count(row.mutate.old)
            assert found == 1, f"{row.id}: {row.mutate.old!r} is {found} times in {row.mutate.file}"
            assert row.mutate.old != row.mutate.new


def test_the_25_are_there() -> None:
    assert set(the_25()) == set(range(1, 26))


def test_the_page_is_fresh() -> None:
    assert PAGE.read_text() == render(), (
        "docs/reference/rfc-coverage.md is stale; write it: python -m tests.rfc.coverage --write"
    )
