"""Which packets want the IP Router Alert option, so that network elements on the way look at them (W-30, RFC 8).

What is multicast and concerns repair: SPM, NCF, RDATA, POLL, and the POLR that redirects (9.5.2.1). Data do not, nor
what travels upstream, nor what an off-tree repairer answers by unicast (9.5.3); an NCF that says NBR_UNREACH does
although it is unicast (15.3.2).
"""

from __future__ import annotations

from pgm.errors import WireError
from pgm.wire.control_packets import decode_control_untrusted
from pgm.wire.formats import TYPE_AT, PacketType
from pgm.wire.options import NbrUnreach, find

_ALERTING = frozenset({PacketType.SPM, PacketType.NCF, PacketType.RDATA, PacketType.POLL, PacketType.POLR})


def wants_router_alert(packet: memoryview, *, is_unicast: bool) -> bool:
    """Whether a packet of our own making goes out with the option."""
    kind = packet[TYPE_AT]
    if not is_unicast:
        return kind in _ALERTING
    if kind != PacketType.NCF:
        return False
    try:
        return find(decode_control_untrusted(bytes(packet)).options, NbrUnreach) is not None
    except WireError:
        return False
