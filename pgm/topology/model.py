"""The topology file as values: what the file says, typed, with names not yet resolved.

Every field that a file may write carries a `FileKey`, from which the loader takes the names it knows and
`docs/reference/topology.md` is printed. Fields that a file must write have a default here all the same: the loader
reports what is missing and goes on, so that all errors come at once.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from typing import Any, Literal, NewType

import attrs

from pgm.impairments import Impairment
from pgm.topology.addresses import AddressPool, is_loopback
from pgm.topology.locate import KeyLines
from pgm.topology.node_plan import Address, Role, spell_where
from pgm.units import MILLISECOND, SECOND

VERSION = 1
DEFAULT_PORT = 3056

Port = NewType("Port", int)
Count = NewType("Count", int)
Duration = NewType("Duration", int)  # ns
RoundTrip = NewType("RoundTrip", int)  # ns
Rate = NewType("Rate", int)  # octets/s
CacheOctets = NewType("CacheOctets", int)
CacheSeconds = NewType("CacheSeconds", int)  # ns
RecordOctets = NewType("RecordOctets", int)
RecordSeconds = NewType("RecordSeconds", int)  # ns
SegmentOctets = NewType("SegmentOctets", int)
Host = NewType("Host", str)  # an Address; apart from str for the loader
Interface = NewType("Interface", str)
Profile = NewType("Profile", str)

ParameterValue = int | float | bool | str
Overrides = NewType("Overrides", Mapping[str, ParameterValue])  # rows of `pgm.parameters.ROWS` -> value
NOTHING_SET = Overrides({})


@attrs.frozen
class FileKey:
    """One key of the file: how to write it, what it means, whether it must be there."""

    example: str
    doc: str
    is_required: bool = False
    unless: str = ""  # a switch of the same table that does away with the need


def _key(example: str, doc: str, *, default: Any = None, required: bool = False, unless: str = "") -> Any:
    return attrs.field(default=default, metadata={"key": FileKey(example, doc, required, unless)})


def keys_of(table: type[attrs.AttrsInstance]) -> dict[str, FileKey]:
    """The keys that the file may write in this table."""
    return {field.name: field.metadata["key"] for field in attrs.fields(table) if "key" in field.metadata}


# One key of the file a line, so that the classes read as tables.
# fmt: off
_LOSS = '{ loss = "2%", burst_loss = "1%", burst_length = 8 }'
_PARAMETERS = '{ nak_bo_ivl = "20ms" }'


@attrs.frozen
class WindowTable:
    """A transmit window, in whichever measure the file chose: the parameter it sets, and its value."""

    key: str  # txw_secs, txw_bytes or txw_sqns
    value: int


@attrs.frozen
class NodePlace:
    """A node's seat on one segment."""

    segment: str = _key('"core"', "Name of the segment.", default="", required=True)
    address: Host | None = _key('"10.0.0.12"', "The node's own address there.", required=True)
    loss: Impairment | None = _key(_LOSS, "Losses injected into what the node reads there, instead of the segment's.")


@attrs.frozen
class LineTable:
    """A further segment for the streams of a node."""

    segment: str = _key('"line-b"', "Name of the segment.", default="", required=True)
    address: Host | None = _key('"10.0.7.12"', "The node's own address there.")
    addresses: AddressPool | None = _key('"127.0.7.10-127.0.7.13"', "Of a pattern: addresses there, in the order of the numbers.")
    parents: tuple[str, ...] = _key('["relay-b"]', "Nodes to ask for repairs there, behind those of the lines before.", default=())
    loss: Impairment | None = _key(_LOSS, "Losses injected into what the node reads there, instead of the segment's.")

    @property
    def place(self) -> NodePlace:
        """The node's seat there; of a pattern without the address."""
        return NodePlace(self.segment, self.address, self.loss)


@attrs.frozen
class CacheTable:
    """How much a repairer keeps."""

    bytes: CacheOctets | None = _key('"4GiB"', "Octets, all sessions together; sets `cache_bytes`.")
    seconds: CacheSeconds | None = _key("60", "Seconds a packet is kept; sets `cache_secs`.")


@attrs.frozen
class RecordTable:
    """An archive of what a node has."""

    directory: str = _key('"/var/lib/pgm/floor-2"', "Where: a directory of its own for each node, made if need be.", default="", required=True)
    bytes: RecordOctets | None = _key('"100GiB"', "Octets kept; sets `record_bytes`.")
    seconds: RecordSeconds | None = _key("604800", "Seconds kept; sets `record_secs`.")
    segment_bytes: SegmentOctets | None = _key('"256MiB"', "Octets of a segment; sets `record_segment_bytes`.")


@attrs.frozen
class StreamTable:
    """One flow of messages."""

    data_port: Port = _key("7500", "PGM's data-destination port: receivers tell streams apart by it.", default=0, required=True)
    rate: Rate | None = _key('"400Mbit/s"', "What the source may send; sets its `txw_max_rte`. Elements add up the streams they carry.")
    window: WindowTable | None = _key('"10s", "256MiB" or 20000', "Transmit window in time, octets or packets; sets `txw_secs`, `txw_bytes` or `txw_sqns` of the source.")
    order: Literal["ordered", "unordered", "unreliable"] = _key('"ordered"', "What receivers deliver: in order, as it comes, or without repair.", default="ordered")
    flow: Literal["rate", "yield", "acked", "pgmcc"] = _key('"rate"', "What slows the source down: its rate alone, receivers that ask for too much, acknowledgements, or congestion control.", default="rate")
    framing: Literal["plain", "batch", "zeromq"] = _key('"batch"', "What the packets carry: messages as they are; batches, where messages share packets and have subjects; or ZeroMQ's `epgm` messages, which may have parts.", default="plain")
    segment: str = _key('"core"', "Segment on which its source sits; only a check.", default="")
    sources: tuple[str, ...] = _key('["exchange", "10.0.0.7"]', "Who may send it: sources of the file by name, others by address. Data and SPMs that come from anybody else, the file's elements aside, are dropped and counted (`unlisted_packets`). Without it anybody may.", default=())
    parameters: Overrides = _key(_PARAMETERS, "Parameters of every node that carries the stream.", default=NOTHING_SET)
    name: str = ""


@attrs.frozen
class SegmentTable:
    """One multicast domain, or one unicast leg."""

    group: Host = _key('"239.192.0.1" or "ff15::1"', "Multicast group, IPv4 or IPv6.", default="", required=True, unless="unicast")
    port: Port = _key("3056", "UDP port of the group.", default=DEFAULT_PORT)
    unicast_port: Port | None = _key("3055", "UDP port of the nodes' own addresses; the default is `port`.")
    interface: Interface = _key('"10.0.0.0/24"', "Interface by name, by address, or by the network it is on. On a unicast leg, where each end may have another, the node's address finds it.", default="", required=True, unless="unicast")
    transport: Literal["udp", "ip"] = _key('"ip"', "What carries the packets: `udp`, or `ip`, which is IP protocol 113 itself, with router alert; it needs CAP_NET_RAW and has no ports.", default="udp")
    unicast: bool = _key("true", "A leg across a network without multicast: no group, and what is for all goes to every other node of the segment by itself. `rate` is that of each copy.", default=False)
    loss: Impairment | None = _key(_LOSS, "Losses injected into what every node reads here.")
    parameters: Overrides = _key(_PARAMETERS, "Parameters of every node on the segment.", default=NOTHING_SET)
    name: str = ""

    @property
    def own_port(self) -> int:
        """The UDP port of the nodes' own addresses."""
        return self.port if self.unicast_port is None else self.unicast_port

    @property
    def where(self) -> str:
        """Where what is for all goes, as people write it."""
        if self.unicast:
            return spell_where("", self.own_port, self.transport)
        return spell_where(self.group, self.port, self.transport)

    @property
    def needs_addresses(self) -> bool:
        """Whether receivers cannot do without an address of their own either."""
        return self.unicast or is_loopback(self.interface)


@attrs.frozen
class NodeTable:
    """One process, or a pattern of any number of receivers."""

    role: Role = _key('"repairer"', "`source`, `receiver`, `aggregator` or `repairer`.", default=Role.RECEIVER, required=True)
    segment: str = _key('"core"', "The one segment of a source, a receiver or an on-LAN element.", default="")
    address: Host | None = _key('"10.0.0.11"', "Its own address there. Only receivers can do without, and neither on loopback nor on a unicast leg.")
    upstream: NodePlace | None = _key('{ segment = "core", address = "10.0.0.12" }', "Of a relay: the side the data come from.")
    downstream: tuple[NodePlace, ...] = _key('[{ segment = "floor-2", address = "10.0.2.1" }]', "Of a relay: the sides it carries them to.", default=())
    streams: tuple[str, ...] = _key('["quotes"]', "What a source sends, a receiver takes, an element carries. All streams where a receiver or an element says nothing.", default=())
    parents: tuple[str, ...] = _key('["floor-2-aggregator", "exchange"]', "Nodes to ask for repairs, in order of preference. Each must answer on the node's upstream segment.", default=())
    repairers: tuple[str, ...] = _key('["floor-2-repairer"]', "Of an aggregator: repairers below it, asked before its parents.", default=())
    lines: tuple[LineTable, ...] = _key('[{ segment = "line-b", address = "10.0.7.12", parents = ["relay-b"] }]', "Further segments with the same streams (docs/guide/ab-feeds.md): a receiver or repairer takes whichever copy comes first; a source sends on all, and a repairer that does not relay repairs on all.", default=())
    standby_of: str = _key('"floor-2-aggregator"', "The relay this one stands in for, on the same segments.", default="")
    loss: Impairment | None = _key(_LOSS, "Losses injected into what the node reads, instead of the segment's.")
    cache: CacheTable | None = _key('{ bytes = "4GiB", seconds = 60 }', "Of a repairer: how much it keeps.")
    record: RecordTable | None = _key('{ directory = "/var/lib/pgm/floor-2", bytes = "100GiB" }', "Of a repairer: the archive in which it records what it keeps (docs/guide/archive.md). Of a receiver: where `pgm record` does.")
    count: Count | None = _key("4", "Of a pattern: how many are started when nobody says otherwise; the default is 1.")
    addresses: AddressPool | None = _key('"127.0.2.10-127.0.2.13"', "Of a pattern: addresses in the order of the numbers, as a range or a list.")
    parameters: Overrides = _key(_PARAMETERS, "Parameters of this node alone.", default=NOTHING_SET)
    name: str = ""

    @property
    def is_pattern(self) -> bool:
        """Whether the name stands for any number of nodes."""
        return "*" in self.name

    @property
    def instances(self) -> int:
        """How many nodes this entry starts when nobody says otherwise."""
        if not self.is_pattern:
            return 1
        return 1 if self.count is None else self.count

    @property
    def is_relay(self) -> bool:
        """Whether the node carries data from one segment to others."""
        return self.upstream is not None and bool(self.downstream)

    @property
    def up(self) -> NodePlace | None:
        """Where the data come from, and where the node asks; None for a source."""
        if self.upstream is not None:
            return self.upstream
        return None if self.role is Role.SOURCE or not self.segment else NodePlace(self.segment, self.address, self.loss)

    @property
    def ups(self) -> tuple[NodePlace, ...]:
        """All seats that the data come from, the first of them `up`."""
        up = self.up
        return () if up is None else (up, *(line.place for line in self.lines))

    @property
    def downs(self) -> tuple[NodePlace, ...]:
        """Where the node answers; nowhere for a receiver. On-LAN it is where it asks, on all of its lines."""
        if self.downstream:
            return self.downstream
        if self.role is Role.RECEIVER or not self.segment:
            return ()
        more = (line.place for line in self.lines)
        return (NodePlace(self.segment, self.address, self.loss), *more)

    def parents_on(self, segment: str) -> tuple[str, ...]:
        """Whom it asks on a segment that the data come from."""
        if self.up is not None and segment == self.up.segment:
            return self.parents
        return next((line.parents for line in self.lines if line.segment == segment), ())

    @property
    def places(self) -> tuple[NodePlace, ...]:
        """Every seat, the upstream ones first, an on-LAN element's only once."""
        return (*(up for up in self.ups if up not in self.downs), *self.downs)

    def address_below(self, segment: str) -> Address | None:
        """The address by which it answers on a segment."""
        return next((place.address for place in self.downs if place.segment == segment), None)

    def addresses_on(self, segment: str) -> tuple[Address, ...]:
        """Every address it is known to have on a segment: of a pattern, those of its `count` nodes."""
        if self.addresses is not None and self.segment == segment:
            return tuple(self.addresses.address(index) for index in range(min(self.instances, self.addresses.size)))
        for line in self.lines:
            if line.addresses is not None and line.segment == segment:
                return tuple(line.addresses.address(index) for index in range(min(self.instances, line.addresses.size)))
        return tuple(place.address for place in self.places if place.segment == segment and place.address is not None)


@attrs.frozen
class Topology:
    """The whole tree."""

    version: int = _key("1", "Version of the format.", default=VERSION, required=True)
    name: str = _key('"trading-floor"', "Name of the tree.", default="", required=True)
    profile: Profile = _key('"lan"', "Computes the timers: `lan`, `wan`, `lossy` or `legacy`.", default="lan")
    rtt: RoundTrip = _key('"1ms"', "Round trip within a subnet and to the next tier, for the profile.", default=MILLISECOND)
    repair_budget: Duration = _key('"10s"', "How long a repair may take before the packet is given up, for the profile.", default=10 * SECOND)
    telemetry: str = _key('"/var/lib/pgm/telemetry"', "Folder in which every node writes its protocol events as Parquet files (docs/guide/telemetry.md); without it none are written.", default="")
    parameters: Overrides = _key(_PARAMETERS, "Parameters of every node.", default=NOTHING_SET)
    streams: Mapping[str, StreamTable] = _key("", "The flows of messages, by name.", default=attrs.Factory(dict))
    segments: Mapping[str, SegmentTable] = _key("", "The multicast domains and unicast legs, by name.", default=attrs.Factory(dict))
    nodes: Mapping[str, NodeTable] = _key("", "The processes, by name; one `*` in a name makes it a pattern of receivers.", default=attrs.Factory(dict))
    path: str = "<topology>"
    lines: KeyLines = attrs.field(factory=KeyLines, eq=False, repr=False)

    def version_on(self, segment: str) -> int | None:
        """4 or 6: of the segment's group, on a unicast leg of the first address there; None if nobody says."""
        group = self.segments[segment].group
        known = (address for node in self.nodes.values() for address in node.addresses_on(segment))
        found = group or next(known, None)
        return None if found is None else ipaddress.ip_address(found).version
