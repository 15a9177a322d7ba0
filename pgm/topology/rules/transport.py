"""Rules about what carries a segment: unicast legs, and IP protocol 113 without UDP."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pgm.topology.rules.rule import Rule, RuleFinding
from pgm.topology.tree import Tree

MANY_COPIES = 8  # of every packet on a unicast leg: from here on worth a warning; a guess


def _leg(tree: Tree) -> Iterator[RuleFinding]:
    for segment in tree.topology.segments.values():
        path = ("segments", segment.name)
        if segment.unicast and segment.group:
            message = f"{segment.name!r} is a unicast leg and has the group {segment.group}"
            yield RuleFinding((*path, "group"), message, "remove group, or remove unicast where multicast works")
        elif segment.unicast and not any(node.addresses_on(segment.name) for node in tree.nodes):
            message = f"nobody on the unicast leg {segment.name!r} has an address"
            yield RuleFinding(path, message, "put the relays at both its ends on it, each with its address")


def _copies(tree: Tree) -> Iterator[RuleFinding]:
    for segment in tree.topology.segments.values():
        if not segment.unicast:
            continue
        copies = sum(len(node.addresses_on(segment.name)) for node in tree.nodes) - 1
        if copies > MANY_COPIES:
            message = f"what a node says on the unicast leg {segment.name!r} is sent {copies} times"
            remedy = "let a relay at the far end carry the stream to a multicast segment"
            yield RuleFinding(("segments", segment.name, "unicast"), message, remedy)


RULES: Iterable[Rule] = (
    Rule("leg", "A unicast leg has no group, and nodes with addresses.", _leg),
    Rule("copies", f"A unicast leg has no more than {MANY_COPIES + 1} nodes.", _copies, is_warning=True),
)
