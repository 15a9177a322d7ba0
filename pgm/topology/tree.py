"""A topology with the look-ups that rules and plans share.

Names that lead nowhere are skipped here; a rule reports them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

import attrs

from pgm.topology.model import NodeTable, Topology
from pgm.topology.node_plan import Role
from pgm.topology.precedence import Settings, settings_of, streams_of

Feed = tuple[str, str]  # a source and one of its streams


@attrs.frozen
class Tree:
    """The topology, indexed."""

    topology: Topology
    on: Mapping[str, list[NodeTable]]  # segment -> the nodes that sit there
    feeds: Mapping[str, set[Feed]]  # segment -> what arrives there, from its own sources or through relays
    settings: Mapping[str, Settings]  # node -> what the file says of its parameters
    standbys: Mapping[str, list[NodeTable]]  # relay -> the nodes that stand in for it

    @classmethod
    def of(cls, topology: Topology) -> Tree:
        """Index a topology, whether it passes `check` or not."""
        on: defaultdict[str, list[NodeTable]] = defaultdict(list)
        standbys: defaultdict[str, list[NodeTable]] = defaultdict(list)
        settings = {}
        for node in topology.nodes.values():
            for segment in dict.fromkeys(place.segment for place in node.places):
                on[segment].append(node)
            if node.standby_of:
                standbys[node.standby_of].append(node)
            settings[node.name] = settings_of(topology, node)
        return cls(topology, dict(on), _feeds(topology), settings, dict(standbys))

    @property
    def nodes(self) -> Iterable[NodeTable]:
        """Every entry of the file, patterns unexpanded."""
        return self.topology.nodes.values()

    def named(self, names: Iterable[str]) -> list[NodeTable]:
        """The nodes of these names, without those that do not exist."""
        return [self.topology.nodes[name] for name in names if name in self.topology.nodes]

    def answering_on(self, segment: str) -> list[NodeTable]:
        """The nodes that serve NAKs on a segment."""
        return [node for node in self.on.get(segment, []) if any(place.segment == segment for place in node.downs)]

    def repairers_on(self, segment: str) -> list[NodeTable]:
        """The repairers among them."""
        return [node for node in self.answering_on(segment) if node.role is Role.REPAIRER]

    def sources_above(self, node: NodeTable) -> list[NodeTable]:
        """The sources whose streams reach a node that carries them."""
        if node.up is None:
            return []
        carried = {stream.name for stream in streams_of(self.topology, node)}
        return self.named(sorted({source for source, name in self.feeds.get(node.up.segment, ()) if name in carried}))

    def servers_of(self, node: NodeTable) -> list[NodeTable]:
        """The sources and repairers that may answer a node's NAKs, directly or through aggregators."""
        servers: dict[str, NodeTable] = {}
        seen = {node.name}
        waiting = [*self.named(node.parents), *(one for line in node.lines for one in self.named(line.parents))]
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


def _feeds(topology: Topology) -> dict[str, set[Feed]]:
    """Follow every stream from its source through the relays, as far as it comes."""
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
