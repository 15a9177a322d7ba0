"""Status of a core's sessions for operators: one row per session."""

from __future__ import annotations

from typing import NamedTuple

import attrs

from pgm.wire.formats import Tsi


class SessionEdges(NamedTuple):
    """How far one session has come at one node, without the cost of a `SessionStatus`. Sqns are 64-bit."""

    tsi: Tsi
    data_port: int
    trail: int
    lead: int  # -1: nothing was sent yet


@attrs.frozen(kw_only=True)
class AckLag:
    """Distance of one child from the newest packet: a receiver, or an element that speaks for a branch of the tree."""

    address: str
    lag: int  # packets that are known to be sent and not acknowledged
    members: int  # receivers that the child speaks for
    is_branch: bool
    held_up_by: str  # the receiver of the branch that is furthest behind


@attrs.frozen(kw_only=True)
class AckStatus:
    """Progress of an acknowledged stream at one node."""

    stable: int  # the newest sqn up to which every receiver below, or this receiver, has taken everything
    members: int  # receivers whose acks are awaited
    held_up_by: str = ""  # the receiver that is furthest behind
    parent: str = ""  # the node that receives this node's acks
    window: int = 0  # packets that the source may be ahead of `stable`
    acks: dict[str, int] = attrs.field(factory=dict)  # by child: the newest sqn it has, for the slowest few
    lag: int = 0  # packets that are known to be sent and not stable here
    untaken: int = 0  # receivers: packets that wait for the application
    lags: list[AckLag] = attrs.field(factory=list)  # of the slowest children


@attrs.frozen(kw_only=True)
class CongestionStatus:
    """Congestion control of a stream, at its source. Loss rates are shares, 0 to 1."""

    acker: str  # empty: none
    loss: float  # reported by the acker
    round_trip_ns: int  # to the acker, smoothed
    window: float  # packets
    worst_link: float  # measured by an element, as NAKs reported
    worst_path: float  # from the source to an element, as NAKs reported


@attrs.frozen(kw_only=True)
class LineStatus:
    """Progress of a session on one of several lines."""

    segment: str
    packets: int  # data packets without repairs
    first_packets: int  # packets that no other line had brought before
    lost_packets: int  # packets that the line passed but did not bring
    behind_ns: int  # behind the first line to bring a packet, smoothed
    is_down: bool  # the line stands still while another advances
    silent_ns: int


@attrs.frozen(kw_only=True)
class AskerStatus:
    """Requests of one child for one session."""

    address: str
    nak_packets: int
    nak_sqns: int
    braked: int = 0  # NAKs that were dropped
    has_excess_naks: bool = False  # the child sends excessive NAKs, and has a small budget of its own


@attrs.frozen(kw_only=True)
class SessionStatus:
    """One session at one node, now. Sqns are 64-bit. A lead of -1 means that nothing was sent yet."""

    tsi: str
    source: str  # the name of its node, or its GSI
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
    file: str = ""  # digests of the source's topology file and of its own part of that; empty if its SPMs have none
    verified_ns: int = -1  # since the first valid signature of the source; -1: nothing of the session is verified here
    children: dict[str, int] = attrs.field(factory=dict)  # by segment, as the last polls estimate; empty without polls
    acked: AckStatus | None = None  # acknowledged streams only
    congestion: CongestionStatus | None = None  # streams with congestion control, at the source
    counts: dict[str, int] = attrs.field(factory=dict)  # the session's share of the node's counters, without zeros
    askers: list[AskerStatus] = attrs.field(factory=list)  # the children that sent the most requests
    lines: list[LineStatus] = attrs.field(factory=list)  # only if several segments bring the session
