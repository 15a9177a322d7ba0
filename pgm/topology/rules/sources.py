"""Rules about the permitted sources of a stream."""

from __future__ import annotations

from collections.abc import Iterator

from pgm.errors import UnitError
from pgm.topology.addresses import parse_address
from pgm.topology.model import NodeTable, StreamTable
from pgm.topology.node_plan import Role
from pgm.topology.problems import suggestion
from pgm.topology.rules.rule import Rule, RuleFinding
from pgm.topology.tree import Tree

ANY_SOURCE = ("any",)  # a list that permits all senders


def default_sources(tree: Tree, stream: StreamTable) -> list[NodeTable]:
    """Return the file's sources of a stream, if the file has an address of each on all its segments; else nothing."""
    sources = [node for node in tree.nodes if node.role is Role.SOURCE and stream.name in node.streams]
    are_known = all(node.addresses_on(place.segment) for node in sources for place in node.places)
    return sources if are_known else []


def listed_addresses(tree: Tree, stream: StreamTable) -> set[str]:
    """Return the addresses in a stream's list of sources, in their usual spelling."""
    entries = () if stream.sources == ANY_SOURCE else stream.sources
    return {parse_address(entry) for entry in entries if entry not in tree.topology.nodes}


def _entries(tree: Tree) -> Iterator[RuleFinding]:
    for stream in tree.topology.streams.values():
        senders = [node.name for node in tree.nodes if node.role is Role.SOURCE and stream.name in node.streams]
        for index, entry in enumerate(() if stream.sources == ANY_SOURCE else stream.sources):
            path = ("streams", stream.name, "sources", index)
            if entry in tree.topology.nodes:
                if entry not in senders:
                    message = f"{entry!r} is a source of {stream.name!r}, but does not send it"
                    yield RuleFinding(path, message, f"name a node that sends it: {', '.join(senders) or 'none'}")
                continue
            try:
                parse_address(entry)
            except UnitError:
                message = f"the source {entry!r} of {stream.name!r} is neither a node nor an address"
                yield RuleFinding(path, message, suggestion(entry, senders))


def _all_listed(tree: Tree) -> Iterator[RuleFinding]:
    for stream in tree.topology.streams.values():
        if not stream.sources or stream.sources == ANY_SOURCE:
            continue
        for node in tree.nodes:
            if node.role is not Role.SOURCE or stream.name not in node.streams or node.name in stream.sources:
                continue
            addresses = {address for place in node.places for address in node.addresses_on(place.segment)}
            if addresses and addresses <= set(stream.sources):
                continue
            message = (
                f"{node.name!r} sends {stream.name!r} and is not among its sources: all nodes would drop its packets"
            )
            yield RuleFinding(("streams", stream.name, "sources"), message, f"add {node.name!r}, or remove the list")


# fmt: off
RULES = (
    Rule("source-list", "The `sources` of a stream are nodes that send it, or addresses.", _entries),
    Rule("unlisted-source", "Each node that sends a stream with `sources` is one of them.", _all_listed),
)
# fmt: on
