"""What a core says of its sessions to whoever watches: one row each."""

from __future__ import annotations

import attrs


@attrs.frozen(kw_only=True)
class AckStatus:
    """Where an acknowledged stream stands at one node."""

    stable: int  # the newest sqn that everybody below, or this receiver, has
    members: int  # receivers that are waited for
    held_up_by: str = ""  # the receiver that is furthest behind
    parent: str = ""  # to whom this node acknowledges
    window: int = 0  # packets that the source may be ahead of `stable`
    acks: dict[str, int] = attrs.field(factory=dict)  # by child: the newest sqn it has, of the slowest few


@attrs.frozen(kw_only=True)
class CongestionStatus:
    """What the source of a stream with congestion control knows. Loss rates are shares, 0 to 1."""

    acker: str  # empty: none
    loss: float  # of the acker, as it says
    round_trip_ns: int  # to the acker, smoothed
    window: float  # packets
    worst_link: float  # that an element measured, as NAKs said
    worst_path: float  # from the source to an element, as NAKs said


@attrs.frozen(kw_only=True)
class LineStatus:
    """What one of several lines has brought of a session."""

    segment: str
    packets: int  # data packets, repairs left out
    first_packets: int  # of those, packets that no other line had brought
    lost_packets: int  # passed and not brought
    behind_ns: int  # behind the first line to bring a packet, smoothed
    is_down: bool  # it stands still while another goes on
    silent_ns: int


@attrs.frozen(kw_only=True)
class AskerStatus:
    """What one child has asked of a session."""

    address: str
    nak_packets: int
    nak_sqns: int
    braked: int = 0  # NAKs that were dropped
    is_crying: bool = False  # it asks all the time, and has a small budget of its own


@attrs.frozen(kw_only=True)
class SessionStatus:
    """One session at one node, now. Sqns are 64-bit; -1 lead means that nothing was sent yet."""

    tsi: str
    data_port: int
    state: str
    trail: int
    lead: int
    next_sqn: int = 0  # receivers: the next to deliver
    missing_sqns: int = 0
    pending_sqns: int = 0  # repairs owed
    held_octets: int = 0  # window or cache
    parent: str = ""
    silent_ns: int = 0
    children: dict[str, int] = attrs.field(
        factory=dict
    )  # by segment, as the last censuses estimate; empty without polls
    acked: AckStatus | None = None  # of acknowledged streams
    congestion: CongestionStatus | None = None  # of streams with congestion control, at the source
    counts: dict[str, int] = attrs.field(factory=dict)  # its share of the node's counters, without what is 0
    askers: list[AskerStatus] = attrs.field(factory=list)  # the children that asked for most
    lines: list[LineStatus] = attrs.field(factory=list)  # where several segments bring the session
