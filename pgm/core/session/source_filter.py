"""Who may bring a stream: where the topology has a list of its sources, data and SPMs of others are dropped before any state is made.

It is addresses on the own segments that count, so it keeps out strays, not whoever forges an address.
"""

from __future__ import annotations

from collections.abc import Mapping

from pgm.wire.control_packets import Packet, Spm
from pgm.wire.formats import Nla
from pgm.wire.train import Data, DataWithGaps

SourceFilter = Mapping[int, frozenset[Nla]]  # by data port, of streams that have a list
ALL_SOURCES: SourceFilter = {}


def refused_packets(allowed: SourceFilter, item: Data | DataWithGaps | Packet, peer: Nla) -> int:
    """How many packets an item has that must not be taken; 0 if it may be."""
    known = allowed.get(item.data_port)
    if known is None or peer in known or not isinstance(item, (Data, DataWithGaps, Spm)):
        return 0
    return 1 if isinstance(item, Spm) else item.count
