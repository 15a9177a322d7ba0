"""How many transmission groups are asked for at a time: as many as parity is kept for (RFC 11.5).

A group is rebuilt once enough of its parity is there together. A node that asks for more groups than its store holds drops
most of the parity that comes, asks for it again, and runs out of retries.
"""

from __future__ import annotations

from collections.abc import Iterable

import attrs

from pgm.core.recovery.missing_range import MissingRange
from pgm.core.structures.ranges import SqnRange, TimedRanges
from pgm.units import NEVER
from pgm.wire.parity import group_of


@attrs.frozen
class GroupLimit:
    """The limit for groups of `size` sqns, `most` of them at a time."""

    size: int
    most: int

    def end(self, missing: TimedRanges[MissingRange], trail: int) -> int:
        """Return the sqn that the oldest `most` groups with losses lie before; NEVER where there are no more groups.

        What lies before `trail` is asked for by single packets, so no parity of it is kept.
        """
        left, end = self.most, trail
        while (found := next(missing.reaching(end), None)) is not None:
            group = group_of(max(found.first, end), self.size)
            end = group_of(found.end - 1, self.size) + self.size
            groups = (end - group) // self.size
            if groups > left:
                return group + left * self.size
            left -= groups
        return NEVER

    def is_freed(self, missing: TimedRanges[MissingRange], arrived: Iterable[SqnRange]) -> bool:
        """Return whether some group that `arrived` has sqns of lacks nothing any more."""
        return any(
            not missing.overlaps(group, group + self.size)
            for one in arrived
            for group in range(group_of(one.first, self.size), one.end, self.size)
        )
