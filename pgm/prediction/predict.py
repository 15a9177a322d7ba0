"""Prediction of a topology: rows of links and nodes for people, files and comparisons."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from pgm.errors import UsageError
from pgm.prediction.counts import FeedPace, LinkCounts, count, missing_at
from pgm.prediction.machine import MachineProfile, NodeLoad
from pgm.prediction.tree import NO_COUNTS, NO_LOSSES, FeedLink, FeedTree, LinkMember, Losses, feed_tree, feeds_of
from pgm.prediction.waits import DRAWS, DrawnWaits, WaitModel, mean_ns, quantile_ns
from pgm.topology.model import Topology
from pgm.topology.node_plan import Role
from pgm.units import MILLISECOND

_RATE_SHARE = 2  # the usual offer is half of txw_max_rte, as in simulations
_HEADER_OCTETS = 24  # of a data packet: the message is the rest
_OVERLOAD = 0.9  # of the octets that repairs may take: beyond it, queues grow

Row = dict[str, Any]


@attrs.frozen(kw_only=True)
class Offer:
    """Load of every feed: `rate` messages a second of `size` octets. Rate 0 means half of the rate of the stream."""

    rate: int = 0
    size: int = 1400

    def pace(self, tree: FeedTree) -> FeedPace:
        """Return the pace of a feed."""
        parameters = tree.parameters
        per_s = self.rate or max(1, parameters.txw_max_rte // _RATE_SHARE // self.octets)
        return FeedPace.of(per_s, parameters.txw_burst_ivl)

    @property
    def octets(self) -> int:
        """Return the octets of a packet."""
        return self.size + _HEADER_OCTETS


@attrs.frozen(kw_only=True)
class Conditions:
    """Conditions of a prediction: one-way delays in ns by segment, measured losses, numbers of nodes by pattern, the load."""

    delays: Mapping[str, int]
    losses: Losses = NO_LOSSES
    counts: Mapping[str, int] = NO_COUNTS
    offer: Offer = Offer()
    draws: int = DRAWS  # of each wait


@attrs.frozen(eq=False)
class FeedPrediction:
    """Prediction of one feed: the means of its links, and the waits of the receivers on each."""

    tree: FeedTree
    pace: FeedPace
    counts: Mapping[str, LinkCounts]
    waits: Mapping[str, list[DrawnWaits]]

    @property
    def all_waits(self) -> list[DrawnWaits]:
        """Return the waits of all receivers."""
        return [one for waits in self.waits.values() for one in waits]

    @property
    def repairs(self) -> float:
        """Return the repairs on all links, and the NAKs at all nodes, in packets per packet of the feed."""
        return sum(counts.sends - 1 + sum(counts.naks_to.values()) for counts in self.counts.values())

    @property
    def source_naks(self) -> float:
        """Return the NAKs at the source per packet of the feed."""
        return sum(counts.naks_to.get(self.tree.source, 0.0) for counts in self.counts.values())


def predict_feed(topology: Topology, feed: tuple[str, str], conditions: Conditions) -> FeedPrediction:
    """Return the prediction of one feed of a topology."""
    tree = feed_tree(topology, feed, conditions.delays, conditions.losses, conditions.counts)
    pace = conditions.offer.pace(tree)
    counts = count(tree, pace)
    model = WaitModel(tree, counts, pace, conditions.draws)
    return FeedPrediction(tree, pace, counts, {name: model.of_link(link) for name, link in tree.links.items()})


def predict(topology: Topology, conditions: Conditions, machine: MachineProfile | None = None) -> Row:
    """Return the prediction of all feeds as a value for JSON. Raises `UsageError` for a file without a source."""
    feeds = feeds_of(topology)
    if not feeds:
        raise UsageError("the file has no source, so nothing is sent", remedy='add a node with role = "source"')
    return {"feeds": [_feed_row(predict_feed(topology, feed, conditions), conditions.offer, machine) for feed in feeds]}


def _feed_row(found: FeedPrediction, offer: Offer, machine: MachineProfile | None) -> Row:
    tree = found.tree
    links = [_link_row(found, link) for link in tree.links.values()]
    nodes = [_node_row(found, load, offer, machine) for load in _loads(found)]
    return {
        "source": tree.source,
        "stream": tree.stream,
        "packets_per_s": round(found.pace.per_s, 3),
        "octets": offer.octets,
        "links": links,
        "nodes": nodes,
        "overloaded": [row["node"] for row in nodes if row["repair_load"] > _OVERLOAD],
    }


def _link_row(found: FeedPrediction, link: FeedLink) -> Row:
    counts = found.counts.get(link.name)
    waits = found.waits[link.name]
    return {
        "link": link.name,
        "sender": link.sender.name,
        "nodes": link.nodes,
        "missing_at_sender": missing_at(found.tree, link),
        "sends": 1.0 if counts is None else counts.sends,
        "sends_of_sender": 1.0 if counts is None else counts.from_sender,
        "naks": 0.0 if counts is None else counts.naks,
        "missed": sum(one.weight for one in waits),
        **_wait_row(waits),
    }


def _wait_row(waits: list[DrawnWaits]) -> Row:
    if not waits:
        return {"mean_ms": None, "p50_ms": None, "p99_ms": None}
    return {
        "mean_ms": mean_ns(waits) / MILLISECOND,
        "p50_ms": quantile_ns(waits, 0.5) / MILLISECOND,
        "p99_ms": quantile_ns(waits, 0.99) / MILLISECOND,
    }


def _loads(found: FeedPrediction) -> list[NodeLoad]:
    """Return the load of each node, in packets per packet of the feed. A pattern has one row, for one of its nodes."""
    tree = found.tree
    source = next(iter(tree.links.values()))
    own = NodeLoad(name=tree.source, role=Role.SOURCE, count=1, parameters=source.sender_parameters)
    loads = [_sending(found, own, (source,))]
    seen: set[str] = set()
    for link in tree.links.values():
        entries: defaultdict[str, list[LinkMember]] = defaultdict(list)
        for member in link.members:
            entries[member.name].append(member)
        waits: defaultdict[str, list[DrawnWaits]] = defaultdict(list)
        for one in found.waits[link.name]:
            waits[one.name].append(one)
        loads += [_load(found, link, alike, waits[name]) for name, alike in entries.items() if name not in seen]
        seen |= entries.keys()
    return loads


def _load(found: FeedPrediction, link: FeedLink, alike: list[LinkMember], waits: list[DrawnWaits]) -> NodeLoad:
    first, number = alike[0], max(1, sum(member.count for member in alike))
    counts = found.counts[link.name]
    load = NodeLoad(
        name=first.name,
        role=first.role,
        count=number,
        parameters=first.parameters,
        naks_out=counts.naks_of[first.name] / number,
        missed=sum(member.loss * member.count for member in alike) / number,
        waits=tuple(waits),
    )
    if first.is_on_lan:
        together = sum(member.count for member in link.on_lan)
        repairs = (counts.sends - counts.from_sender) / together
        return attrs.evolve(load, repairs=repairs, naks_in=counts.naks_to.get(first.name, 0.0))
    return _sending(found, load, [found.tree.links[lower] for lower in first.lower if lower in found.tree.links])


def _sending(found: FeedPrediction, load: NodeLoad, links: Sequence[FeedLink]) -> NodeLoad:
    """Return a load with what the node sends on the links below it, and what it is asked for there."""
    known = [found.counts[link.name] for link in links if link.name in found.counts]
    return attrs.evolve(
        load,
        sent=float(len(links)),
        repairs=sum(counts.from_sender - 1 for counts in known),
        naks_in=sum(counts.naks_to.get(load.name, 0.0) for counts in known),
    )


def _node_row(found: FeedPrediction, load: NodeLoad, offer: Offer, machine: MachineProfile | None) -> Row:
    per_s, parameters = found.pace.per_s, load.parameters
    allowed = parameters.rdata_share * parameters.txw_max_rte / offer.octets * max(1.0, load.sent)
    row: Row = {
        "node": load.name,
        "role": load.role.value,
        "count": load.count,
        "links": int(load.sent),
        "repairs": load.repairs,
        "naks_in": load.naks_in,
        "naks_out": load.naks_out,
        "repair_load": load.repairs * per_s / allowed,
        **_wait_row(list(load.waits)),
    }
    if machine is not None:
        row["cpu"] = machine.cpu(load, per_s)
        row["memory_bytes"] = machine.memory(load, per_s * offer.octets)
    return row
