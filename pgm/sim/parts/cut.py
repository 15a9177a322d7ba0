"""Cut of a tree at its relays, so that each part can run by itself.

A relay belongs to the part of its downstream segments. Parts therefore share only segments above relays, and everything
that crosses the cut takes the delay of a link.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import attrs

from pgm.errors import UsageError
from pgm.topology.node_plan import NodePlan, Role


@attrs.frozen
class Cut:
    """Names of the nodes of each part, and the segments with nodes in several parts."""

    parts: tuple[tuple[str, ...], ...]
    shared: frozenset[str]


def cut_at_relays(plans: Mapping[str, NodePlan], parts: int) -> Cut:
    """Cut a tree into at most `parts` parts with similar numbers of nodes. The first part has the sources."""
    homes = _Homes()
    for plan in plans.values():
        homes.unite(_home_segments(plan))
    units: dict[str, list[str]] = {}
    for name, plan in plans.items():
        units.setdefault(homes.find(_home_segments(plan)[0]), []).append(name)
    with_source = {homes.find(plan.segments[0].name) for plan in plans.values() if plan.role is Role.SOURCE}
    bins: list[list[str]] = [[] for _ in range(min(parts, max(1, len(units))))]
    # Sources first, then the largest units: each goes to the smallest part so far.
    for home, names in sorted(units.items(), key=lambda unit: (unit[0] not in with_source, -len(unit[1]))):
        target = bins[0] if home in with_source else min(bins, key=len)
        target += names
    full = tuple(tuple(names) for names in bins if names)
    return Cut(full, _shared(plans, full))


def _home_segments(plan: NodePlan) -> tuple[str, ...]:
    """Return the segments whose part a node belongs to: those below a relay, else all segments of the node."""
    below = tuple(segment.name for segment in plan.segments if segment.downstream and not segment.upstream)
    is_relay = plan.role in (Role.AGGREGATOR, Role.REPAIRER) and below
    return below if is_relay else tuple(segment.name for segment in plan.segments)


def _shared(plans: Mapping[str, NodePlan], parts: Sequence[Sequence[str]]) -> frozenset[str]:
    seen: dict[str, int] = {}
    shared = set()
    for number, names in enumerate(parts):
        for segment in {segment.name for name in names for segment in plans[name].segments}:
            if seen.setdefault(segment, number) != number:
                shared.add(segment)
    return frozenset(shared)


class _Homes:
    """Groups of segments that must stay together."""

    def __init__(self) -> None:
        self._above: dict[str, str] = {}

    def find(self, segment: str) -> str:
        """Return the segment that stands for a group."""
        above = self._above.setdefault(segment, segment)
        while above != segment:
            segment, above = above, self._above[above]
        return segment

    def unite(self, segments: Iterable[str]) -> None:
        """Join the groups of several segments."""
        first, *others = map(self.find, segments)
        for other in others:
            self._above[self.find(other)] = first


def lookahead_of(delays: Iterable[int]) -> int:
    """Return how far each part may run ahead: the least delay of a link that crosses the cut. Raises `UsageError`."""
    least = min(delays)
    if least <= 0:
        raise UsageError(
            "a tree without a delay above its relays cannot be cut",
            remedy="give --delay above 0, or run the tree in one part",
        )
    return least
