"""Typed values of the topology file, with names not yet resolved.

Every field that a file may set carries a `FileKey`. The loader takes the known names from these keys, and
`docs/reference/topology.md` is printed from them. Required fields have a default here too: the loader reports a missing field and
continues, so that all errors come at once.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from typing import Any, Literal, NewType

import attrs

from pgm.impairments import Impairment
from pgm.topology.addresses import AddressPool, is_loopback
from pgm.topology.locate import KeyLines
from pgm.topology.node_plan import Address, Flow, Framing, Order, Role, Verify, spell_where
from pgm.trust.public_keys import PublicKeys
from pgm.units import MILLISECOND, SECOND

VERSION = 1
DEFAULT_PORT = 3056
DEFAULT_AGENT_PORT = 9765
DEFAULT_PROBE_PORT = 9766

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
KeyLists = NewType("KeyLists", Mapping[str, tuple[PublicKeys, ...]])  # node -> current keys, then the next ones
Revocations = NewType("Revocations", Mapping[str, str])  # id of keys -> reason


@attrs.frozen
class FileKey:
    """One key of the file: an example, its meaning, and whether the key is required."""

    example: str
    doc: str
    is_required: bool = False
    unless: str = ""  # a switch of the same table that makes the key optional


def _key(example: str, doc: str, *, default: Any = None, required: bool = False, unless: str = "") -> Any:
    return attrs.field(default=default, metadata={"key": FileKey(example, doc, required, unless)})


def keys_of(table: type[attrs.AttrsInstance]) -> dict[str, FileKey]:
    """Return the keys that a file may set in this table, by name."""
    return {field.name: field.metadata["key"] for field in attrs.fields(table) if "key" in field.metadata}


# Each line is one key of the file, so that the classes read as tables.
# fmt: off
_LOSS = '{ loss = "2%", burst_loss = "1%", burst_length = 8 }'
_PARAMETERS = '{ nak_bo_ivl = "20ms" }'


@attrs.frozen
class WindowTable:
    """Transmit window in the measure of the file: the parameter that it sets, and the value."""

    key: str  # txw_secs, txw_bytes or txw_sqns
    value: int


@attrs.frozen
class NodePlace:
    """Place of a node on one segment."""

    segment: str = _key('"core"', "Name of the segment.", default="", required=True)
    address: Host | None = _key('"10.0.0.12"', "The node's own address on the segment.", required=True)
    loss: Impairment | None = _key(_LOSS, "Losses injected into the packets that the node reads on the segment, instead of the segment's own `loss`.")


@attrs.frozen
class LineTable:
    """Further segment for the streams of a node."""

    segment: str = _key('"line-b"', "Name of the segment.", default="", required=True)
    address: Host | None = _key('"10.0.7.12"', "The node's own address on the segment.")
    addresses: AddressPool | None = _key('"127.0.7.10-127.0.7.13"', "For a pattern: addresses on the segment, in the order of the nodes' numbers.")
    parents: tuple[str, ...] = _key('["relay-b"]', "Parents on the segment: the nodes that receive the NAKs, after the parents of earlier lines.", default=())
    loss: Impairment | None = _key(_LOSS, "Losses injected into the packets that the node reads on the segment, instead of the segment's own `loss`.")

    @property
    def place(self) -> NodePlace:
        """Return the node's place on the segment. A pattern has no address in it."""
        return NodePlace(self.segment, self.address, self.loss)


@attrs.frozen
class CacheTable:
    """Limits of a repairer's cache, and its file."""

    bytes: CacheOctets | None = _key('"4GiB"', "Octets of the cache, all sessions together. The key sets `cache_bytes`.")
    seconds: CacheSeconds | None = _key("60", "Seconds that the cache keeps a packet. The key sets `cache_secs`.")
    directory: str | None = _key('"/dev/shm/pgm"', "Folder of the cache file, from which the next process of the node restores the cache (docs/guide/operations.md). The folder should be in memory. The default is the runtime directory of the node's systemd unit, and no file without a unit. Empty: no file.")


@attrs.frozen
class RecordTable:
    """Archive of the packets of a node."""

    directory: str = _key('"/var/lib/pgm/floor-2"', "Directory of the archive. Each node needs a directory of its own, which is created if it is missing.", default="", required=True)
    bytes: RecordOctets | None = _key('"100GiB"', "Maximum octets of the archive. The key sets `record_bytes`.")
    seconds: RecordSeconds | None = _key("604800", "Seconds that the archive keeps a segment. The key sets `record_secs`.")
    segment_bytes: SegmentOctets | None = _key('"256MiB"', "Octets of a segment. The key sets `record_segment_bytes`.")
    serve: str = _key('"10.0.2.5:3057"', "Address of a range service for this archive, which the node starts. Durable receivers and recorders of the segment, and of segments below a repairer, read there what no repairer holds (docs/guide/durable.md).", default="")


@attrs.frozen
class StreamTable:
    """One flow of messages."""

    data_port: Port = _key("7500", "PGM's data-destination port, by which receivers distinguish streams.", default=0, required=True)
    rate: Rate | None = _key('"400Mbit/s"', "Maximum rate of the source. The key sets its `txw_max_rte`. An element gets the sum of the rates of its streams.")
    window: WindowTable | None = _key('"10s", "256MiB" or 20000', "Transmit window in time, octets or packets. The key sets `txw_secs`, `txw_bytes` or `txw_sqns` of the source.")
    order: Order = _key('"ordered"', "Order of delivery. `ordered`: in order. `unordered`: each message on arrival. `unreliable`: without repair.", default="ordered")
    flow: Flow = _key('"rate"', "Flow control of the source. `rate`: its rate alone. `yield`: the source slows down when receivers send too many NAKs. `acked`: acknowledgements. `pgmcc`: congestion control.", default="rate")
    framing: Framing = _key('"batch"', "Framing of the packets. `plain`: messages without framing. `batch`: batches, where messages share packets and have subjects. `zeromq`: ZeroMQ's `epgm` messages, which may have parts.", default="plain")
    segment: str = _key('"core"', "Segment of the source. The key serves as a check only.", default="")
    sources: tuple[str, ...] = _key('["exchange", "10.0.0.7"]', "Permitted sources: sources of the file by name, others by address. Data and SPMs from all other addresses, except the file's elements, are dropped and counted (`unlisted_packets`). Without the key the file's sources are permitted, if the file has an address of each, otherwise any sender. [\"any\"] permits any sender.", default=())
    signed: bool = _key("true", "The sources sign their SPMs with their keys (`pgm keys`). All other nodes drop SPMs without a valid signature, and data before the first signed SPM (docs/guide/security.md).", default=False)
    verify: Verify = _key('"after"', "Delivery of a signed stream by receivers. `before`: packets are delivered when they are proved. `after`: packets are delivered at once, and receivers report those that the source has not sent (`Forged`). Durable receivers and recorders always verify before.", default="before")
    sealed: bool = _key("true", "The source encrypts all messages. Only nodes with keys that may read the stream decrypt them; elements and recorders need no keys. `signed = true` is needed, too (docs/guide/security.md).", default=False)
    readers: tuple[str, ...] = _key('["desk-*", "recorder"]', "Nodes that may read a sealed stream: names of nodes or patterns. Without the key all receivers of the stream that have keys in the file.", default=())
    authenticated: bool = _key("true", "All nodes that carry the stream have keys (`pgm keys`) and addresses in the file. Control packets carry a code of their sender, and those without a valid one are dropped (docs/guide/security.md).", default=False)
    parameters: Overrides = _key(_PARAMETERS, "Parameters of every node that carries the stream.", default=NOTHING_SET)
    name: str = ""


@attrs.frozen
class SegmentTable:
    """A multicast domain, or a unicast leg."""

    group: Host = _key('"239.192.0.1" or "ff15::1"', "Multicast group, IPv4 or IPv6.", default="", required=True, unless="unicast")
    port: Port = _key("3056", "UDP port of the group.", default=DEFAULT_PORT)
    unicast_port: Port | None = _key("3055", "UDP port of the nodes' own addresses. The default is `port`.")
    interface: Interface = _key('"10.0.0.0/24"', "Interface by name, by address, or by its network. On a unicast leg each end may have another interface, and the node's address selects it.", default="", required=True, unless="unicast")
    transport: Literal["udp", "ip"] = _key('"ip"', "Transport of the packets: `udp`, or `ip` for IP protocol 113 with router alert. `ip` needs CAP_NET_RAW and has no ports.", default="udp")
    unicast: bool = _key("true", "A leg across a network without multicast. The leg has no group: a packet for all nodes goes to every other node of the segment as a copy. `rate` is the rate of each copy.", default=False)
    loss: Impairment | None = _key(_LOSS, "Losses injected into the packets that each node reads on the segment.")
    parameters: Overrides = _key(_PARAMETERS, "Parameters of every node on the segment.", default=NOTHING_SET)
    name: str = ""

    @property
    def own_port(self) -> int:
        """Return the UDP port of the nodes' own addresses."""
        return self.port if self.unicast_port is None else self.unicast_port

    @property
    def where(self) -> str:
        """Return the destination of packets for all nodes, spelled for people."""
        if self.unicast:
            return spell_where("", self.own_port, self.transport)
        return spell_where(self.group, self.port, self.transport)

    @property
    def needs_addresses(self) -> bool:
        """Return whether receivers need an address of their own as well."""
        return self.unicast or is_loopback(self.interface)


@attrs.frozen
class NodeTable:
    """A process, or a pattern of any number of receivers."""

    role: Role = _key('"repairer"', "`source`, `receiver`, `aggregator` or `repairer`.", default=Role.RECEIVER, required=True)
    segment: str = _key('"core"', "The only segment of a source, a receiver or an on-LAN element.", default="")
    address: Host | None = _key('"10.0.0.11"', "The node's own address on `segment`. Only receivers may omit the key, and neither on loopback nor on a unicast leg.")
    upstream: NodePlace | None = _key('{ segment = "core", address = "10.0.0.12" }', "For a relay: the segment from which the data come.")
    downstream: tuple[NodePlace, ...] = _key('[{ segment = "floor-2", address = "10.0.2.1" }]', "For a relay: the segments to which the relay forwards the data.", default=())
    streams: tuple[str, ...] = _key('["quotes"]', "Streams that a source sends, a receiver takes or an element carries. Without the key a receiver or an element has all streams.", default=())
    parents: tuple[str, ...] = _key('["floor-2-aggregator", "exchange"]', "Nodes that receive this node's NAKs, in order of preference. Each parent must answer on the node's upstream segment.", default=())
    repairers: tuple[str, ...] = _key('["floor-2-repairer"]', "For an aggregator: repairers below it, which receive NAKs before its parents.", default=())
    lines: tuple[LineTable, ...] = _key('[{ segment = "line-b", address = "10.0.7.12", parents = ["relay-b"] }]', "Further segments with the same streams (docs/guide/ab-feeds.md). A receiver or repairer takes the first copy of each packet. A source sends on all lines. A repairer that is not a relay repairs on all lines.", default=())
    standby_of: str = _key('"floor-2-aggregator"', "The active relay that this standby relay replaces, on the same segments.", default="")
    loss: Impairment | None = _key(_LOSS, "Losses injected into the packets that the node reads, instead of the segment's own `loss`.")
    cache: CacheTable | None = _key('{ bytes = "4GiB", seconds = 60 }', "For a repairer: limits of its cache, and the folder of its file.")
    record: RecordTable | None = _key('{ directory = "/var/lib/pgm/floor-2", bytes = "100GiB" }', "For a repairer: the archive in which it records the packets of its cache (docs/guide/archive.md). For a receiver: the archive of `pgm record`.")
    count: Count | None = _key("4", "For a pattern: number of nodes to start without another instruction. The default is 1.")
    addresses: AddressPool | None = _key('"127.0.2.10-127.0.2.13"', "For a pattern: addresses in the order of the nodes' numbers, as a range or a list.")
    parameters: Overrides = _key(_PARAMETERS, "Parameters of this node alone.", default=NOTHING_SET)
    name: str = ""

    @property
    def is_pattern(self) -> bool:
        """Return whether the name stands for any number of nodes."""
        return "*" in self.name

    @property
    def instances(self) -> int:
        """Return the number of nodes that this entry starts without another instruction."""
        if not self.is_pattern:
            return 1
        return 1 if self.count is None else self.count

    @property
    def is_relay(self) -> bool:
        """Return whether the node forwards data from one segment to others."""
        return self.upstream is not None and bool(self.downstream)

    @property
    def up(self) -> NodePlace | None:
        """Return the place that receives data and sends NAKs; None for a source."""
        if self.upstream is not None:
            return self.upstream
        return None if self.role is Role.SOURCE or not self.segment else NodePlace(self.segment, self.address, self.loss)

    @property
    def ups(self) -> tuple[NodePlace, ...]:
        """Return all places that receive data. The first of them is `up`."""
        up = self.up
        return () if up is None else (up, *(line.place for line in self.lines))

    @property
    def downs(self) -> tuple[NodePlace, ...]:
        """Return the places that answer NAKs: of an on-LAN node all its lines, of a receiver none."""
        if self.downstream:
            return self.downstream
        if self.role is Role.RECEIVER or not self.segment:
            return ()
        more = (line.place for line in self.lines)
        return (NodePlace(self.segment, self.address, self.loss), *more)

    def parents_on(self, segment: str) -> tuple[str, ...]:
        """Return the names of the parents on a segment that brings data."""
        if self.up is not None and segment == self.up.segment:
            return self.parents
        return next((line.parents for line in self.lines if line.segment == segment), ())

    @property
    def places(self) -> tuple[NodePlace, ...]:
        """Return all places, upstream first. The place of an on-LAN element appears once."""
        return (*(up for up in self.ups if up not in self.downs), *self.downs)

    def address_below(self, segment: str) -> Address | None:
        """Return the address that answers NAKs on a segment, or None."""
        return next((place.address for place in self.downs if place.segment == segment), None)

    def addresses_on(self, segment: str) -> tuple[Address, ...]:
        """Return all known addresses of the entry on a segment. A pattern has those of its `count` nodes."""
        if self.addresses is not None and self.segment == segment:
            return tuple(self.addresses.address(index) for index in range(min(self.instances, self.addresses.size)))
        for line in self.lines:
            if line.addresses is not None and line.segment == segment:
                return tuple(line.addresses.address(index) for index in range(min(self.instances, line.addresses.size)))
        return tuple(place.address for place in self.places if place.segment == segment and place.address is not None)


    def all_addresses_on(self, segment: str) -> tuple[Address, ...]:
        """Return all addresses on a segment that the entry may have: of a pattern the whole pools."""
        pools = self._pools_on(segment)
        if pools:
            return tuple(pool.address(index) for pool in pools for index in range(pool.size))
        return self.addresses_on(segment)

    def most_addresses_on(self, segment: str) -> int:
        """Return the number of addresses of `all_addresses_on`, without making them."""
        return sum(pool.size for pool in self._pools_on(segment)) or 1

    def _pools_on(self, segment: str) -> list[AddressPool]:
        own = [self.addresses] if self.addresses is not None and self.segment == segment else []
        return [*own, *(line.addresses for line in self.lines if line.addresses is not None and line.segment == segment)]


@attrs.frozen
class FleetTable:
    """Agents of the hosts, which `pgm status --fleet` and other commands ask."""

    port: Port = _key("9765", "TCP port of the agent of each host.", default=Port(DEFAULT_AGENT_PORT))
    probe_port: Port = _key("9766", "UDP port of the probes of `pgm netcheck`, on the groups and addresses of the nodes. No node may have the port, so that nodes do not read the probes.", default=Port(DEFAULT_PROBE_PORT))
    agents: tuple[Host, ...] = _key('["192.0.2.11", "192.0.2.12"]', "Addresses of agents beside those of the nodes: of hosts whose receivers have no address in the file, or of a network for management.", default=())


@attrs.frozen
class Topology:
    """A complete tree."""

    version: int = _key("1", "Version of the format.", default=VERSION, required=True)
    name: str = _key('"trading-floor"', "Name of the tree.", default="", required=True)
    profile: Profile = _key('"lan"', "Profile that computes the timers: `lan`, `wan`, `lossy` or `legacy`.", default="lan")
    rtt: RoundTrip = _key('"1ms"', "Input of the profile: the round trip within a subnet and to the next tier.", default=MILLISECOND)
    repair_budget: Duration = _key('"10s"', "Input of the profile: the longest time of a repair before the packet is given up.", default=10 * SECOND)
    telemetry: str = _key('"/var/lib/pgm/telemetry"', "Folder in which every node writes its protocol events as Parquet files (docs/guide/telemetry.md). Without the key no node writes events.", default="")
    parameters: Overrides = _key(_PARAMETERS, "Parameters of every node.", default=NOTHING_SET)
    streams: Mapping[str, StreamTable] = _key("", "The flows of messages, by name.", default=attrs.Factory(dict))
    segments: Mapping[str, SegmentTable] = _key("", "The multicast domains and unicast legs, by name.", default=attrs.Factory(dict))
    nodes: Mapping[str, NodeTable] = _key("", "The processes, by name. One `*` in a name makes the entry a pattern of receivers.", default=attrs.Factory(dict))
    keys: KeyLists = _key('{ exchange = ["pgm1 ID 2026-12-01 2028-12-01 KEYS"] }', "Public keys of nodes by name, as `pgm keys` prints them (docs/guide/security.md). A node has one line, and during a rotation a second one for the next keys.", default=KeyLists({}))
    revoked: Revocations = _key('{ ks3gq6lrbv4cm2ya = "2026-12-01 exchange: stolen" }', "Ids of revoked keys, each with the reason. A node whose keys are revoked does not start.", default=Revocations({}))
    key_directory: str = _key('"/var/lib/pgm/keys"', "Folder of the private keys on each host. The default is `pgm/keys` in the user's folder of configurations (`~/.config`). PGM_KEY_DIR overrides it.", default="")
    fleet: FleetTable = _key("{ port = 9765 }", "Agents of the hosts (docs/guide/monitoring.md).", default=FleetTable())
    path: str = "<topology>"
    lines: KeyLines = attrs.field(factory=KeyLines, eq=False, repr=False)
    digest: str = attrs.field(default="", eq=False)  # of the text of the file, in hexadecimal digits

    def version_on(self, segment: str) -> int | None:
        """Return the IP version of a segment, 4 or 6, or None if the file does not determine it.

        The version is that of the group. On a unicast leg the first known address determines the version.
        """
        group = self.segments[segment].group
        known = (address for node in self.nodes.values() for address in node.addresses_on(segment))
        address = group or next(known, None)
        return None if address is None else ipaddress.ip_address(address).version
