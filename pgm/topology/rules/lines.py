"""Rules about lines: further segments with the same streams."""

from __future__ import annotations

from collections.abc import Iterator

from pgm.topology.model import LineTable, NodeTable
from pgm.topology.node_plan import Role
from pgm.topology.precedence import streams_of
from pgm.topology.rules.rule import Rule, RuleFinding
from pgm.topology.tree import Feed, Tree


def _lines(tree: Tree) -> Iterator[tuple[NodeTable, LineTable, tuple[str | int, ...]]]:
    for node in tree.nodes:
        for index, line in enumerate(node.lines):
            yield node, line, ("nodes", node.name, "lines", index)


def _seats(tree: Tree) -> Iterator[RuleFinding]:
    for node, line, path in _lines(tree):
        if node.role is Role.AGGREGATOR:
            message = f"the aggregator {node.name!r} has lines, but keeps no data to detect a second copy"
            yield RuleFinding(path, message, f"make {node.name!r} a repairer, or have an aggregator for each line")
            continue
        seats = [place.segment for place in node.places]
        if seats.count(line.segment) > 1:
            message = f"{node.name!r} has the segment {line.segment!r} twice"
            yield RuleFinding(path, message, "name another segment that carries the streams")


def _addresses(tree: Tree) -> Iterator[RuleFinding]:
    for node, line, path in _lines(tree):
        segment = tree.topology.segments.get(line.segment)
        if not node.is_pattern:
            if line.addresses is not None:
                yield RuleFinding(
                    path, f"{node.name!r} is no pattern and has addresses on {line.segment}", "write address"
                )
            continue
        if line.address is not None:
            message = f"the pattern {node.name!r} has the single address {line.address} on {line.segment}"
            yield RuleFinding(path, message, f'write addresses = "{line.address}-..." with an address for each')
        elif (line.addresses is None) != (node.addresses is None) or (
            line.addresses is None and segment is not None and segment.needs_addresses
        ):
            message = f"the pattern {node.name!r} has addresses on some of its segments, and not on all"
            yield RuleFinding(path, message, "write addresses here and for the node")
        elif line.addresses is not None and line.addresses.size < node.instances:
            message = (
                f"{node.name!r} has count = {node.instances} and {line.addresses.size} addresses on {line.segment}"
            )
            yield RuleFinding(path, message, f"extend the range, or set count = {line.addresses.size}")


def _parents(tree: Tree) -> Iterator[RuleFinding]:
    for node, line, path in _lines(tree):
        if node.role is Role.SOURCE and line.parents:
            yield RuleFinding(
                (*path, "parents"), f"the source {node.name!r} has parents on {line.segment}", "remove them"
            )
            continue
        answering = {other.name for other in tree.answering_on(line.segment)} - {node.name}
        for index, name in enumerate(line.parents):
            if name in tree.topology.nodes and name not in answering:
                message = f"{name!r}, a parent of {node.name!r} on {line.segment}, does not answer there"
                near = ", ".join(sorted(answering)) or "none"
                yield RuleFinding((*path, "parents", index), message, f"name a node that answers there: {near}")


def _brings_the_same(tree: Tree) -> Iterator[RuleFinding]:
    for node, line, path in _lines(tree):
        if node.up is None or line.segment not in tree.topology.segments or node.up.segment not in tree.feeds:
            continue
        wanted = {stream.name for stream in streams_of(tree.topology, node)}
        lacks = _wanted(tree, node.up.segment, wanted) - _wanted(tree, line.segment, wanted)
        for source, stream in sorted(lacks):
            message = (
                f"{line.segment} does not bring {stream!r} of {source!r} to {node.name!r}, as {node.up.segment} does"
            )
            remedy = f"put {line.segment} below a relay that carries it, or among the lines of {source!r}"
            yield RuleFinding(path, message, remedy)


def _wanted(tree: Tree, segment: str, streams: set[str]) -> set[Feed]:
    return {feed for feed in tree.feeds.get(segment, ()) if feed[1] in streams}


def _flows(tree: Tree) -> Iterator[RuleFinding]:
    for node, _, path in _lines(tree):
        for stream in streams_of(tree.topology, node):
            if stream.flow == "pgmcc":
                message = (
                    f"the stream {stream.name!r} of {node.name!r} has lines and flow = 'pgmcc': "
                    "no receiver reports a packet that one line loses and another brings, so a full line would not slow the source"
                )
                yield RuleFinding(path, message, 'write flow = "rate" or "acked", or keep one line')


# fmt: off
RULES = (
    Rule("line-seat", "A line is a separate segment of a source, a receiver or a repairer.", _seats),
    Rule("line-address", "A node has an address on all of its lines. A receiver may have an address on none.", _addresses),
    Rule("line-parent", "The parents of a line answer on it. A source has no parents.", _parents),
    Rule("line-fed", "A line brings the streams of the node's first segment, from the same sources.", _brings_the_same),
    Rule("line-flow", "Streams with several lines have no congestion control: one line hides the losses of a full line.", _flows),
)
# fmt: on
