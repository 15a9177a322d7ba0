"""Timers of the parts of one session: the earliest due time, and what runs then.

The due time of a part is its attribute `deadline_ns`. A part sets that attribute, or computes it from a heap of its own.
The composite keeps no copy, so no method has to invalidate anything.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from pgm.core.effects import Effect, Effects
from pgm.units import NEVER


class HasDeadline(Protocol):
    """Part with a due time."""

    @property
    def deadline_ns(self) -> int:
        """Return when the part is due; NEVER when idle."""


class TimedPart(HasDeadline, Protocol):
    """Part with a due time that handles the deadline itself."""

    def handle_deadline(self, now_ns: int) -> Effects:
        """Run what is due."""


Owner = TypeVar("Owner")
Step = Callable[[Owner, int], Effects]


class Timers(Generic[Owner]):
    """Timers of all parts of an owner, in the order in which due parts run.

    An entry is a part, or a part with a method of the owner that handles the deadline. The method is not bound, because
    a reference to the owner would make a cycle.
    """

    def __init__(self, *entries: TimedPart | tuple[HasDeadline, Step[Owner]]) -> None:
        self._entries = tuple(entry if isinstance(entry, tuple) else (entry, _step_of(entry)) for entry in entries)
        self._parts = tuple(part for part, _ in self._entries)

    @property
    def deadline_ns(self) -> int:
        """Return when the first part is due; NEVER when all are idle."""
        earliest_ns = NEVER
        for part in self._parts:  # `min` over a map takes twice as long, and this runs for each read
            if (deadline_ns := part.deadline_ns) < earliest_ns:
                earliest_ns = deadline_ns
        return earliest_ns

    def handle_deadline(self, owner: Owner, now_ns: int) -> list[Effect]:
        """Run the parts that are due, in order."""
        effects: list[Effect] = []
        for part, step in self._entries:
            if part.deadline_ns <= now_ns:
                effects += step(owner, now_ns)
        return effects


def _step_of(part: TimedPart) -> Step[object]:
    return functools.partial(_handle, part.handle_deadline)  # not a lambda, which no tape could hold


def _handle(handle_deadline: Callable[[int], Effects], _owner: object, now_ns: int) -> Effects:
    return handle_deadline(now_ns)
