"""Ack positions of one parent's children.

The minimum of the positions holds for all receivers below. A child is a receiver, or an element that speaks for all
receivers below it. The minimum is updated incrementally, so an ack costs a few comparisons for any number of children.
All children are examined only when the last of the slowest moves on.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator

import attrs

from pgm.units import NEVER
from pgm.wire.formats import Nla

Place = tuple[int, Nla]  # index of the segment, address there


@attrs.define(eq=False)
class AckChild:
    """Newest ack of one child, and its time."""

    acked: int  # the newest sqn up to which the child lacks nothing
    members: int  # receivers that the child speaks for
    holder: Nla  # the receiver furthest behind among these
    is_element: bool
    heard_ns: int
    moved_ns: int  # when the child last made progress, or lacked nothing
    held_from: int = 0  # what the child had acknowledged when it began to hold up the source, or at the last check
    held_since_ns: int = NEVER  # NEVER while it does not hold up the source


_UNKNOWN = AckChild(acked=NEVER, members=0, holder="", is_element=False, heard_ns=0, moved_ns=0)  # holds up no sqn


class AckTable:
    """Table of at most `limit` children (JG-07)."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._children: dict[Place, AckChild] = {}
        self._low = NEVER  # NEVER without children
        self._at_low = 0  # children at the minimum
        self.members = 0

    def __len__(self) -> int:
        return len(self._children)

    def __iter__(self) -> Iterator[tuple[Place, AckChild]]:
        return iter(self._children.items())

    def __contains__(self, place: Place) -> bool:
        return place in self._children

    def __getitem__(self, place: Place) -> AckChild:
        return self._children[place]

    @property
    def is_full(self) -> bool:
        """Return whether there is no room for another child."""
        return len(self._children) >= self._limit

    def low_or(self, default: int) -> int:
        """Return the sqn that all children have acknowledged; `default` without children."""
        return self._low if self._children else default

    @property
    def holder(self) -> Nla:
        """Return the receiver that is furthest behind; empty without children."""
        return min(self._children.values(), key=lambda child: child.acked, default=_UNKNOWN).holder

    def slowest(self, most: int) -> list[tuple[Place, AckChild]]:
        """Return the slowest children, for operators."""
        return heapq.nsmallest(most, self._children.items(), key=lambda item: item[1].acked)

    def note(self, place: Place, child: AckChild) -> None:
        """Record the ack of a new or known child. An element that adopts a slower child acknowledges less."""
        before = self._children.get(place, _UNKNOWN)
        self._children[place] = child
        self._changed(before, child)

    def remove(self, place: Place) -> AckChild:
        """Forget a child. Return its newest ack."""
        child = self._children.pop(place)
        self._changed(child, _UNKNOWN)
        return child

    def _changed(self, before: AckChild, after: AckChild) -> None:
        self.members += after.members - before.members
        self._at_low -= before.acked == self._low
        if after.acked < self._low:
            self._low, self._at_low = after.acked, 1
        elif after.acked == self._low:
            self._at_low += 1
        if not self._at_low:
            self._low = min((child.acked for child in self._children.values()), default=NEVER)
            self._at_low = sum(child.acked == self._low for child in self._children.values())
