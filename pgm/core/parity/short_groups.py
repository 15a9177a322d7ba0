"""Short groups: transmission groups that their source has ended early (FEC-31)."""

from __future__ import annotations

from collections import OrderedDict

import attrs

from pgm.core.structures.ranges import Span


@attrs.define(eq=False)
class ShortGroups:
    """The latest short groups of one session, at most `most`."""

    most: int
    sizes: OrderedDict[int, int] = attrs.field(factory=OrderedDict)  # number of packets in each group
    holes: list[int] = attrs.field(factory=list)  # groups without a packet from a later group so far
    left_out: dict[int, list[Span]] = attrs.field(factory=dict)  # skipped spans of each group
    have_come: bool = False  # the source has ended a group early, and will do so again

    def add(self, group: int, actual: int) -> None:
        """Record a group of `actual` packets."""
        self.have_come = True
        self.sizes[group] = actual
        self.holes.append(group)
        if len(self.sizes) > self.most:
            self.remove(next(iter(self.sizes)))

    def remove(self, group: int) -> list[Span]:
        """Forget a group. Return its skipped spans."""
        del self.sizes[group]
        self.holes = [hole for hole in self.holes if hole != group]
        return self.left_out.pop(group, [])
