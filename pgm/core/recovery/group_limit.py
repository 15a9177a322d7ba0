"""Limit on the groups whose parity is requested at a time (RFC 11.5).

The limit is the number of groups that the parity store holds. A group is rebuilt once enough of its parity is stored. A
node that requested more groups would drop most of their parity, request it again, and run out of retries.
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
    """Limit of `most` groups of `size` sqns each."""

    size: int
    most: int

    def end(self, missing: TimedRanges[MissingRange], trail: int) -> int:
        """Return the end of the oldest `most` groups with losses.

        Return NEVER if there are no more groups. Sqns below `trail` are requested as single packets, so no parity of
        their groups is kept.
        """
        left, end = self.most, trail
        while (gap := next(missing.reaching(end), None)) is not None:
            group = group_of(max(gap.first, end), self.size)
            end = group_of(gap.end - 1, self.size) + self.size
            groups = (end - group) // self.size
            if groups > left:
                return group + left * self.size
            left -= groups
        return NEVER

    def is_freed(self, missing: TimedRanges[MissingRange], arrived: Iterable[SqnRange]) -> bool:
        """Return whether a group with sqns in `arrived` is now complete."""
        return any(
            not missing.overlaps(group, group + self.size)
            for sqns in arrived
            for group in range(group_of(sqns.first, self.size), sqns.end, self.size)
        )
