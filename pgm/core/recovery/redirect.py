"""OPT_REDIRECT: what receivers and elements make of a repairer that offers itself (RFC 9.5.3, 9.5.4).

An offer counts only from who is offered: the sender of the POLR must have the address in it (SEC-05). It is tried with the next
NAK and forgotten when no NCF comes, so a false one costs a NAK_RPT_IVL. A receiver takes none from its own subnet: such a
repairer has lost what the receiver has lost; where the own subnet is not known, all are ignored.
"""

from __future__ import annotations

import ipaddress

from pgm.core.segment import Segment
from pgm.wire.control_packets import Polr
from pgm.wire.formats import Nla
from pgm.wire.options import Redirect, find


def offered(polr: Polr, peer: Nla) -> Nla | None:
    """The address that a POLR offers, if it is its sender's own."""
    redirect = find(polr.options, Redirect)
    return redirect.dlr_nla if redirect is not None and redirect.dlr_nla == peer else None


def is_elsewhere(nla: Nla, segment: Segment) -> bool:
    """Whether an address is known to lie outside of the subnet of this node's own."""
    if not segment.subnet:
        return False
    address, subnet = ipaddress.ip_address(nla), ipaddress.ip_network(segment.subnet, strict=False)
    return address.version == subnet.version and address not in subnet
