"""Topology with the look-ups that rules and plans share. The look-ups skip unknown names, which a rule reports."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

import attrs

from pgm.topology.model import NodeTable, Topology
from pgm.topology.node_plan import Address, Role
from pgm.topology.precedence import Settings, settings_of, streams_of
from pgm.trust.node_identity import number_of
from pgm.trust.public_keys import PublicKeys

Feed = tuple[str, str]  # a source and one of its streams


@attrs.frozen
class Tree:
    """Indexed topology."""

    topology: Topology
    on: Mapping[str, list[NodeTable]]  # segment -> nodes on it
    feeds: Mapping[str, set[Feed]]  # segment -> streams that arrive from its own sources or through relays
    settings: Mapping[str, Settings]  # node -> parameters that the file sets for it
    standbys: Mapping[str, list[NodeTable]]  # relay -> its standby relays
    keys_at: Mapping[Address, tuple[PublicKeys, ...]]  # address -> keys that are not revoked, of the nodes that have it

    @classmethod
    def of(cls, topology: Topology) -> Tree:
        """Index a topology, which need not pass `check`."""
        on: defaultdict[str, list[NodeTable]] = defaultdict(list)
        standbys: defaultdict[str, list[NodeTable]] = defaultdict(list)
        settings = {}
        for node in topology.nodes.values():
            for segment in dict.fromkeys(place.segment for place in node.places):
                on[segment].append(node)
            if node.standby_of:
                standbys[node.standby_of].append(node)
            settings[node.name] = settings_of(topology, node)
        return cls(topology, dict(on), _feeds(topology), settings, dict(standbys), _keys_at(topology))

    @property
    def nodes(self) -> Iterable[NodeTable]:
        """Return all entries of the file, with patterns unexpanded."""
        return self.topology.nodes.values()

    def named(self, names: Iterable[str]) -> list[NodeTable]:
        """Return the nodes with these names, and skip unknown names."""
        return [self.topology.nodes[name] for name in names if name in self.topology.nodes]

    def sources_of(self, stream: str) -> list[str]:
        """Return the names of the sources of a stream."""
        return [node.name for node in self.nodes if node.role is Role.SOURCE and stream in node.streams]

    def answering_on(self, segment: str) -> list[NodeTable]:
        """Return the nodes that answer NAKs on a segment."""
        return [node for node in self.on.get(segment, []) if any(place.segment == segment for place in node.downs)]

    def repairers_on(self, segment: str) -> list[NodeTable]:
        """Return the repairers that answer NAKs on a segment."""
        return [node for node in self.answering_on(segment) if node.role is Role.REPAIRER]

    def siblings_of(self, node: NodeTable) -> list[NodeTable]:
        """Return the other on-LAN repairers of a repairer's segment, those behind it in the file first.

        Nodes that ask each other as parents are no siblings. A unicast leg has none: a repair there goes to each node.
        """
        if node.up is None or not _repairs_beside(node, node.up.segment) or self._is_leg(node.up.segment):
            return []
        near = [one for one in self.repairers_on(node.up.segment) if _repairs_beside(one, node.up.segment)]
        at = near.index(node)
        ring = (*near[at + 1 :], *near[:at])
        return [one for one in ring if not (self._is_above(one, node) or self._is_above(node, one))]

    def _is_leg(self, segment: str) -> bool:
        known = self.topology.segments.get(segment)
        return known is None or known.unicast

    def _is_above(self, upper: NodeTable, lower: NodeTable) -> bool:
        """Return whether one node is a parent of another, directly or through others."""
        waiting, seen = [lower], set[str]()
        while waiting:
            node = waiting.pop()
            if upper.name in node.parents:
                return True
            if node.name not in seen:
                seen.add(node.name)
                waiting += self.named(node.parents)
        return False

    def sources_above(self, node: NodeTable) -> list[NodeTable]:
        """Return the sources whose streams reach a node that carries these streams."""
        if node.up is None:
            return []
        carried = {stream.name for stream in streams_of(self.topology, node)}
        return self.named(sorted({source for source, name in self.feeds.get(node.up.segment, ()) if name in carried}))

    def servers_of(self, node: NodeTable) -> list[NodeTable]:
        """Return the sources and repairers that may answer a node's NAKs, directly or through aggregators."""
        servers: dict[str, NodeTable] = {}
        seen = {node.name}
        waiting = [*self.named(node.parents), *(parent for line in node.lines for parent in self.named(line.parents))]
        while waiting:
            parent = waiting.pop(0)
            if parent.name in seen:
                continue
            seen.add(parent.name)
            if parent.role is Role.AGGREGATOR:
                waiting += self.named((*parent.repairers, *parent.parents))
            elif parent.role is not Role.RECEIVER:
                servers[parent.name] = parent
        return list(servers.values())


def _repairs_beside(node: NodeTable, segment: str) -> bool:
    """Return whether a node is an on-LAN repairer whose first segment this is."""
    is_on_lan = node.role is Role.REPAIRER and node.up is not None and node.up in node.downs
    return is_on_lan and node.up is not None and node.up.segment == segment


def _keys_at(topology: Topology) -> dict[Address, tuple[PublicKeys, ...]]:
    """Return the keys of all nodes by each of their addresses."""
    patterns = sorted((node for node in topology.nodes.values() if node.is_pattern), key=lambda node: -len(node.name))
    found: defaultdict[Address, tuple[PublicKeys, ...]] = defaultdict(tuple)
    for name, listed in topology.keys.items():
        keys = tuple(one for one in listed if one.id not in topology.revoked)
        node = topology.nodes.get(name)
        addresses = _numbered(patterns, name) if node is None else [place.address for place in node.places]
        for address in dict.fromkeys(addresses):
            if address is not None and keys:
                found[address] += keys
    return dict(found)


def _numbered(patterns: Iterable[NodeTable], name: str) -> list[Address | None]:
    """Return the addresses of one node of a pattern."""
    for node in patterns:
        number = number_of(node.name, name)
        if number is not None:
            pools = (node.addresses, *(line.addresses for line in node.lines))
            return [pool.address(number - 1) for pool in pools if pool is not None and number <= pool.size]
    return []


def _feeds(topology: Topology) -> dict[str, set[Feed]]:
    """Follow every stream from its source through all relays. Return the feeds of each segment."""
    feeds: dict[str, set[Feed]] = {name: set() for name in topology.segments}
    relays_on: defaultdict[str, list[NodeTable]] = defaultdict(list)
    for node in topology.nodes.values():
        for place in node.ups if node.is_relay else ():
            relays_on[place.segment].append(node)
    waiting: list[tuple[str, Feed]] = [
        (place.segment, (node.name, stream))
        for node in topology.nodes.values()
        if node.role is Role.SOURCE
        for place in node.downs
        for stream in node.streams
    ]
    while waiting:
        segment, feed = waiting.pop()
        if segment not in feeds or feed in feeds[segment]:
            continue
        feeds[segment].add(feed)
        for relay in relays_on[segment]:
            if not relay.streams or feed[1] in relay.streams:
                waiting += [(place.segment, feed) for place in relay.downstream]
    return feeds
