"""What one process needs to know of the tree, and nothing more: the result of planning, the input of drivers and simulator."""

from __future__ import annotations

import enum

import attrs

from pgm.impairments import Impairment
from pgm.parameters import Parameters

Address = str  # an IP address in its usual spelling


class Role(enum.Enum):
    """What a node does."""

    SOURCE = "source"
    RECEIVER = "receiver"
    AGGREGATOR = "aggregator"
    REPAIRER = "repairer"


def spell_where(group: Address, port: int, transport: str) -> str:
    """Where what is for all goes, as people write it; without a group to each by unicast."""
    if transport == "ip":
        return f"{group or 'unicast'} over IP protocol 113"
    if not group:
        return f"unicast, port {port}"
    return f"[{group}]:{port}" if ":" in group else f"{group}:{port}"


@attrs.frozen
class SegmentPlan:
    """One segment as one node sees it. `address` is None for a receiver that takes its interface's address."""

    name: str
    group: Address  # the unspecified address on a unicast leg
    port: int
    unicast_port: int
    interface: str  # a name, an address or a CIDR
    address: Address | None
    upstream: bool
    downstream: bool
    impairment: Impairment = Impairment()  # losses injected into what this node reads here
    transport: str = "udp"  # or "ip": protocol 113 itself
    peers: tuple[Address, ...] | None = None  # of a unicast leg: everybody else there; None on a multicast domain

    @property
    def side(self) -> str:
        """Where it lies for the node: up, down, or both."""
        return "both" if self.upstream == self.downstream else "up" if self.upstream else "down"

    @property
    def where(self) -> str:
        """Where what is for all goes, as people write it."""
        if self.peers is not None:
            return spell_where("", self.unicast_port, self.transport)
        return spell_where(self.group, self.port, self.transport)


@attrs.frozen
class StreamPlan:
    """One stream as a node uses it."""

    name: str
    data_port: int
    order: str = "ordered"
    flow: str = "rate"
    framing: str = "plain"  # or "zeromq": messages of parts, framed as ZeroMQ does it
    source: str | None = None  # name of the node that sends it, if there is exactly one
    allowed: frozenset[Address] | None = None  # who may bring it to the node's segments; None: anybody
    parameters: Parameters | None = None  # of a source with several streams: what holds for this one


@attrs.frozen
class LinePlan:
    """A further segment that brings a node's streams, and whom to ask there."""

    segment: str
    parents: tuple[Address, ...] = ()
    repairers: tuple[Address, ...] = ()  # all that answer there


@attrs.frozen
class NodePlan:
    """One node, completely: addresses instead of names, numbers instead of profiles."""

    topology: str
    name: str
    role: Role
    segments: tuple[SegmentPlan, ...]
    streams: tuple[StreamPlan, ...]
    parameters: Parameters
    parents: tuple[Address, ...] = ()  # in order of preference, all on the upstream segment
    repairers: tuple[tuple[Address, ...], ...] = ()  # per downstream segment, asked before the parents
    partners: frozenset[Address] = (
        frozenset()
    )  # addresses of the other relay of a standby pair, on every shared segment
    is_standby: bool = False
    lines: tuple[LinePlan, ...] = ()  # beside the upstream segment
    local_repairers: frozenset[Address] = frozenset()  # repairers on a receiver's own segment
    keepers: tuple[Address, ...] = ()  # elements above, of which a late joiner's history may be had; never a source
    assist_rank: int = 0  # of an on-LAN repairer: how many others of its segment repair unasked before it does
    asks_below_trail: bool = False  # a parent is a repairer, which may hold more than the source's window
    telemetry: str = ""  # the folder for its events; none are written without
    record_directory: str | None = None  # where it records what it has
    reasons: tuple[tuple[str, str], ...] = ()  # parameter -> where its value comes from, for `pgm plan`

    @property
    def upstream(self) -> SegmentPlan:
        """The segment that the stream comes from; a source's only one."""
        return next((one for one in self.segments if one.upstream), self.segments[0])

    def parameters_of(self, stream: StreamPlan) -> Parameters:
        """What holds for one of the node's streams: its own at a source of several, the node's else."""
        return self.parameters if stream.parameters is None else stream.parameters

    @property
    def downstream(self) -> tuple[SegmentPlan, ...]:
        """The segments with children."""
        return tuple(one for one in self.segments if one.downstream)
