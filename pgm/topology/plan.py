"""Planning of single nodes: names become addresses, and levels of the file become one set of parameters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import attrs

from pgm.impairments import Impairment
from pgm.parameters import ROWS, SOCKET_PARAMETERS
from pgm.topology.addresses import AddressPool
from pgm.topology.check import check
from pgm.topology.locate import KeyPath
from pgm.topology.model import Count, NodePlace, NodeTable, StreamTable, Topology
from pgm.topology.node_plan import Address, ChildrenPlan, LinePlan, NodePlan, Protection, Role, SegmentPlan, StreamPlan
from pgm.topology.precedence import Settings, parameters_of, settings_of, streams_of
from pgm.topology.problems import Problem, error_of, suggestion
from pgm.topology.rules.sealing import readers_of
from pgm.topology.rules.sources import ANY_SOURCE, default_sources, listed_addresses
from pgm.topology.tree import Tree
from pgm.trust.node_identity import NodeIdentity, number_of
from pgm.trust.public_keys import PublicKeys

_MOST_NAMED = 1 << 16  # addresses of one pattern whose nodes a parent knows by name
_NO_GROUP = {4: "0.0.0.0", 6: "::", None: "0.0.0.0"}  # group of a segment without one, by IP version


def plan_node(topology: Topology, name: str) -> NodePlan:
    """Return the plan of one node, or of one node of a pattern such as "desk-7". Raises `TopologyError`."""
    tree = checked_tree(topology)
    node, number = _entry_of(tree, name)
    plan = plan_entry(tree, node)
    return plan if number is None else _instance(tree, plan, node, number)


def check_node_name(topology: Topology, name: str) -> None:
    """Raise `TopologyError` for a name of no node, nor of a node of a pattern. The file may break rules."""
    _entry_of(Tree.of(topology), name)


def plan_receiver_at(topology: Topology, source: NodePlan) -> NodePlan:
    """Return the plan of a receiver at a source's node. It takes every stream of the file, on the source's segments.

    Its parents are the repairers of its first segment, and then each session's source.
    """
    tree = checked_tree(topology)
    node, _ = _entry_of(tree, source.name)
    repairers = tree.repairers_on(source.segments[0].name)
    receiver = attrs.evolve(node, role=Role.RECEIVER, streams=(), parents=tuple(one.name for one in repairers))
    assert receiver.up is not None
    settings = settings_of(topology, receiver)
    sockets = {name: getattr(source.parameters, name) for name in SOCKET_PARAMETERS}  # which the source may have opened
    return attrs.evolve(
        source,
        role=Role.RECEIVER,
        streams=_streams(tree, receiver),
        parameters=attrs.evolve(parameters_of(settings), **sockets),
        parents=_addresses_on(receiver.up, repairers),
        local_repairers=_local_repairers(tree, receiver),
        local_relays=_local_relays(tree, receiver),
        keepers=_keepers(tree, receiver),
        asks_below_trail=bool(repairers),
        lines=tuple(LinePlan(segment.name) for segment in source.segments[1:]),
        reasons=_reasons(settings),
    )


def _entry_of(tree: Tree, name: str) -> tuple[NodeTable, int | None]:
    """Return a node's entry in the file, and its number if that is a pattern. Raises `TopologyError`."""
    topology = tree.topology
    node = topology.nodes.get(name)
    if node is not None and not node.is_pattern:
        return node, None
    for pattern in sorted((node for node in tree.nodes if node.is_pattern), key=lambda node: -len(node.name)):
        number = number_of(pattern.name, name)
        if number is not None:
            return pattern, number
    if node is not None:
        remedy = f'give it a number, as in "{name.replace("*", "1")}"'
        raise _error(topology, ("nodes", name), f"{name!r} is a pattern, not one node", remedy)
    known = [other.name.replace("*", "1") for other in tree.nodes]
    raise _error(topology, ("nodes",), f"there is no node {name!r} in {topology.name!r}", suggestion(name, known))


def plan_all(topology: Topology, counts: Mapping[str, int] | None = None) -> dict[str, NodePlan]:
    """Return the plans of all nodes by name. `counts` overrides the `count` of patterns. Raises `TopologyError`."""
    tree = checked_tree(topology)
    require_patterns(topology, counts or {})
    patterns = {node.name: node.instances for node in tree.nodes if node.is_pattern}
    patterns |= counts or {}
    if counts:  # the counts determine the peers on a unicast leg
        nodes = {
            node.name: attrs.evolve(node, count=Count(patterns[node.name])) if node.is_pattern else node
            for node in tree.nodes
        }
        tree = Tree.of(attrs.evolve(topology, nodes=nodes))
    plans: dict[str, NodePlan] = {}
    for node in tree.nodes:
        plan = plan_entry(tree, node)
        if not node.is_pattern:
            plans[node.name] = plan
            continue
        for number in range(1, patterns[node.name] + 1):
            instance = _instance(tree, plan, node, number)
            if instance.name not in topology.nodes:  # an entry of its own takes precedence over a pattern
                plans[instance.name] = instance
    return plans


@attrs.frozen
class PatternRest:
    """Receivers of a pattern from number `first` on, without a plan each. `addresses` are empty if the file has none."""

    pattern: str
    plan: NodePlan  # of the first
    first: int
    count: int
    addresses: tuple[Address, ...]

    def number(self, name: str) -> int | None:
        """Return the number of one of these receivers by its name. None for another node."""
        number = number_of(self.pattern, name)
        return number if number is not None and self.first <= number < self.first + self.count else None


def plan_some(
    topology: Topology, counts: Mapping[str, int], most: int
) -> tuple[dict[str, NodePlan], list[PatternRest]]:
    """Return the plans of a tree with at most `most` receivers of each pattern, and the rest of the patterns.

    `counts` overrides the `count` of patterns. Raises `TopologyError`.
    """
    patterns = {node.name: node for node in checked_tree(topology).nodes if node.is_pattern}
    wanted = {name: node.instances for name, node in patterns.items()} | dict(counts)
    cut = {name: most for name, node in patterns.items() if node.role is Role.RECEIVER and wanted[name] > most}
    plans = plan_all(topology, wanted | dict.fromkeys(cut, most + 1))
    rest = []
    for name in cut:
        plan = plans.pop(name.replace("*", str(most + 1)))
        pool = patterns[name].addresses
        if pool is not None and pool.size < wanted[name]:
            raise _error(
                topology,
                ("nodes", name, "addresses"),
                f"{name!r} has {pool.size} addresses ({pool.spelling}) for {wanted[name]} nodes",
                "extend the range",
            )
        addresses = () if pool is None else tuple(pool.address(number) for number in range(most, wanted[name]))
        rest.append(PatternRest(name, plan, most + 1, wanted[name] - most, addresses))
    return plans, rest


def checked_tree(topology: Topology) -> Tree:
    """Return the indexed topology if it passes `check`. Raises `TopologyError` with all errors."""
    report = check(topology)
    if report.errors:
        raise error_of(report.errors)
    return Tree.of(topology)


def require_patterns(topology: Topology, names: Iterable[str]) -> None:
    """Check that names are those of patterns. Raises `TopologyError`."""
    patterns = [node.name for node in topology.nodes.values() if node.is_pattern]
    for name in names:
        if name not in patterns:
            raise _error(topology, ("nodes",), f"there is no pattern {name!r} to count", suggestion(name, patterns))


def _error(topology: Topology, path: KeyPath, message: str, remedy: str) -> Exception:
    return error_of([Problem(topology.path, topology.lines.of(path), "plan", message, remedy)])


def _instance(tree: Tree, plan: NodePlan, pattern: NodeTable, number: int) -> NodePlan:
    """Return the plan of one node of a pattern, from the plan that all its nodes share."""
    name = pattern.name.replace("*", str(number))
    plan = attrs.evolve(plan, name=name, identity=_identity(tree.topology, name))
    if pattern.addresses is None:
        return plan
    if number > pattern.addresses.size:
        message = (
            f"{name!r} has no address: {pattern.name!r} has {pattern.addresses.size} ({pattern.addresses.spelling})"
        )
        raise _error(tree.topology, ("nodes", pattern.name, "addresses"), message, "extend the range")
    pools = {pattern.segment: pattern.addresses} | {line.segment: line.addresses for line in pattern.lines}
    return attrs.evolve(plan, segments=tuple(_seated(seat, pools[seat.name], number) for seat in plan.segments))


def _seated(seat: SegmentPlan, pool: AddressPool | None, number: int) -> SegmentPlan:
    """Return the place of one node of a pattern."""
    if pool is None:
        return seat
    address = pool.address(number - 1)
    if seat.peers is not None:
        peers = tuple(peer for peer in seat.peers if peer != address)
        seat = attrs.evolve(seat, interface=seat.interface or address, peers=peers)
    return attrs.evolve(seat, address=address)


def plan_entry(tree: Tree, node: NodeTable) -> NodePlan:
    """Return the plan of one entry of a checked file. For a pattern it is the common part of its nodes."""
    settings = tree.settings[node.name]
    parents = tree.named(node.parents)
    return NodePlan(
        file=tree.topology.path,
        digest=tree.topology.digest,
        topology=tree.topology.name,
        name=node.name,
        role=node.role,
        segments=tuple(_segment(tree.topology, node, place) for place in node.places),
        streams=_streams(tree, node),
        parameters=parameters_of(settings),
        parents=() if node.up is None else _addresses_on(node.up, parents),
        repairers=_repairers(tree, node),
        lines=_lines(tree, node),
        partners=_partners(tree, node),
        is_standby=bool(node.standby_of),
        local_repairers=_local_repairers(tree, node),
        local_relays=_local_relays(tree, node),
        keepers=_keepers(tree, node),
        assist_rank=_assist_rank(tree, node),
        siblings=_siblings(tree, node),
        children=_children(tree, node),
        asks_below_trail=any(server.role is Role.REPAIRER for server in tree.servers_of(node)),
        telemetry=tree.topology.telemetry,
        record_directory=node.record.directory if node.record is not None else None,
        record_service=node.record.serve if node.record is not None else "",
        archives=_archives(tree, node),
        cache_directory=node.cache.directory if node.cache is not None else None,
        identity=_identity(tree.topology, node.name),
        reasons=_reasons(settings),
    )


def _identity(topology: Topology, name: str) -> NodeIdentity:
    """Return the keys of a node. Each node of a pattern has keys of its own."""
    return NodeIdentity(topology.keys.get(name, ()), frozenset(topology.revoked), topology.key_directory)


def _segment(topology: Topology, node: NodeTable, place: NodePlace) -> SegmentPlan:
    segment = topology.segments[place.segment]
    return SegmentPlan(
        name=segment.name,
        group=segment.group or _NO_GROUP[topology.version_on(segment.name)],
        port=segment.port,
        unicast_port=segment.own_port,
        interface=segment.interface or place.address or "",
        address=place.address,
        upstream=place in node.ups,
        downstream=place in node.downs,
        impairment=place.loss or node.loss or segment.loss or Impairment(),
        transport=segment.transport,
        peers=_peers(topology, segment.name, place.address) if segment.unicast else None,
    )


def _peers(topology: Topology, segment: str, own: Address | None) -> tuple[Address, ...]:
    """Return the addresses of all other nodes on a unicast leg, a pattern's own included until `_seated`."""
    known = (address for node in topology.nodes.values() for address in node.addresses_on(segment))
    return tuple(address for address in known if address != own)


def _streams(tree: Tree, node: NodeTable) -> tuple[StreamPlan, ...]:
    streams = streams_of(tree.topology, node)
    is_shared = node.role is Role.SOURCE and len(streams) > 1
    return tuple(_stream(tree, node, stream, is_shared) for stream in streams)


def _allowed(tree: Tree, node: NodeTable, stream: StreamTable) -> frozenset[Address] | None:
    """Return the permitted senders of a stream: its sources and the node's elements; None if any sender is.

    Without a list the file's sources count, if the file has the address of each. A segment on which no sender is known
    hears a sender that is not in the file.
    """
    if stream.sources == ANY_SOURCE:
        return None
    sources = tree.named(stream.sources) if stream.sources else default_sources(tree, stream)
    addresses = listed_addresses(tree, stream)
    for place in node.places:
        elements = [other for other in tree.on.get(place.segment, ()) if other.role in (Role.AGGREGATOR, Role.REPAIRER)]
        known = {address for sender in (*sources, *elements) for address in sender.addresses_on(place.segment)}
        if not stream.sources and place in node.ups and not known - set(node.addresses_on(place.segment)):
            return None
        addresses |= known
    return frozenset(addresses) if sources or stream.sources else None


def _signers(tree: Tree, stream: StreamTable) -> tuple[PublicKeys, ...] | None:
    """Return the keys of all sources of a signed stream that are not revoked; None for an unsigned stream."""
    if not stream.signed:
        return None
    return _keys_of(tree.topology, tree.sources_of(stream.name))


def _readers(tree: Tree, stream: StreamTable) -> tuple[PublicKeys, ...] | None:
    """Return the keys of all readers of a sealed stream that are not revoked; None for a stream in the clear."""
    return _keys_of(tree.topology, readers_of(tree, stream)) if stream.sealed else None


def protection_of(tree: Tree, stream: StreamTable) -> Protection:
    """Return the protection of a stream. Its readers are the nodes with keys that are not revoked."""
    readers = None
    if stream.sealed:
        readers = tuple(name for name in readers_of(tree, stream) if _keys_of(tree.topology, [name]))
    return Protection("packets" if stream.signed else "", readers, stream.authenticated, stream.verify)


def _keys_of(topology: Topology, names: Iterable[str]) -> tuple[PublicKeys, ...]:
    """Return the current and the next keys of some nodes, without revoked ones."""
    listed = (keys for name in names for keys in topology.keys.get(name, ()))
    return tuple(keys for keys in listed if keys.id not in topology.revoked)


def _stream(tree: Tree, node: NodeTable, stream: StreamTable, is_shared: bool) -> StreamPlan:
    topology = tree.topology
    own = parameters_of(settings_of(topology, node, [stream])) if is_shared else None
    return StreamPlan(
        name=stream.name,
        data_port=stream.data_port,
        order=stream.order,
        flow=stream.flow,
        framing=stream.framing,
        verify=stream.verify,
        sources=tuple(tree.sources_of(stream.name)),
        allowed=_allowed(tree, node, stream),
        signers=_signers(tree, stream),
        readers=_readers(tree, stream),
        known_keys=tree.keys_at if stream.authenticated else None,
        parameters=own,
        protection=protection_of(tree, stream),
    )


def _addresses_on(place: NodePlace, nodes: list[NodeTable]) -> tuple[Address, ...]:
    addresses = (node.address_below(place.segment) for node in nodes)
    return tuple(address for address in addresses if address is not None)


def _lines(tree: Tree, node: NodeTable) -> tuple[LinePlan, ...]:
    lines = node.lines if node.up is not None else ()
    return tuple(
        LinePlan(
            line.segment,
            _addresses_on(line.place, tree.named(line.parents)),
            _addresses_on(line.place, [other for other in tree.repairers_on(line.segment) if other is not node]),
        )
        for line in lines
    )


def _repairers(tree: Tree, node: NodeTable) -> tuple[tuple[Address, ...], ...]:
    """Return the repairers' addresses per downstream segment, or () if the node names no repairer."""
    named = tree.named(node.repairers)
    return tuple(_addresses_on(place, named) for place in node.downs) if named else ()


def _partners(tree: Tree, node: NodeTable) -> frozenset[Address]:
    """Return the addresses of the other relay of a standby pair."""
    others = [*tree.named([node.standby_of]), *tree.standbys.get(node.name, ())]
    return frozenset(place.address for other in others for place in other.places if place.address is not None)


def _archives(tree: Tree, node: NodeTable) -> tuple[str, ...]:
    """Return the range services of recording nodes for a receiver or recorder: on its segments, then above."""
    if node.role is not Role.RECEIVER and node.record is None:
        return ()
    near = [other for up in node.ups for other in tree.on.get(up.segment, ())]
    recorders = [other.record for other in (*near, *tree.servers_of(node)) if other.record is not None]
    return tuple(dict.fromkeys(record.serve for record in recorders if record.serve))


def _local_repairers(tree: Tree, node: NodeTable) -> frozenset[Address]:
    """Return the repairers on a receiver's own segments, whose repairs count as local."""
    if node.role is not Role.RECEIVER:
        return frozenset()
    return frozenset(address for up in node.ups for address in _addresses_on(up, tree.repairers_on(up.segment)))


def _local_relays(tree: Tree, node: NodeTable) -> frozenset[Address]:
    """Return the aggregators that relay to a receiver's own segments, and repair what they keep."""
    if node.role is not Role.RECEIVER:
        return frozenset()
    return frozenset(
        address
        for up in node.ups
        for address in _addresses_on(up, [one for one in tree.answering_on(up.segment) if _keeps(tree, one)])
    )


def _keeps(tree: Tree, node: NodeTable) -> bool:
    """Return whether a node is an aggregator that relays and keeps what it has passed down."""
    if node.role is not Role.AGGREGATOR or not node.is_relay:
        return False
    return parameters_of(settings_of(tree.topology, node)).relay_cache_ivl > 0


def _keepers(tree: Tree, node: NodeTable) -> tuple[Address, ...]:
    """Return the elements that can serve history, nearest first.

    These are the repairers on the segments above, and parents other than sources. An on-LAN aggregator serves no history,
    so its own parents take its place.
    """
    keepers: dict[Address, None] = {}
    for up in node.ups:
        beside = tree.repairers_on(up.segment) if node.is_relay else []
        waiting = [*beside, *tree.named(node.parents_on(up.segment))]
        seen = {node.name, *node.standby_of.split()}
        while waiting:
            keeper = waiting.pop(0)
            if keeper.name in seen or keeper.role is Role.SOURCE:
                continue
            seen.add(keeper.name)
            if keeper.role is Role.AGGREGATOR and not keeper.is_relay:
                waiting = [*tree.named(keeper.parents), *waiting]
            else:
                keepers |= dict.fromkeys(_addresses_on(up, [keeper]))
    return tuple(keepers)


def _assist_rank(tree: Tree, node: NodeTable) -> int:
    """Return the number of on-LAN repairers of the same segment that precede this one in the file."""
    if node.role is not Role.REPAIRER or node.up is None or node.up not in node.downs:
        return 0
    repairers = [other.name for other in tree.repairers_on(node.up.segment) if other.up in other.downs]
    return repairers.index(node.name)


def _children(tree: Tree, node: NodeTable) -> ChildrenPlan:
    """Return the addresses of all nodes on the segments below a source or an element."""
    addresses: set[Address] = set()
    elements: set[Address] = set()
    are_all = True
    for segment in dict.fromkeys(place.segment for place in node.downs):
        for other in tree.on.get(segment, ()):
            if other.most_addresses_on(segment) > _MOST_NAMED:
                are_all = False
                continue
            named = other.all_addresses_on(segment)
            are_all &= bool(named)
            addresses.update(named)
            if other.role in (Role.AGGREGATOR, Role.REPAIRER):
                elements.update(named)
    return ChildrenPlan(frozenset(addresses), frozenset(elements), are_all=are_all and bool(addresses))


def _siblings(tree: Tree, node: NodeTable) -> tuple[Address, ...]:
    """Return the repairers that an on-LAN repairer asks before its parents."""
    return () if node.up is None else _addresses_on(node.up, tree.siblings_of(node))


def _reasons(settings: Settings) -> tuple[tuple[str, str], ...]:
    """Return the reasons of parameters that differ from their default, in the order of the table."""
    return tuple(
        (key, settings[key].reason)
        for key, row in ROWS.items()
        if key in settings and settings[key].value != row.default
    )
