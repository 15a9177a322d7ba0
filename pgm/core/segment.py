"""Segments and channels: the place where a packet arrived, as one node sees it."""

from __future__ import annotations

import attrs

from pgm.wire.formats import Nla


@attrs.frozen
class Segment:
    """One multicast domain or unicast leg, and this node's place on it.

    On-LAN nodes have one segment that is both upstream and downstream. On a unicast leg, multicast packets are sent to
    each of `peers`, and every packet arrives by unicast.
    """

    index: int
    name: str
    address: Nla  # this node's own address; its identity on the segment
    group: Nla  # the unspecified address on a unicast leg
    upstream: bool
    downstream: bool
    peers: tuple[Nla, ...] | None = None  # all other nodes of a unicast leg; None on a multicast domain
    # The IP network of `address`, as in "10.0.2.0/24"; None if unknown. For the same segment, the plan and the socket may
    # report different values.
    subnet: str | None = attrs.field(default=None, eq=False)


@attrs.frozen
class Channel:
    """The way a packet arrived: its segment, and whether by multicast or unicast."""

    segment: Segment
    is_group: bool
