"""Where a packet arrived: segments and channels, as one node sees them."""

from __future__ import annotations

import attrs

from pgm.wire.formats import Nla


@attrs.frozen
class Segment:
    """One multicast domain, or unicast leg, and this node's place on it. On-LAN nodes have one that is both up and down.

    On a unicast leg what is for all goes to each of `peers`, and everything arrives by unicast.
    """

    index: int
    name: str
    address: Nla  # this node's own; its identity on the segment
    group: Nla  # the unspecified address on a unicast leg
    upstream: bool
    downstream: bool
    peers: tuple[Nla, ...] | None = None  # everybody else on a unicast leg; None on a multicast domain
    # The IP network that `address` is in, as in "10.0.2.0/24"; None where it is not known. Plan and socket may know it
    # differently, of the same segment.
    subnet: str | None = attrs.field(default=None, eq=False)


@attrs.frozen
class Channel:
    """How a packet arrived: on which segment, and whether by its group or by unicast to this node."""

    segment: Segment
    is_group: bool
