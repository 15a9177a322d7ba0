"""Each line of the lists of attacks names tests that exist, and the page is fresh."""

from __future__ import annotations

import collections

import pytest

from tests.attacks.lines import LISTS, PAGE, lines, render
from tests.seeds.features import EVERY_TEST, functions_of


def test_lists_are_complete() -> None:
    counts = collections.Counter(line.list for line in lines())
    assert counts == {name: count for name, (_, _, count) in LISTS.items()}


@pytest.mark.parametrize("line", lines(), ids=lambda line: line.id)
def test_lines_tests_exist(line) -> None:
    assert line.tests
    for test in line.tests:
        file, _, name = test.partition("::")
        found = functions_of(file)
        assert found, f"there is no tests/{file} with tests"
        assert name == EVERY_TEST or name in found, f"tests/{file} has no {name}"


def test_page_of_attacks_is_fresh() -> None:
    assert PAGE.read_text() == render(), "docs/reference/attacks.md is stale: python -m tests.attacks.lines --write"
