"""Repetitions in a log: the first line at once, the others as one line with their number."""

from __future__ import annotations

from typing import Any

from deploy.terminal.repeats import Repeats


def row(text: str) -> dict[str, Any]:
    return {"node": "desk", "code": "sends-fail", "text": text}


def test_equal_rows_of_an_interval_are_one_row_with_count() -> None:
    repeats = Repeats()
    assert [one["count"] for one in repeats.admit(row("a"), 0.0)] == [1]
    for at_s in range(1, 10):
        assert repeats.admit(row("a"), at_s) == []
    assert repeats.due_s == 10.0
    assert repeats.take_due(10.0) == [row("a") | {"count": 9}]
    assert repeats.due_s is None


def test_rows_that_alternate_are_counted_each() -> None:
    repeats = Repeats()
    printed = [one for at in range(100) for one in repeats.admit(row("ab"[at % 2]), at / 100)]
    assert [one["text"] for one in printed] == ["a", "b"]
    assert {one["text"]: one["count"] for one in repeats.end()} == {"a": 49, "b": 49}


def test_interval_doubles_while_rows_repeat() -> None:
    """Twenty equal lines a minute for an hour are a dozen lines."""
    repeats = Repeats()
    printed = [one for at in range(0, 3600, 3) for one in repeats.admit(row("full"), at)]
    assert len(printed) < 13
    assert sum(one["count"] for one in printed + repeats.end()) == 1200


def test_row_after_a_quiet_interval_passes_at_once() -> None:
    repeats = Repeats()
    repeats.admit(row("a"), 0.0)
    assert [one["count"] for one in repeats.admit(row("a"), 11.0)] == [1]


def test_different_rows_are_bounded_and_none_is_forgotten() -> None:
    repeats = Repeats()
    for _ in range(2):
        printed = [one for at in range(500) for one in repeats.admit(row(f"{at % 250}"), 0.0)]
    assert sum(one["count"] for one in printed + repeats.end()) >= 500
