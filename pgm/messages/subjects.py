"""Subjects: hierarchical names of messages, and who wants which.

A subject is absolute: `/nasdaq/ibm`, any number of levels, case-sensitive. A pattern may have `*` for one level, whatever it
is, and `...` at its end for the rest: `/nasdaq/...` matches `/nasdaq` and everything below it.
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
_CACHED_TABLES = 64  # of batches, whose verdicts are remembered: those of a stream with few subjects are all alike
_CACHED_NAMES = 65_536  # subjects whose verdict is remembered; beyond it all are asked anew


def _why_not(name: object, *, wild: bool) -> str:
    """What is wrong with a subject, or with a pattern, or empty."""
    if not isinstance(name, str):
        return "it is no text"
    if not name.startswith("/"):
        return "it does not begin with a slash"
    if len(name.encode(errors="replace")) > MOST_OCTETS:
        return f"it has more than {MOST_OCTETS} octets"
    levels = name[1:].split("/")
    if "" in levels:
        return "a level is empty"
    if not wild and (ANY_LEVEL in levels or THE_REST in levels):
        return "it has wildcards, and a message has one subject"
    if THE_REST in levels[:-1]:
        return f"{THE_REST} stands for the rest, so nothing can follow"
    return ""


@functools.lru_cache(maxsize=_CACHED_NAMES)
def is_absolute(name: str) -> bool:
    """Whether this is a subject that a message can have."""
    return not _why_not(name, wild=False)


def require_absolute(name: str) -> None:
    """Raises `UsageError` unless this is a subject that a message can have."""
    if not isinstance(name, str) or not is_absolute(name):
        raise UsageError(
            f"{name!r} is no subject: {_why_not(name, wild=False)}",
            remedy='write it from the root, as in "/nasdaq/ibm"',
        )


@attrs.frozen(eq=False)
class Subscription:
    """One pattern that is wanted, and whatever the application wants to find again with it."""

    pattern: str
    tag: Any = None


@attrs.define(eq=False)
class _Level:
    """A node of the tree of patterns: what is subscribed that ends here, and what goes on."""

    below: dict[str, _Level] = attrs.field(factory=dict)
    here: list[Subscription] = attrs.field(factory=list)
    rest: list[Subscription] = attrs.field(factory=list)

    @property
    def is_empty(self) -> bool:
        return not (self.below or self.here or self.rest)


class SubjectFilter:
    """The patterns that an application has subscribed. Without any, and with `takes_all`, everything is wanted."""

    def __init__(self, patterns: Iterable[str] | None = None) -> None:
        self._root = _Level()
        self._all: dict[Subscription, None] = {}
        self._takes_all = patterns is None
        self._verdicts: dict[str, bool] = {}
        self._tables: dict[tuple[str, ...], npt.NDArray[np.bool_]] = {}  # verdicts of whole tables
        for pattern in patterns or ():
            self.add(pattern)

    @property
    def subscriptions(self) -> tuple[Subscription, ...]:
        """What is subscribed, oldest first."""
        return tuple(self._all)

    @property
    def takes_all(self) -> bool:
        """Whether nothing was ever subscribed, so that messages without a subject are wanted too."""
        return self._takes_all

    def add(self, pattern: str, tag: Any = None) -> Subscription:
        """Subscribe. Raises `UsageError` for what is no pattern."""
        why = _why_not(pattern, wild=True)
        if why:
            raise UsageError(f"{pattern!r} is no pattern of subjects: {why}", remedy='write it as in "/nasdaq/*"')
        subscription = Subscription(pattern, tag)
        self._all[subscription] = None
        self._place(pattern, make=True).append(subscription)
        self._takes_all = False
        self._forget_verdicts()
        return subscription

    def remove(self, which: Subscription | str) -> None:
        """Unsubscribe one, or the oldest of a pattern. Raises `UsageError` for what is not subscribed."""
        if isinstance(which, str):
            found = next((one for one in self._all if one.pattern == which), None)
        else:
            found = which if which in self._all else None
        if found is None:
            raise UsageError(f"{which!r} is not subscribed", remedy="unsubscribe what is, once")
        del self._all[found]
        self._place(found.pattern, make=False).remove(found)
        self._prune(found.pattern)
        self._forget_verdicts()

    def _place(self, pattern: str, *, make: bool) -> list[Subscription]:
        level = self._root
        levels = pattern[1:].split("/")
        has_rest = levels[-1] == THE_REST
        for name in levels[:-1] if has_rest else levels:
            level = level.below.setdefault(name, _Level()) if make else level.below[name]
        return level.rest if has_rest else level.here

    def _prune(self, pattern: str) -> None:
        """Forget levels in which nothing is left."""
        path = [self._root]
        levels = [name for name in pattern[1:].split("/") if name != THE_REST]
        for name in levels:
            path.append(path[-1].below[name])
        for name, above in zip(reversed(levels), reversed(path[:-1]), strict=True):
            if not above.below[name].is_empty:
                break
            del above.below[name]

    def matching(self, subject: str) -> tuple[Subscription, ...]:
        """The subscriptions that a subject matches."""
        return tuple(self._found(subject))

    def _found(self, subject: str) -> Iterator[Subscription]:
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
        """Whether a message with this subject, or without any, is wanted."""
        if self._takes_all:
            return True
        if subject is None:
            return False
        verdict = self._verdicts.get(subject)
        if verdict is None:
            if len(self._verdicts) >= _CACHED_NAMES:
                self._verdicts.clear()
            verdict = self._verdicts[subject] = next(self._found(subject), None) is not None
        return verdict

    def wanted(self, subjects: tuple[str, ...]) -> npt.NDArray[np.bool_]:
        """For a batch's table: whether each is wanted, behind what holds for messages without a subject."""
        found = self._tables.get(subjects)
        if found is None:
            if len(self._tables) >= _CACHED_TABLES:
                self._tables.clear()
            found = self._tables[subjects] = np.array([self._takes_all, *map(self.wants, subjects)], bool)
        return found

    def _forget_verdicts(self) -> None:
        self._verdicts.clear()
        self._tables.clear()
