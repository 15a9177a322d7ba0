"""Who may bring a stream: where the topology has a list of its sources, data and SPMs of others are dropped before any state is made.

It is addresses on the own segments that count, so it keeps out strays, not whoever forges an address.
"""

from __future__ import annotations

from collections.abc import Mapping

from pgm.wire.control_packets import Packet, Spm
from pgm.wire.formats import Nla
from pgm.wire.train import Data, Scattered

Allowed = Mapping[int, frozenset[Nla]]  # by data port, of streams that have a list
EVERYBODY: Allowed = {}


def packets_of_strangers(allowed: Allowed, item: Data | Scattered | Packet, peer: Nla) -> int:
    """How many packets an item has that must not be taken; 0 if it may be."""
    known = allowed.get(item.data_port)
    if known is None or peer in known or not isinstance(item, (Data, Scattered, Spm)):
        return 0
    return 1 if isinstance(item, Spm) else item.count
