"""Plan of one process: the result of planning, and the input of drivers and simulator."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Literal

import attrs

from pgm.impairments import Impairment
from pgm.parameters import Parameters
from pgm.trust.node_identity import NodeIdentity
from pgm.trust.public_keys import PublicKeys

Address = str  # an IP address in its usual spelling
Order = Literal["ordered", "unordered", "unreliable"]
Flow = Literal["rate", "yield", "acked", "pgmcc"]
Verify = Literal["before", "after"]
Framing = Literal["plain", "batch", "zeromq"]


class Role(enum.Enum):
    """Role of a node in the tree."""

    SOURCE = "source"
    RECEIVER = "receiver"
    AGGREGATOR = "aggregator"
    REPAIRER = "repairer"


def spell_where(group: Address, port: int, transport: str) -> str:
    """Return the destination of packets for all nodes, spelled for people. Without a group it is unicast."""
    if transport == "ip":
        return f"{group or 'unicast'} over IP protocol 113"
    if not group:
        return f"unicast, port {port}"
    return f"[{group}]:{port}" if ":" in group else f"{group}:{port}"


@attrs.frozen
class SegmentPlan:
    """One segment as one node sees it. `address` is None for a receiver that uses the address of its interface."""

    name: str
    group: Address  # the unspecified address on a unicast leg
    port: int
    unicast_port: int
    interface: str  # a name, an address or a network in CIDR notation
    address: Address | None
    upstream: bool
    downstream: bool
    impairment: Impairment = Impairment()  # losses injected into the packets that this node reads on the segment
    transport: str = "udp"  # or "ip" for IP protocol 113
    peers: tuple[Address, ...] | None = None  # on a unicast leg all other nodes; None on a multicast domain
    # Whether nodes may ask this node on the group's port instead of `unicast_port`: for a source that no file describes.
    hears_group_port: bool = False

    @property
    def side(self) -> str:
        """Return the side of the segment from the node: up, down, or both."""
        return "both" if self.upstream == self.downstream else "up" if self.upstream else "down"

    @property
    def where(self) -> str:
        """Return the destination of packets for all nodes, spelled for people."""
        if self.peers is not None:
            return spell_where("", self.unicast_port, self.transport)
        return spell_where(self.group, self.port, self.transport)


_MOST_READERS = 4  # named in a description


@attrs.frozen
class Protection:
    """Protection of a stream by keys, as all descriptions tell it."""

    signed: Literal["", "packets"] = ""
    readers: tuple[str, ...] | None = None  # names of the nodes that may read a sealed stream; None: all nodes may
    is_authenticated: bool = False
    verify: str = "before"  # or "after": packets are delivered before their proof

    @property
    def text(self) -> str:
        """Return the protection as text for people."""
        words = "signed" if self.signed else "clear"
        if self.readers is not None:
            more = len(self.readers) - _MOST_READERS
            named = ", ".join(self.readers[:_MOST_READERS]) + (f" and {more} more" if more > 0 else "")
            words += f" and sealed for {named or 'no node'}"
        words += ", verified after delivery" if self.verify == "after" else ""
        return words + (", authenticated control" if self.is_authenticated else "")

    def row(self) -> dict[str, str | bool | int | None]:
        """Return the protection for scripts. `readers` is a number, None for a stream that all nodes may read."""
        return {
            "text": self.text,
            "signed": self.signed,
            "sealed": self.readers is not None,
            "readers": None if self.readers is None else len(self.readers),
            "authenticated": self.is_authenticated,
            "verify": self.verify,
        }


CLEAR = Protection()


@attrs.frozen
class StreamPlan:
    """One stream as a node uses it."""

    name: str
    data_port: int
    order: Order = "ordered"
    flow: Flow = "rate"
    framing: Framing = "plain"
    sources: tuple[str, ...] = ()  # names of the file's nodes that send it
    allowed: frozenset[Address] | None = None  # senders permitted on the node's segments; None: all
    signers: tuple[PublicKeys, ...] | None = None  # keys of the sources that sign their SPMs; None: an unsigned stream
    verify: Verify = "before"  # whether packets of a signed stream are delivered before they are proved
    # keys of the nodes that may read the stream; None: a stream in the clear
    readers: tuple[PublicKeys, ...] | None = attrs.field(default=None, repr=False)
    # Keys of all nodes of the file by their addresses, if requests need codes; None: they need none.
    known_keys: Mapping[Address, tuple[PublicKeys, ...]] | None = attrs.field(default=None, hash=False, repr=False)
    parameters: Parameters | None = None  # for a source with several streams: the parameters of this stream
    protection: Protection = CLEAR  # for descriptions

    @property
    def is_proved(self) -> bool:
        """Whether the packets of the stream are proved."""
        return self.signers is not None


@attrs.frozen
class LinePlan:
    """Further segment that brings a node's streams, with its parents."""

    segment: str
    parents: tuple[Address, ...] = ()
    repairers: tuple[Address, ...] = ()  # all repairers that answer on the segment


@attrs.frozen
class ChildrenPlan:
    """Nodes that the topology names on a node's downstream segments."""

    addresses: frozenset[Address] = frozenset()
    elements: frozenset[Address] = frozenset()  # aggregators and repairers among them
    are_all: bool = False  # every receiver there has a known address, so no other address is a member


@attrs.frozen
class NodePlan:
    """Complete plan of one node, with addresses instead of names and numbers instead of profiles."""

    topology: str
    name: str
    role: Role
    segments: tuple[SegmentPlan, ...]
    streams: tuple[StreamPlan, ...]
    parameters: Parameters
    parents: tuple[Address, ...] = ()  # in order of preference, all on the upstream segment
    repairers: tuple[tuple[Address, ...], ...] = ()  # per downstream segment; these receive NAKs before the parents
    partners: frozenset[Address] = (
        frozenset()
    )  # addresses of the other relay of a standby pair, on every shared segment
    is_standby: bool = False
    lines: tuple[LinePlan, ...] = ()  # beside the upstream segment
    local_repairers: frozenset[Address] = frozenset()  # repairers on a receiver's own segment
    local_relays: frozenset[Address] = frozenset()  # aggregators that relay to the segment, and repair what they keep
    keepers: tuple[Address, ...] = ()  # elements above that can serve history to a late joiner; never a source
    assist_rank: int = 0  # for an on-LAN repairer: number of repairers on its segment that assist before it
    siblings: tuple[Address, ...] = ()  # for an on-LAN repairer: others of its segment, asked before the parents
    children: ChildrenPlan = ChildrenPlan()
    asks_below_trail: bool = False  # some server is a repairer, whose cache may exceed the source's window
    telemetry: str = ""  # folder for events; empty: no events are written
    tape: str = ""  # folder for tapes of the inputs; empty: none is kept
    record_directory: str | None = None  # directory of the archive
    record_service: str = ""  # address of the range service of the archive; empty: the node starts none
    archives: tuple[str, ...] = ()  # addresses of the range services for a receiver or recorder, the nearest first
    cache_directory: str | None = (
        None  # folder of the cache file; empty: no file; None: that of the systemd unit, if any
    )
    identity: NodeIdentity = NodeIdentity()
    digest: str = attrs.field(default="", eq=False)  # of the topology file
    file: str = attrs.field(default="", eq=False)  # topology file, which the node reads again on SIGHUP
    reasons: tuple[tuple[str, str], ...] = ()  # parameter -> origin of its value, for `pgm plan`

    @property
    def upstream(self) -> SegmentPlan:
        """Return the segment that brings the streams. For a source it is the first segment."""
        return next((segment for segment in self.segments if segment.upstream), self.segments[0])

    @property
    def may_share_address(self) -> bool:
        """Return whether other processes may have the node's address and port.

        Packets for a source name its TSI, and packets for a receiver a data port. Packets for an element name neither.
        """
        return self.role in (Role.SOURCE, Role.RECEIVER)

    def reads(self, stream: StreamPlan) -> bool:
        """Return whether the node gets a stream in the clear: the stream is not sealed, or the node is a reader."""
        return stream.readers is None or not set(self.identity.listed).isdisjoint(stream.readers)

    @property
    def protection_text(self) -> str:
        """Return the end of the node's start line: the protection of each stream. Empty if all streams are clear."""
        if all(stream.protection == CLEAR for stream in self.streams):
            return ""
        return "".join(f"; stream {stream.name}: {stream.protection.text}" for stream in self.streams)

    def parameters_of(self, stream: StreamPlan) -> Parameters:
        """Return the parameters of a stream, which only a source with several streams has apart from its node."""
        return self.parameters if stream.parameters is None else stream.parameters

    @property
    def downstream(self) -> tuple[SegmentPlan, ...]:
        """Return the segments with children."""
        return tuple(segment for segment in self.segments if segment.downstream)
