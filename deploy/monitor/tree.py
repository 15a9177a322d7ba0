"""Tree of a view's nodes, from their segments and parents."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import TypeAlias

from pgm.fleet.nodes import NodeRecord

_Key: TypeAlias = tuple[str, str]  # topology, and a segment or an address


def in_tree(nodes: Sequence[NodeRecord]) -> Iterator[tuple[int, NodeRecord]]:
    """Return every node once, after its parent, with its depth.

    A node without a parent among `nodes` has depth 0. Siblings keep the order of `nodes`.
    """
    above = parents_of(nodes)
    below: dict[int, list[NodeRecord]] = defaultdict(list)
    for node in nodes:
        parent = above[id(node)]
        if parent is not None:
            below[id(parent)].append(node)
    shown: set[int] = set()
    for node in [
        *(other for other in nodes if above[id(other)] is None),
        *nodes,
    ]:  # the second pass covers nodes whose parents form a circle
        yield from _walk(node, 0, below, shown)


def _walk(
    node: NodeRecord, depth: int, below: dict[int, list[NodeRecord]], shown: set[int]
) -> Iterator[tuple[int, NodeRecord]]:
    waiting = [(depth, node)]
    while waiting:
        depth, node = waiting.pop()
        if id(node) not in shown:
            shown.add(id(node))
            yield depth, node
            waiting += [(depth + 1, other) for other in reversed(below[id(node)])]


def parents_of(nodes: Sequence[NodeRecord]) -> dict[int, NodeRecord | None]:
    """Return the parent of each node among `nodes`, or None, by the `id` of the node.

    The parent must be on one of the node's upstream segments, because an aggregator also asks repairers below it. For a
    node without parents, the parent is a node that relays to its segment.
    """
    at: dict[_Key, list[NodeRecord]] = defaultdict(list)
    relays: dict[_Key, list[NodeRecord]] = defaultdict(list)
    for node in nodes:
        for place in node.places:
            if place.address is not None:
                at[node.topology, place.address].append(node)
            if place.side == "down":
                relays[node.topology, place.segment].append(node)
    return {id(node): _parent(node, at, relays) for node in nodes}


def upstream_of(node: NodeRecord) -> list[str]:
    """Return the segments that bring a node its data."""
    return [place.segment for place in node.places if place.side != "down"]


def _parent(
    node: NodeRecord, at: dict[_Key, list[NodeRecord]], relays: dict[_Key, list[NodeRecord]]
) -> NodeRecord | None:
    if node.role == "source":
        return None
    ups = upstream_of(node)
    for address in node.parents:
        for other in at.get((node.topology, address), ()):
            if other is not node and any(place.address == address and place.segment in ups for place in other.places):
                return other
    if node.parents:
        return None
    return next((other for up in ups for other in relays.get((node.topology, up), ()) if other is not node), None)
