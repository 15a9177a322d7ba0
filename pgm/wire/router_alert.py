"""Selection of packets that carry the IP Router Alert option (W-30, RFC 8).

The option makes network elements on the way process a packet. Multicast packets that concern repair carry it: SPM, NCF,
RDATA, POLL, and the POLR that redirects (9.5.2.1). ODATA does not carry it, nor do packets that travel upstream, nor
unicast repairs of an off-tree repairer (9.5.3). An NCF with OPT_NBR_UNREACH carries it although it is unicast (15.3.2).
"""

from __future__ import annotations

from pgm.errors import WireError
from pgm.wire.control_packets import decode_control_untrusted
from pgm.wire.formats import TYPE_AT, PacketType
from pgm.wire.options import NbrUnreach, find

_ALERTING = frozenset({PacketType.SPM, PacketType.NCF, PacketType.RDATA, PacketType.POLL, PacketType.POLR})


def wants_router_alert(packet: memoryview, *, is_unicast: bool) -> bool:
    """Return whether a packet made by this node is sent with the option."""
    kind = packet[TYPE_AT]
    if not is_unicast:
        return kind in _ALERTING
    if kind != PacketType.NCF:
        return False
    try:
        return find(decode_control_untrusted(bytes(packet)).options, NbrUnreach) is not None
    except WireError:
        return False
