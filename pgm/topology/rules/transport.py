"""Rules about the transport of a segment: unicast legs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pgm.topology.rules.rule import Rule, RuleFinding
from pgm.topology.tree import Tree

MANY_COPIES = 8  # copies of a packet on a unicast leg above which `check` warns; an estimate


def _leg(tree: Tree) -> Iterator[RuleFinding]:
    for segment in tree.topology.segments.values():
        path = ("segments", segment.name)
        if segment.unicast and segment.group:
            message = f"{segment.name!r} is a unicast leg and has the group {segment.group}"
            yield RuleFinding((*path, "group"), message, "remove group, or remove unicast if multicast works")
        elif segment.unicast and not any(node.addresses_on(segment.name) for node in tree.nodes):
            message = f"no node on the unicast leg {segment.name!r} has an address"
            yield RuleFinding(path, message, "put the relays of both ends on the leg, each with its address")


def _copies(tree: Tree) -> Iterator[RuleFinding]:
    for segment in tree.topology.segments.values():
        if not segment.unicast:
            continue
        copies = sum(len(node.addresses_on(segment.name)) for node in tree.nodes) - 1
        if copies > MANY_COPIES:
            message = f"each packet to all nodes of the unicast leg {segment.name!r} is sent {copies} times"
            remedy = "let a relay at the far end carry the stream to a multicast segment"
            yield RuleFinding(("segments", segment.name, "unicast"), message, remedy)


# fmt: off
RULES: Iterable[Rule] = (
    Rule("leg", "A unicast leg has no group, and has nodes with addresses.", _leg),
    Rule("copies", f"A unicast leg has no more than {MANY_COPIES + 1} nodes.", _copies, is_warning=True),
)
# fmt: on
