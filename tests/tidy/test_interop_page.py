"""docs/reference/interop.md matches the tests: every row has a cell for every case, and the page is fresh."""

from __future__ import annotations

from tests.interop.matrix import ROOT, flaws, page


def test_interop_row_has_a_test_or_reason_for_every_case() -> None:
    assert not flaws()


def test_the_page_is_fresh() -> None:
    committed = (ROOT / "docs" / "reference" / "interop.md").read_text()
    assert committed == page(), (
        "docs/reference/interop.md is stale; write it with: python -m tests.interop.matrix --write"
    )
