"""Rules about groups, interfaces, addresses and sockets."""

from __future__ import annotations

import ipaddress
from bisect import bisect_left
from collections.abc import Iterable, Iterator

from pgm.topology.addresses import IpAddress, is_loopback, may_overlap, network_of, version_of
from pgm.topology.locate import KeyPath
from pgm.topology.model import NodePlace, NodeTable, SegmentTable
from pgm.topology.node_plan import Role
from pgm.topology.precedence import streams_of
from pgm.topology.rules.rule import Rule, RuleFinding
from pgm.topology.tree import Tree

Range = tuple[IpAddress, IpAddress]
_NO_PORT = 0
_REPORTED = ("acked", "pgmcc")  # flows of streams whose receivers are counted by their addresses


def _segments(tree: Tree) -> Iterator[SegmentTable]:
    return (segment for segment in tree.topology.segments.values() if segment.group)


def _group(tree: Tree) -> Iterator[RuleFinding]:
    for segment in _segments(tree):
        if not ipaddress.ip_address(segment.group).is_multicast:
            message = f"the group {segment.group} of {segment.name!r} is not a multicast address"
            remedy = 'choose one of the administratively scoped "239.192.0.0/14", or an IPv6 one such as "ff15::1"'
            yield RuleFinding(("segments", segment.name, "group"), message, remedy)


def _segment_clash(tree: Tree) -> Iterator[RuleFinding]:
    seen: dict[tuple[str, int], list[SegmentTable]] = {}
    for segment in _segments(tree):
        # IP protocol 113 has no ports, so the group alone distinguishes segments.
        others = seen.setdefault((segment.group, segment.port if segment.transport == "udp" else _NO_PORT), [])
        for other in others:
            if may_overlap(other.interface, segment.interface):
                message = (
                    f"segments {other.name!r} and {segment.name!r} share the group {segment.where} "
                    f"on {other.interface} and {segment.interface}"
                )
                yield RuleFinding(
                    ("segments", segment.name, "group"), message, f"give {segment.name!r} a group of its own"
                )
        others.append(segment)


def _seats(node: NodeTable) -> Iterator[tuple[KeyPath, NodePlace]]:
    path = ("nodes", node.name)
    if node.segment:
        yield (*path, "address"), NodePlace(node.segment, node.address)
    if node.upstream is not None:
        yield (*path, "upstream"), node.upstream
    for index, place in enumerate(node.downstream):
        yield (*path, "downstream", index), place
    for index, line in enumerate(node.lines):
        yield (*path, "lines", index), line.place


def _held(node: NodeTable) -> Iterator[tuple[KeyPath, str, Range]]:
    """Yield every address or range of addresses that a node holds: path, segment, range."""
    for path, place in _seats(node):
        if place.address is not None:
            address = ipaddress.ip_address(place.address)
            yield path, place.segment, (address, address)
    if node.addresses is not None and node.segment:
        for pair in node.addresses.ranges:
            yield ("nodes", node.name, "addresses"), node.segment, pair
    for index, line in enumerate(node.lines):
        for pair in line.addresses.ranges if line.addresses is not None else ():
            yield ("nodes", node.name, "lines", index), line.segment, pair


def _spell(pair: Range) -> str:
    return str(pair[0]) if pair[0] == pair[1] else f"{pair[0]}-{pair[1]}"


def _family(tree: Tree) -> Iterator[RuleFinding]:
    for segment in _segments(tree):
        version = ipaddress.ip_address(segment.group).version
        if version_of(segment.interface) not in (None, version):
            message = f"{segment.name!r} mixes the group {segment.group} with the interface {segment.interface}"
            remedy = "use IPv4 or IPv6 for both"
            yield RuleFinding(("segments", segment.name, "interface"), message, remedy)
    for node in tree.nodes:
        for path, name, pair in _held(node):
            known = tree.topology.segments.get(name)
            wanted = tree.topology.version_on(name) if known and (known.group or known.unicast) else None
            if known and wanted not in (None, pair[0].version):
                whose = f"whose group is {known.group}" if known.group else f"where others have IPv{wanted}"
                message = f"{node.name!r} has the address {_spell(pair)} on {name}, {whose}"
                yield RuleFinding(path, message, f"give it an IPv{wanted} address")


def _unicast(tree: Tree) -> Iterator[RuleFinding]:
    for node in tree.nodes:
        for path, _, pair in _held(node):
            if any(end.is_multicast or end.is_unspecified for end in pair):
                message = f"{node.name!r} cannot have the address {_spell(pair)}"
                yield RuleFinding(path, message, "write the address of one interface of this node")


def _inside(tree: Tree) -> Iterator[RuleFinding]:
    for node in tree.nodes:
        for path, name, pair in _held(node):
            segment = tree.topology.segments.get(name)
            network = network_of(segment.interface) if segment and segment.interface else None
            if network is None or network.version != pair[0].version or all(end in network for end in pair):
                continue
            message = f"{node.name!r} has the address {_spell(pair)}, outside {network} of {name}"
            yield RuleFinding(path, message, f"choose an address of {network}, or correct the interface of {name}")


def _missing(tree: Tree) -> Iterator[RuleFinding]:
    for node in tree.nodes:
        for path, place in _seats(node):
            segment = tree.topology.segments.get(place.segment)
            if place.address is not None or node.is_pattern or segment is None:
                continue
            if node.role is not Role.RECEIVER:
                message = f"the {node.role.value} {node.name!r} has no address on {place.segment}"
                yield RuleFinding(
                    path, message, f'write address = "{_example(segment)}": children send their NAKs there'
                )
            elif segment.needs_addresses:
                message = f"the receiver {node.name!r} has no address on {place.segment}, which is {_kind(segment)}"
                remedy = f'write address = "{_example(segment)}": there every node needs one of its own'
                yield RuleFinding(path, message, remedy)


def _kind(segment: SegmentTable) -> str:
    return "a unicast leg" if segment.unicast else "on loopback"


def _example(segment: SegmentTable, number: int = 2) -> str:
    network = network_of(segment.interface)
    if network is None or network.num_addresses <= number:
        is_v6 = ":" in segment.group or version_of(segment.interface) == 6
        anywhere = "fd00::/64" if is_v6 else "10.0.0.0/8"
        network = ipaddress.ip_network("127.0.0.0/8" if is_loopback(segment.interface) and not is_v6 else anywhere)
    return str(network[number])


def _pool(tree: Tree) -> Iterator[RuleFinding]:
    for node in tree.nodes:
        segment = tree.topology.segments.get(node.segment)
        if not node.is_pattern or segment is None:
            continue
        path = ("nodes", node.name)
        if node.addresses is None and segment.needs_addresses:
            message = f"the pattern {node.name!r} has no addresses on {segment.name}, which is {_kind(segment)}"
            first, last = _example(segment, 10), _example(segment, 9 + max(1, node.instances))
            remedy = f'write addresses = "{first}-{last}", one for each'
            yield RuleFinding(path, message, remedy)
        elif node.addresses is not None and node.addresses.size < node.instances:
            room = f"{node.addresses.size} addresses ({node.addresses.spelling})"
            message = f"the pattern {node.name!r} has count = {node.instances} and {room}"
            yield RuleFinding((*path, "addresses"), message, f"extend the range, or set count = {node.addresses.size}")


def _may_share(tree: Tree, first: NodeTable, second: NodeTable) -> bool:
    """Return whether two nodes may have one address and port: sources and receivers, which are known by TSI and stream.

    An element is known by its address alone, because a NAK for a repairer names the source. A source knows the
    receivers that report to it by their address too. Receivers report for acknowledged streams and for congestion
    control.
    """
    if first is second or not {first.role, second.role} <= {Role.SOURCE, Role.RECEIVER}:
        return False
    if Role.SOURCE in (first.role, second.role):
        return True
    reported = (
        {one.name for one in streams_of(tree.topology, node) if one.flow in _REPORTED} for node in (first, second)
    )
    return set.isdisjoint(*reported)


def _socket_clash(tree: Tree) -> Iterator[RuleFinding]:
    """Find sockets that cannot share an (address, unicast port), or an address without ports: the second cannot open."""
    held = []
    for node in tree.nodes:
        for path, name, pair in _held(node):
            segment = tree.topology.segments.get(name)
            if segment is not None:
                port = segment.own_port if segment.transport == "udp" else _NO_PORT
                is_group = port != _NO_PORT and not segment.unicast
                held.append((pair[0].version, port, int(pair[0]), int(pair[1]), path, node, pair, is_group))
    held.sort(key=lambda entry: entry[:4])
    for index, (version, port, _, last, _, node, pair, is_group) in enumerate(held):
        end = bisect_left(held, (version, port, last + 1), index, key=lambda entry: entry[:3])
        for *_, path, other, clash, is_others_group in held[index + 1 : end]:
            if is_group and is_others_group and _may_share(tree, node, other):
                continue
            users = f"{node.name!r} and {other.name!r}" if node is not other else f"two places of {node.name!r}"
            where = f"{_spell(clash)} port {port}" if port else f"IP protocol 113 on {_spell(clash)}"
            message = f"{users} both use {where}" + (f" (within {_spell(pair)})" if pair != clash else "")
            remedy = "give each its own address" + (", or their segments different unicast_port" if port else "")
            yield RuleFinding(path, message, remedy)


def _loopback_ipv6(tree: Tree) -> Iterator[RuleFinding]:
    for segment in _segments(tree):
        if is_loopback(segment.interface) and ":" in segment.group:
            message = f"{segment.name!r} has the IPv6 group {segment.group} on loopback, where multicast is IPv4 only"
            yield RuleFinding(
                ("segments", segment.name, "group"), message, "use an IPv4 group, or the ends of a veth pair"
            )


def _probe_port(tree: Tree) -> Iterator[RuleFinding]:
    port = tree.topology.fleet.probe_port
    for segment in tree.topology.segments.values():
        if segment.transport == "udp" and port in (segment.port, segment.own_port):
            message = f"{segment.name!r} has port {port}, on which pgm netcheck sends probes: nodes would read them"
            yield RuleFinding(("segments", segment.name, "port"), message, "set another probe_port in [fleet]")


# fmt: off
RULES: Iterable[Rule] = (
    Rule("group", "A group is a multicast address.", _group),
    Rule("segment-clash", "Two segments on one interface differ in group or port. Over IP protocol 113 the segments differ in group.", _segment_clash),
    Rule("family", "Group, interface and addresses of a segment are all IPv4 or all IPv6.", _family),
    Rule("unicast", "A node's address is neither a group nor the unspecified address.", _unicast),
    Rule("inside", "An address lies within the network that its segment names as interface.", _inside),
    Rule("address", "Sources and elements have an address on every segment. On loopback and unicast legs receivers have one too.", _missing),
    Rule("pool", "A pattern has an address for each of its nodes. Away from loopback and unicast legs a pattern may have none at all.", _pool),
    Rule("socket-clash", "An element shares its address and unicast port with no other node. Nodes on a unicast leg and nodes over IP protocol 113 share none either. Two receivers on one address have no acknowledged stream in common, and no stream with congestion control.", _socket_clash),
    Rule("probe-port", "No segment has the port of the probes of `pgm netcheck`.", _probe_port, is_warning=True),
    Rule("loopback-ipv6", "Loopback multicast is IPv4 only.", _loopback_ipv6, is_warning=True),
)
# fmt: on
