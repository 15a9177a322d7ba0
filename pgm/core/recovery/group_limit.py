"""Rules of parity for the admission of requests (RFC 11.5).

A session has one rule. `GroupRule` is that of sessions without parity, and limits nothing.

`GroupLimit` limits the groups whose parity is requested at a time, to the number of groups that the parity store holds. A
group is rebuilt once enough of its parity is stored. A node that requested more groups would drop most of their parity,
request it again, and run out of retries.

`GroupProbe` is for a node that requests single packets. An idle source ends its group early, and the sqns up to the next
group are never used. A node that lacks packets of such a group does not know its size. The node requests the last sqn of
the group first. The answer is that packet, or parity with the size of the group. Without the probe the node would request
many unused sqns, and be limited for excessive NAKs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import attrs

from pgm.core.recovery.missing_range import MissingRange
from pgm.core.structures.ranges import SqnRange, TimedRanges
from pgm.units import NEVER
from pgm.wire.parity import group_of

Table = TimedRanges[MissingRange]


@attrs.define(eq=False)
class GroupRule:
    """Rule that limits nothing.

    Sqns from `end_sqn` on wait for room in the parity store. `is_freed_by_end` tells whether the known end of a group
    lets ranges be admitted.
    """

    end_sqn: int = attrs.field(default=NEVER, init=False)
    is_freed_by_end: bool = attrs.field(default=False, init=False)

    def review(self, missing: Table, trail: int) -> None:
        """Find `end_sqn` at the begin of a wave. Sqns below `trail` are requested as single packets."""

    def askable(
        self, missing: Table, ready: list[MissingRange], trail: int, room: int, places: int
    ) -> list[MissingRange]:
        """Return the ready ranges, or parts of them, that the rule lets through.

        `room` is the number of sqns that may be requested, `places` that of ranges that cuts may add.
        """
        return ready

    def is_held(self, missing: Table, gap: MissingRange, trail: int) -> bool:
        """Return whether a range must wait until the last sqn of its group has come."""
        return False

    def holds_back(self, missing: Table, ready: Sequence[MissingRange]) -> bool:
        """Return whether the rule lets only the ranges `ready` through."""
        return False

    def is_freed(self, missing: Table, arrived: Iterable[SqnRange]) -> bool:
        """Return whether the arrival of ranges lets more through."""
        return True


@attrs.define(eq=False)
class GroupLimit(GroupRule):
    """Limit of `most` groups of `size` sqns each."""

    size: int
    most: int

    def review(self, missing: Table, trail: int) -> None:
        """Find the end of the oldest `most` groups with losses; NEVER if there are no more groups.

        Sqns below `trail` are requested as single packets, so no parity of their groups is kept.
        """
        left, end, self.end_sqn = self.most, trail, NEVER
        while (gap := next(missing.reaching(end), None)) is not None:
            group = group_of(max(gap.first, end), self.size)
            end = group_of(gap.end - 1, self.size) + self.size
            groups = (end - group) // self.size
            if groups > left:
                self.end_sqn = group + left * self.size
                return
            left -= groups

    def askable(
        self, missing: Table, ready: list[MissingRange], trail: int, room: int, places: int
    ) -> list[MissingRange]:
        """Return the ranges below `end_sqn`, cut there unless the table has no place for the rest."""
        end = self.end_sqn
        if end == NEVER:
            return ready
        within = [gap for gap in ready if gap.first < end]
        for gap in within:
            if gap.end > end and places > 0:
                missing.within(gap.first, end)
                places -= 1
        return within

    def holds_back(self, missing: Table, ready: Sequence[MissingRange]) -> bool:
        """Return whether some losses are beyond the limit."""
        return self.end_sqn != NEVER

    def is_freed(self, missing: Table, arrived: Iterable[SqnRange]) -> bool:
        """Return whether a group with sqns in `arrived` is now complete."""
        return any(
            not missing.overlaps(group, group + self.size)
            for sqns in arrived
            for group in range(group_of(sqns.first, self.size), sqns.end, self.size)
        )


@attrs.define(eq=False)
class GroupProbe(GroupRule):
    """Probe for groups of `size` sqns that lie in the window entirely; no parity can be made of others."""

    size: int
    is_freed_by_end: bool = attrs.field(default=True, init=False)

    def is_held(self, missing: Table, gap: MissingRange, trail: int) -> bool:
        """Return whether a range must wait until the last sqn of its group has come."""
        return group_of(gap.first, self.size) >= trail and not self._has_last(gap) and self._lacks_last(missing, gap)

    def askable(
        self, missing: Table, ready: list[MissingRange], trail: int, room: int, places: int
    ) -> list[MissingRange]:
        """Return the parts of ready ranges to request first. Return all ranges if the table is full."""
        most = min(room, places // 2)
        if most <= 0:
            return ready
        parts: list[MissingRange] = []
        for gap in ready:
            if len(parts) >= most:
                break
            parts += self.asked_first(missing, gap, trail, most - len(parts))
        return parts

    def holds_back(self, missing: Table, ready: Sequence[MissingRange]) -> bool:
        """Return whether some losses wait for a probe."""
        return len(ready) < len(missing)

    def asked_first(self, missing: Table, gap: MissingRange, trail: int, most: int) -> list[MissingRange]:
        """Cut and return up to `most` parts of a range to request: last sqns of groups, and parts without a probe."""
        if self.is_held(missing, gap, trail):
            return []
        size = self.size
        whole_from = group_of(trail + size - 1, size)  # the first group that has not partly left
        begin, tail = max(gap.first, whole_from), group_of(gap.end, size)
        spans = [(gap.first, min(gap.end, whole_from))]
        spans += [(last, last + 1) for last in range(group_of(begin, size) + size - 1, gap.end, size)[:most]]
        if tail >= whole_from and not self._lacks_last(missing, gap):
            spans.append((max(gap.first, tail), gap.end))
        wanted = [(first, end) for first, end in spans if first < end]
        return [part for first, end in wanted[:most] for part in missing.within(first, end)]

    def is_freed(self, missing: Table, arrived: Iterable[SqnRange]) -> bool:
        """Return whether the ranges `arrived` contain the last sqn of a group."""
        return any(self._has_last(gap) for gap in arrived)

    def _has_last(self, gap: SqnRange) -> bool:
        return group_of(gap.first, self.size) < group_of(gap.end, self.size)

    def _lacks_last(self, missing: Table, gap: SqnRange) -> bool:
        """Return whether the last sqn of the group in which a range ends is missing."""
        return missing.at(group_of(gap.end, self.size) + self.size - 1) is not None
