"""Probe of a transmission group that may be short, by a node that requests single packets.

A source that is idle ends its group early, and the sqns up to the next group are never used. A node that lacks such a group
cannot tell. The node asks for the last sqn of the group first. The answer is that packet, or parity that says how short the
group is. A node that asked for all sqns would be limited as a child with excessive NAKs.
"""

from __future__ import annotations

from collections.abc import Iterable

import attrs

from pgm.core.recovery.missing_range import MissingRange
from pgm.core.structures.ranges import SqnRange, TimedRanges
from pgm.wire.parity import group_of


@attrs.frozen
class GroupProbe:
    """The probe for groups of `size` sqns. No group that has partly left the window is probed: no parity of it is made."""

    size: int

    def is_held(self, missing: TimedRanges[MissingRange], gap: MissingRange, trail: int) -> bool:
        """Return whether a range waits until the last sqn of its group is not missing any more."""
        return group_of(gap.first, self.size) >= trail and not self._has_last(gap) and self._lacks_last(missing, gap)

    def asked_first(
        self, missing: TimedRanges[MissingRange], gap: MissingRange, trail: int, most: int
    ) -> list[MissingRange]:
        """Cut and return up to `most` parts of a range to request: last sqns of groups, and parts that wait for no probe."""
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

    def is_freed(self, arrived: Iterable[SqnRange]) -> bool:
        """Return whether the ranges `arrived` contain the last sqn of a group."""
        return any(self._has_last(gap) for gap in arrived)

    def _has_last(self, gap: SqnRange) -> bool:
        return group_of(gap.first, self.size) < group_of(gap.end, self.size)

    def _lacks_last(self, missing: TimedRanges[MissingRange], gap: SqnRange) -> bool:
        """Return whether the last sqn of the group in which a range ends is missing."""
        return missing.at(group_of(gap.end, self.size) + self.size - 1) is not None
