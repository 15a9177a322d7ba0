"""How far each child of one parent has got: the minimum is what everybody below has.

A child is a receiver, or an element that speaks for all receivers below it. The minimum is kept as it changes, so an ack costs
a few comparisons however many children there are; only when the last of the slowest moves on are all looked at.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator

import attrs

from pgm.wire.formats import Nla

Place = tuple[int, Nla]  # index of the segment, address there


@attrs.define(eq=False)
class AckChild:
    """What the newest ack of one child said, and when."""

    acked: int  # the newest sqn up to which nothing is owed; behind it is what the child lacks
    members: int  # receivers it speaks for
    holder: Nla  # the receiver that is furthest behind of those
    is_element: bool
    heard_ns: int
    moved_ns: int  # when it last got on, or lacked nothing


class AckTable:
    """At most `limit` children (JG-07)."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._children: dict[Place, AckChild] = {}
        self._low: int | None = None
        self._at_low = 0  # children that stand at the minimum
        self.members = 0

    def __len__(self) -> int:
        return len(self._children)

    def __iter__(self) -> Iterator[tuple[Place, AckChild]]:
        return iter(self._children.items())

    def get(self, place: Place) -> AckChild | None:
        """What is known of a child."""
        return self._children.get(place)

    @property
    def is_full(self) -> bool:
        """Whether one more child is too many."""
        return len(self._children) >= self._limit

    @property
    def low(self) -> int | None:
        """What every child has acknowledged; None without children."""
        return self._low

    @property
    def holder(self) -> Nla:
        """The receiver that is furthest behind; empty without children."""
        slowest = min(self._children.values(), key=lambda child: child.acked, default=None)
        return "" if slowest is None else slowest.holder

    def slowest(self, most: int) -> dict[str, int]:
        """The children that are furthest behind and what they have, for operators."""
        slowest = heapq.nsmallest(most, self._children.items(), key=lambda one: one[1].acked)
        return {place[1]: child.acked for place, child in slowest}

    def note(self, place: Place, child: AckChild) -> None:
        """Take what a child says now, new or not. It may say less than before: it has adopted another."""
        before = self._children.get(place)
        self._children[place] = child
        self.members += child.members - (0 if before is None else before.members)
        self._changed(None if before is None else before.acked, child.acked)

    def remove(self, place: Place) -> AckChild | None:
        """Forget a child; returns what was known of it."""
        child = self._children.pop(place, None)
        if child is not None:
            self.members -= child.members
            self._changed(child.acked, None)
        return child

    def _changed(self, before: int | None, after: int | None) -> None:
        if before is not None and before == self._low:
            self._at_low -= 1
        if after is not None:
            if self._low is None or after < self._low:
                self._low, self._at_low = after, 1
            elif after == self._low:
                self._at_low += 1
        if not self._at_low:
            self._low = min((child.acked for child in self._children.values()), default=None)
            self._at_low = sum(child.acked == self._low for child in self._children.values())
