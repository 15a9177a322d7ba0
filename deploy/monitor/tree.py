"""Tree of a view's nodes, from their segments and parents."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from pgm.fleet.nodes import NodeRecord


def in_tree(nodes: Sequence[NodeRecord]) -> Iterator[tuple[int, NodeRecord]]:
    """Return every node once, after its parent, with its depth.

    A node without a parent on this machine has depth 0. Siblings keep the order of `nodes`.
    """
    above = {id(node): _parent(node, nodes) for node in nodes}
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


def _parent(node: NodeRecord, nodes: Sequence[NodeRecord]) -> NodeRecord | None:
    """Return the node's parent in the view, or None.

    The parent must be on one of the node's upstream segments, because an aggregator also asks repairers below it. For a
    node without parents, the parent is a node that relays to its segment.
    """
    if node.role == "source":
        return None
    ups = {place.segment for place in node.places if place.side != "down"}
    others = [other for other in nodes if other is not node and other.topology == node.topology]
    for address in node.parents:
        for other in others:
            if any(place.address == address and place.segment in ups for place in other.places):
                return other
    carriers = (
        other for other in others if any(place.side == "down" and place.segment in ups for place in other.places)
    )
    return None if node.parents else next(carriers, None)
