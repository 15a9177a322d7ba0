"""Subjects: hierarchical names of messages, and filters by patterns.

A subject is absolute and case-sensitive, and has any number of levels: `/nasdaq/ibm`. A pattern may contain `*` for one
level of any name, and `...` at its end for all further levels: `/nasdaq/...` matches `/nasdaq` and all subjects below it.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

from pgm.errors import UsageError

ANY_LEVEL = "*"
THE_REST = "..."
MOST_OCTETS = 1024
_CACHED_TABLES = 64  # tables of batches whose result is cached; a stream with few subjects repeats its tables
_CACHED_NAMES = 65_536  # subjects whose result is cached; a full cache is cleared


def _problem_of(name: object, *, wild: bool) -> str:
    """Return the problem of a subject, or of a pattern if `wild`, or an empty text."""
    if not isinstance(name, str):
        return "it is not text"
    if not name.startswith("/"):
        return "it does not begin with a slash"
    if len(name.encode(errors="replace")) > MOST_OCTETS:
        return f"it has more than {MOST_OCTETS} octets"
    levels = name[1:].split("/")
    if "" in levels:
        return "a level is empty"
    if not wild and (ANY_LEVEL in levels or THE_REST in levels):
        return "it has wildcards, which only a pattern may have"
    if THE_REST in levels[:-1]:
        return f"{THE_REST} must be the last level"
    return ""


@functools.lru_cache(maxsize=_CACHED_NAMES)
def is_absolute(name: str) -> bool:
    """Return whether `name` is a valid subject of a message."""
    return not _problem_of(name, wild=False)


def require_absolute(name: str) -> None:
    """Raise `UsageError` unless `name` is a valid subject of a message."""
    if not isinstance(name, str) or not is_absolute(name):
        raise UsageError(
            f"{name!r} is no subject: {_problem_of(name, wild=False)}",
            remedy='write it from the root, as in "/nasdaq/ibm"',
        )


@attrs.frozen(eq=False)
class Subscription:
    """One subscribed pattern, with a tag of the application."""

    pattern: str
    tag: Any = None


@attrs.define(eq=False)
class _Level:
    """Node of the tree of patterns: subscriptions that end at this level, and lower levels."""

    below: dict[str, _Level] = attrs.field(factory=dict)
    here: list[Subscription] = attrs.field(factory=list)
    rest: list[Subscription] = attrs.field(factory=list)

    @property
    def is_empty(self) -> bool:
        return not (self.below or self.here or self.rest)


class SubjectFilter:
    """Filter by the subscribed patterns. While `takes_all` is true, the filter accepts every message."""

    def __init__(self, patterns: Iterable[str] | None = None) -> None:
        self._root = _Level()
        self._all: dict[Subscription, None] = {}
        self._takes_all = patterns is None
        self._verdicts: dict[str, bool] = {}
        self._tables: dict[tuple[str, ...], npt.NDArray[np.bool_]] = {}  # cached results of whole tables
        for pattern in patterns or ():
            self.add(pattern)

    @property
    def subscriptions(self) -> tuple[Subscription, ...]:
        """Return all subscriptions, oldest first."""
        return tuple(self._all)

    @property
    def takes_all(self) -> bool:
        """Return whether no pattern was ever subscribed, so that messages without a subject are accepted too."""
        return self._takes_all

    def add(self, pattern: str, tag: Any = None) -> Subscription:
        """Add a pattern. Raises `UsageError` for an invalid pattern."""
        problem = _problem_of(pattern, wild=True)
        if problem:
            raise UsageError(f"{pattern!r} is no pattern of subjects: {problem}", remedy='write it as in "/nasdaq/*"')
        subscription = Subscription(pattern, tag)
        self._all[subscription] = None
        self._place(pattern, make=True).append(subscription)
        self._takes_all = False
        self._forget_verdicts()
        return subscription

    def remove(self, which: Subscription | str) -> None:
        """Remove a subscription, or the oldest one of a pattern. Raises `UsageError` if there is none."""
        if isinstance(which, str):
            subscription = next((known for known in self._all if known.pattern == which), None)
        else:
            subscription = which if which in self._all else None
        if subscription is None:
            raise UsageError(f"{which!r} is not subscribed", remedy="unsubscribe each subscription once")
        del self._all[subscription]
        self._place(subscription.pattern, make=False).remove(subscription)
        self._prune(subscription.pattern)
        self._forget_verdicts()

    def _place(self, pattern: str, *, make: bool) -> list[Subscription]:
        level = self._root
        levels = pattern[1:].split("/")
        has_rest = levels[-1] == THE_REST
        for name in levels[:-1] if has_rest else levels:
            level = level.below.setdefault(name, _Level()) if make else level.below[name]
        return level.rest if has_rest else level.here

    def _prune(self, pattern: str) -> None:
        """Remove empty levels along a pattern."""
        path = [self._root]
        levels = [name for name in pattern[1:].split("/") if name != THE_REST]
        for name in levels:
            path.append(path[-1].below[name])
        for name, above in zip(reversed(levels), reversed(path[:-1]), strict=True):
            if not above.below[name].is_empty:
                break
            del above.below[name]

    def matching(self, subject: str) -> tuple[Subscription, ...]:
        """Return the subscriptions that a subject matches."""
        return tuple(self._matches(subject))

    def _matches(self, subject: str) -> Iterator[Subscription]:
        levels = subject[1:].split("/")
        waiting = [(self._root, 0)]
        while waiting:
            level, depth = waiting.pop()
            yield from level.rest
            if depth == len(levels):
                yield from level.here
                continue
            exact, wild = level.below.get(levels[depth]), level.below.get(ANY_LEVEL)
            if exact is not None:
                waiting.append((exact, depth + 1))
            if wild is not None:
                waiting.append((wild, depth + 1))

    def wants(self, subject: str | None) -> bool:
        """Return whether the filter accepts a message with this subject, or without a subject if None."""
        if self._takes_all:
            return True
        if subject is None:
            return False
        verdict = self._verdicts.get(subject)
        if verdict is None:
            if len(self._verdicts) >= _CACHED_NAMES:
                self._verdicts.clear()
            verdict = self._verdicts[subject] = next(self._matches(subject), None) is not None
        return verdict

    def wanted(self, subjects: tuple[str, ...]) -> npt.NDArray[np.bool_]:
        """Return a mask for a batch's table: first for messages without a subject, then for each subject."""
        mask = self._tables.get(subjects)
        if mask is None:
            if len(self._tables) >= _CACHED_TABLES:
                self._tables.clear()
            mask = self._tables[subjects] = np.array([self._takes_all, *map(self.wants, subjects)], bool)
        return mask

    def _forget_verdicts(self) -> None:
        self._verdicts.clear()
        self._tables.clear()
