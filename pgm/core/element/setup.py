"""Fixed setup of an element: segments, parents, and settings of its role."""

from __future__ import annotations

import attrs

from pgm.core.named_children import NO_CHILDREN, NamedChildren
from pgm.core.recovery.redundant_lines import LineSetup
from pgm.core.segment import Segment
from pgm.core.session.signed_streams import NO_SIGNERS, StreamSigners
from pgm.core.session.source_filter import ALL_SOURCES, AllowedSources
from pgm.core.session.start_positions import BY_PARAMETERS, StartPositions
from pgm.core.source_names import NO_NAMES, SourceNames
from pgm.wire.formats import Nla


@attrs.frozen
class ElementSetup:
    """Settings of one aggregator or repairer from the topology."""

    up: Segment
    downs: tuple[Segment, ...]  # one of them is `up` in the on-LAN layout
    parents: tuple[Nla, ...] = ()
    repairers: tuple[tuple[Nla, ...], ...] = ()  # per downstream segment: they get NAKs before the parents
    partners: frozenset[Nla] = frozenset()  # addresses of the other relay of a standby pair
    is_standby: bool = False
    assist_rank: int = 0  # repairers only: how many other repairers of the segment assist before this one
    lines: tuple[LineSetup, ...] = ()  # further segments that bring the same streams
    allowed: AllowedSources = ALL_SOURCES  # the sources whose streams are accepted
    signers: StreamSigners = NO_SIGNERS  # verifiers of the SPMs of signed streams
    names: SourceNames = NO_NAMES
    keepers: tuple[Nla, ...] = ()  # upstream elements that may hold a late joiner's history
    siblings: tuple[Nla, ...] = ()  # repairers only: other repairers of the segment, asked before the parents
    starts: StartPositions = BY_PARAMETERS  # repairers only: where the archive ends
    children: NamedChildren = NO_CHILDREN
    asks_below_trail: bool = False  # some parent keeps more than the source's window

    @property
    def is_relay(self) -> bool:
        """Whether the node relays data from one segment to others."""
        return self.up not in self.downs

    @property
    def homes(self) -> dict[Nla, Segment]:
        """Return the downstream segment of each address in `repairers`."""
        repairers = self.repairers or ((),) * len(self.downs)
        return {address: down for down, local in zip(self.downs, repairers, strict=True) for address in local}
