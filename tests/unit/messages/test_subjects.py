"""Subjects and patterns: the rules of Distributor's manual, checked against a matcher level by level."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from pgm.errors import UsageError
from pgm.messages.subjects import SubjectFilter, Subscription, is_absolute, require_absolute
from tests.memory import kept_by

LEVELS = st.sampled_from(["a", "b", "A", "foo", "é"])
SUBJECTS = st.lists(LEVELS, min_size=1, max_size=5).map(lambda levels: "/" + "/".join(levels))
PATTERNS = st.builds(
    lambda levels, rest: "/" + "/".join([*levels, "..."] if rest else levels),
    st.lists(LEVELS | st.just("*"), min_size=1, max_size=4),
    st.booleans(),
)


def matches(pattern: str, subject: str) -> bool:
    """Return whether a pattern matches a subject, by the wording of the rules."""
    wanted, levels = pattern.split("/")[1:], subject.split("/")[1:]
    if wanted[-1] == "...":
        wanted = wanted[:-1]
        levels = levels[: len(wanted)]
    return len(wanted) == len(levels) and all(one in ("*", other) for one, other in zip(wanted, levels, strict=True))


@pytest.mark.parametrize(
    ("pattern", "subject", "does"),
    [
        ("/foo/bar", "/foo/bar", True),
        ("/foo/bar", "/foo/Bar", False),
        ("/foo/*", "/foo/bar", True),
        ("/foo/*", "/foo", False),
        ("/foo/*", "/foo/bar/fie", False),
        ("/foo/*/bar/*", "/foo/x/bar/y", True),
        ("/foo/*/bar/*", "/foo/x/fie/y", False),
        ("/foo/bar/...", "/foo/bar/fie", True),
        ("/foo/bar/...", "/foo/bar/fie/fum", True),
        ("/foo/bar/...", "/foo/bar", True),
        ("/foo/bar/...", "/foo/barrel", False),
        ("/...", "/anything/at/all", True),
    ],
)
def test_the_rules_of_the_manual(pattern: str, subject: str, does: bool) -> None:
    assert SubjectFilter([pattern]).wants(subject) is does is matches(pattern, subject)


def test_an_exact_and_a_wild_subscription_both_match() -> None:
    subjects = SubjectFilter([])
    exact, wild = subjects.add("/a/b", "exact"), subjects.add("/*/b", "wild")
    assert set(subjects.matching("/a/b")) == {exact, wild}
    assert [one.tag for one in subjects.matching("/c/b")] == ["wild"]


def test_subjects_no_filter_is_all_and_an_empty_list_is_none() -> None:
    assert SubjectFilter().wants("/a")
    assert SubjectFilter().wants(None)
    assert not SubjectFilter([]).wants("/a")
    assert not SubjectFilter(["/..."]).wants(None)
    assert SubjectFilter(["/a/*"]).wanted(("/a/b", "/b")).tolist() == [False, True, False]


@pytest.mark.parametrize(
    "name", ["", "a", "a/b", "/", "//", "/a/", "/a//b", "/*", "/a/...", "/" + "x" * 1024, 7, b"/a"]
)
def test_subjects_bad_subject_is_refused(name: object) -> None:
    with pytest.raises(UsageError, match="is no subject"):
        require_absolute(name)  # type: ignore[arg-type]


@pytest.mark.parametrize("pattern", ["", "a", "/a/.../b", "/.../...", "/a/"])
def test_subjects_bad_pattern_is_refused(pattern: str) -> None:
    with pytest.raises(UsageError, match="is no pattern"):
        SubjectFilter([pattern])


def test_subjects_removing_an_unknown_pattern_fails() -> None:
    subjects = SubjectFilter(["/a"])
    subjects.remove("/a")
    for which in ("/a", Subscription("/a")):
        with pytest.raises(UsageError, match="not subscribed"):
            subjects.remove(which)


@given(SUBJECTS)
def test_subjects_are_absolute(subject: str) -> None:
    assert is_absolute(subject)


class SubscriptionMachine(RuleBasedStateMachine):
    """State machine of changing subscriptions, checked against the rules for the current ones."""

    def __init__(self) -> None:
        super().__init__()
        self.subjects = SubjectFilter([])
        self.known: list[Subscription] = []
        self.asked: list[str] = []

    @rule(pattern=PATTERNS)
    def subscribe(self, pattern: str) -> None:
        self.known.append(self.subjects.add(pattern))

    @rule(place=st.integers(0, 20))
    def unsubscribe(self, place: int) -> None:
        if self.known:
            self.subjects.remove(self.known.pop(place % len(self.known)))

    @rule(subject=SUBJECTS)
    def ask(self, subject: str) -> None:
        self.asked.append(subject)

    @invariant()
    def agrees_with_the_rules(self) -> None:
        for subject in self.asked:
            expected = {one for one in self.known if matches(one.pattern, subject)}
            assert set(self.subjects.matching(subject)) == expected
            assert self.subjects.wants(subject) is bool(expected)


TestSubscribing = SubscriptionMachine.TestCase


def test_subjects_unsubscribe_removes_all_state() -> None:
    subjects = SubjectFilter([])
    before = len(kept_by(subjects))
    for pattern in ("/a/b/c", "/a/*/...", "/a"):
        subjects.remove(subjects.add(pattern))
    assert len(kept_by(subjects)) == before


def test_subjects_ten_thousand_subscriptions_match_batches() -> None:
    subjects = SubjectFilter([f"/market/{number % 100}/*/{number}" for number in range(10_000)])
    table = tuple(f"/market/{number % 100}/x/{number}" for number in range(0, 20_000, 100))
    indexes = np.arange(1_000_000) % len(table) + 1
    begun = time.process_time()
    chosen = np.concatenate([subjects.wanted(table)[part] for part in np.array_split(indexes, 1000)])
    spent = time.process_time() - begun
    assert chosen.sum() == 500_000
    assert spent < 0.2, f"{1 / spent:.1f} million messages a second"
