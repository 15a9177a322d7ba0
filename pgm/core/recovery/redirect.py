"""OPT_REDIRECT: use of a repairer that offers itself (RFC 9.5.3, 9.5.4).

Receivers and elements share this module. An offer is valid only if the address in the POLR is that of its sender
(SEC-05). The next NAK goes to the offered repairer. An offer is forgotten when no NCF comes, so a false offer costs one
NAK_RPT_IVL. A receiver ignores offers from its own subnet, because a repairer there has lost the same packets. A
receiver that does not know its subnet ignores all offers.
"""

from __future__ import annotations

import ipaddress

from pgm.core.segment import Segment
from pgm.wire.control_packets import Polr
from pgm.wire.formats import Nla
from pgm.wire.options import Redirect, find


def offered(polr: Polr, peer: Nla) -> Nla | None:
    """Return the address that a POLR offers. Return None unless the address is that of the POLR's sender."""
    redirect = find(polr.options, Redirect)
    return redirect.dlr_nla if redirect is not None and redirect.dlr_nla == peer else None


def is_elsewhere(nla: Nla, segment: Segment) -> bool:
    """Return whether an address is known to lie outside this node's own subnet."""
    if not segment.subnet:
        return False
    address, subnet = ipaddress.ip_address(nla), ipaddress.ip_network(segment.subnet, strict=False)
    return address.version == subnet.version and address not in subnet
