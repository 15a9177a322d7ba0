"""The fixed setup of an element: segments, parents, timers of its role."""

from __future__ import annotations

import attrs

from pgm.core.recovery.redundant_lines import LineSetup
from pgm.core.segment import Segment
from pgm.core.session.source_filter import ALL_SOURCES, SourceFilter
from pgm.wire.formats import Nla


@attrs.frozen
class ElementSetup:
    """What the topology says about one aggregator or repairer."""

    up: Segment
    downs: tuple[Segment, ...]  # one of them is `up` in the on-LAN layout
    parents: tuple[Nla, ...] = ()
    repairers: tuple[tuple[Nla, ...], ...] = ()  # per downstream segment: asked before the parents
    partners: frozenset[Nla] = frozenset()  # addresses of the other relay of a standby pair
    is_standby: bool = False
    assist_rank: int = 0  # of a repairer: how many others of its segment repair unasked before it does
    lines: tuple[LineSetup, ...] = ()  # further segments that bring the same streams
    allowed: SourceFilter = ALL_SOURCES  # who may bring streams
    keepers: tuple[Nla, ...] = ()  # elements above, of which a late joiner's history may be had
    asks_below_trail: bool = False  # some parent keeps more than the source's window

    @property
    def is_relay(self) -> bool:
        """Whether the node carries data from one segment to others."""
        return self.up not in self.downs
