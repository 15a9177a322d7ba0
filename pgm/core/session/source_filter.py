"""Filter of a stream's sources, by the addresses that the topology knows.

Data and SPMs of other addresses are dropped before any state is made. The filter compares addresses on this node's own
segments. It keeps out stray packets and senders with an address of their own, and does not stop a forged address.
"""

from __future__ import annotations

from collections.abc import Mapping

from pgm.core.counters import Counters
from pgm.core.effects import NOTHING, Effects, Notice
from pgm.wire.control_packets import Packet, Spm
from pgm.wire.formats import Nla
from pgm.wire.train import Data, DataWithGaps

AllowedSources = Mapping[int, frozenset[Nla]]  # by data port, of streams whose senders are known
ALL_SOURCES: AllowedSources = {}
# Report again after this many times as many packets: an attacker fills no log.
_REPORT_FACTOR = 10


class SourceFilter:
    """Filter of one node. A notice tells of the first refused packets, and of ten times as many."""

    def __init__(self, allowed: AllowedSources, counters: Counters) -> None:
        self.is_active = bool(allowed)
        self._allowed = allowed
        self._counters = counters
        self._report_at = 1
        self._last: tuple[Nla, int] = ("", 0)  # sender and data port of the packet refused last

    def change(self, allowed: AllowedSources) -> None:
        """Permit other senders."""
        self.is_active, self._allowed = bool(allowed), allowed

    def refuses(self, item: Data | DataWithGaps | Packet, peer: Nla) -> bool:
        """Return whether an item of a sender is refused, and count its packets."""
        known = self._allowed.get(item.data_port)
        if known is None or peer in known or not isinstance(item, (Data, DataWithGaps, Spm)):
            return False
        self._counters.unlisted_packets += 1 if isinstance(item, Spm) else item.count
        self._last = peer, item.data_port
        return True

    def permits(self, data_port: int, peer: Nla) -> bool:
        """Return whether a sender may send data of a stream."""
        known = self._allowed.get(data_port)
        return known is None or peer in known

    def take_notice(self) -> Effects:
        """Return a notice if many more packets were refused since the last notice."""
        refused = self._counters.unlisted_packets
        if refused < self._report_at:
            return NOTHING
        self._report_at = _REPORT_FACTOR * refused
        peer, data_port = self._last
        return (
            Notice("unlisted-sender", f"{peer} is no source of data port {data_port}: {refused:,} packets dropped"),
        )
