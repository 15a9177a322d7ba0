"""Filter of a stream's sources, if the topology lists them.

Data and SPMs of other addresses are dropped before any state is made. The filter compares addresses on this node's own
segments. It keeps out stray packets, and does not stop a forged address.
"""

from __future__ import annotations

from collections.abc import Mapping

from pgm.wire.control_packets import Packet, Spm
from pgm.wire.formats import Nla
from pgm.wire.train import Data, DataWithGaps

SourceFilter = Mapping[int, frozenset[Nla]]  # by data port, of streams that have a list
ALL_SOURCES: SourceFilter = {}


def refused_packets(allowed: SourceFilter, item: Data | DataWithGaps | Packet, peer: Nla) -> int:
    """Return the number of packets in an item that the filter refuses. Return 0 if the item may be taken."""
    known = allowed.get(item.data_port)
    if known is None or peer in known or not isinstance(item, (Data, DataWithGaps, Spm)):
        return 0
    return 1 if isinstance(item, Spm) else item.count
