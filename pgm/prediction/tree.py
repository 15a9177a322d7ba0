"""Tree of one feed as the formulas see it: links, each with the node that sends data, and members that lose some.

A feed is a source and one of its streams. Nodes of one entry with the same loss are one member. Standby relays take no part.
A node with several lines loses a packet if all lines lose the packet.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterable, Mapping
from types import MappingProxyType

import attrs

from pgm.impairments import Impairment
from pgm.parameters import Parameters
from pgm.topology.model import NodeTable, Topology
from pgm.topology.node_plan import Role
from pgm.topology.precedence import parameters_of, settings_of, streams_of
from pgm.topology.tree import Feed, Tree
from pgm.trust.node_identity import names_node

Losses = Mapping[tuple[str, str], Impairment]  # measured, by segment and node
NO_COUNTS: Mapping[str, int] = MappingProxyType({})
Shares = tuple[float, float]  # of packets: lost, and at which a gap begins
NO_LOSSES: Losses = MappingProxyType({})


@attrs.frozen(eq=False)
class LinkMember:
    """Nodes on a link that are alike: `count` nodes of one entry, each of which loses the share `loss` of all packets.

    `gaps` is the share of packets at which a gap begins: a burst is one gap.
    """

    name: str
    role: Role
    count: int
    loss: float
    gaps: float
    parameters: Parameters
    parent: str  # node that is asked first; empty for the sender of the link
    lower: tuple[str, ...] = ()  # links on which the node sends the data on
    is_on_lan: bool = False  # a repairer that answers on this link

    @property
    def keeps(self) -> bool:
        """Return whether the node keeps packets, so that no loss below is requested from above."""
        if self.role is Role.AGGREGATOR:
            return bool(self.lower) and self.parameters.relay_cache_ivl > 0
        return self.role is not Role.RECEIVER

    @property
    def is_relay(self) -> bool:
        """Return whether the node sends the data on."""
        return bool(self.lower)


@attrs.frozen(eq=False)
class FeedLink:
    """One segment: its sender, the loss of packets that reach the sender, and all other nodes. `delay_ns` is one way."""

    name: str
    sender: NodeTable
    sender_parameters: Parameters
    sender_loss: float
    members: tuple[LinkMember, ...]
    delay_ns: int
    upper: str  # link from which the sender gets the data; empty below the source

    @functools.cached_property
    def on_lan(self) -> list[LinkMember]:
        """Return the repairers that answer on this link."""
        return [member for member in self.members if member.is_on_lan]

    @functools.cached_property
    def named(self) -> dict[str, LinkMember]:
        """Return the members by name: the first one of an entry with different losses."""
        return {member.name: member for member in reversed(self.members)}

    @property
    def nodes(self) -> int:
        """Return the number of nodes that a packet has to reach."""
        return sum(member.count for member in self.members)


@attrs.frozen(eq=False)
class FeedTree:
    """Links of one feed, from the source down."""

    source: str
    stream: str
    parameters: Parameters  # of the source
    links: Mapping[str, FeedLink]

    def member_above(self, link: FeedLink) -> LinkMember:
        """Return the sender of a link as a member of the link above, which must exist."""
        return self.links[link.upper].named[link.sender.name]


def feeds_of(topology: Topology) -> list[Feed]:
    """Return all feeds of a topology, in the order of the file."""
    return [
        (node.name, stream) for node in topology.nodes.values() if node.role is Role.SOURCE for stream in node.streams
    ]


def feed_tree(
    topology: Topology,
    feed: Feed,
    delays: Mapping[str, int],
    losses: Losses = NO_LOSSES,
    counts: Mapping[str, int] = NO_COUNTS,
) -> FeedTree:
    """Return the tree of a feed. `delays` are in ns by segment; `losses` replace those of the file.

    `counts` are the numbers of nodes of patterns, instead of those of the file.
    """
    source, stream = feed
    measured: dict[str, list[tuple[str, Impairment]]] = {}
    for (segment, name), impairment in losses.items():
        measured.setdefault(segment, []).append((name, impairment))
    builder = _Builder(Tree.of(topology), stream, delays, measured, counts)
    node = topology.nodes[source]
    links: dict[str, FeedLink] = {}
    waiting = [(place.segment, node, "") for place in node.downs[:1]]
    while waiting:
        name, sender, upper = waiting.pop(0)
        if name in links:
            continue
        links[name] = builder.link(name, sender, upper)
        waiting += [
            (lower, topology.nodes[member.name], name) for member in links[name].members for lower in member.lower
        ]
    return FeedTree(source, stream, builder.parameters(node), links)


@attrs.frozen(eq=False)
class _Builder:
    tree: Tree
    stream: str
    delays: Mapping[str, int]
    measured: Mapping[str, list[tuple[str, Impairment]]]  # losses by segment
    counts: Mapping[str, int]
    _known: dict[str, Parameters] = attrs.field(factory=dict)

    def parameters(self, node: NodeTable) -> Parameters:
        if node.name not in self._known:
            self._known[node.name] = parameters_of(settings_of(self.tree.topology, node))
        return self._known[node.name]

    def link(self, name: str, sender: NodeTable, upper: str) -> FeedLink:
        members = [
            member
            for node in self.tree.on.get(name, ())
            if node is not sender and self._takes(node, name)
            for member in self._members(node, name)
        ]
        loss, _ = next(iter(self._losses(sender, name, 1)))
        return FeedLink(name, sender, self.parameters(sender), loss, tuple(members), self.delays[name], upper)

    def _takes(self, node: NodeTable, link: str) -> bool:
        """Return whether a node takes the stream from a link, and not only as a standby or on a further line."""
        is_first = node.up is not None and node.up.segment == link and not node.standby_of
        return is_first and self.stream in {stream.name for stream in streams_of(self.tree.topology, node)}

    def _members(self, node: NodeTable, link: str) -> Iterable[LinkMember]:
        count = self.counts.get(node.name, node.instances) if node.is_pattern else 1
        lower = tuple(place.segment for place in node.downstream) if node.is_relay else ()
        is_on_lan = node.role is Role.REPAIRER and node.up in node.downs
        for (loss, gaps), number in self._losses(node, link, count).items():
            yield LinkMember(
                name=node.name,
                role=node.role,
                count=number,
                loss=loss,
                gaps=gaps,
                parameters=self.parameters(node),
                parent=self._parent(node, link),
                lower=lower,
                is_on_lan=is_on_lan,
            )

    def _parent(self, node: NodeTable, link: str) -> str:
        """Return the first parent on a link, or an empty name if the sender is asked."""
        for other in self.tree.named(node.parents[:1]):
            answers_here = any(place.segment == link for place in other.downs)
            if other.role is Role.REPAIRER and other.up in other.downs and answers_here:
                return other.name
        return ""

    def _losses(self, node: NodeTable, link: str, count: int) -> Counter[Shares]:
        """Return how many nodes of an entry have which losses. The mean of measured nodes stands for those without any."""
        found: Counter[Shares] = Counter()
        for name, impairment in self.measured.get(link, ()):
            if names_node(node.name, name):
                found[_shares(impairment)] += 1
        rest = count - found.total()
        if rest > 0:
            found[_usual(found) or self._of_file(node, link)] += rest
        return found

    def _of_file(self, node: NodeTable, link: str) -> Shares:
        place = next(place for place in node.places if place.segment == link)
        loss, gaps = _shares(place.loss or node.loss or self.tree.topology.segments[link].loss or Impairment())
        for line in node.lines:
            further = line.loss or node.loss or self.tree.topology.segments[line.segment].loss or Impairment()
            loss, gaps = loss * further.asked, gaps * further.asked
        return loss, gaps


def _shares(impairment: Impairment) -> Shares:
    return impairment.asked, impairment.loss + impairment.burst_loss / max(1.0, impairment.burst_length)


def _usual(found: Counter[Shares]) -> Shares | None:
    """Return the mean losses of the measured nodes of an entry; None if none is measured."""
    total = found.total()
    if not total:
        return None
    loss, gaps = (sum(shares[at] * number for shares, number in found.items()) / total for at in (0, 1))
    return loss, gaps
