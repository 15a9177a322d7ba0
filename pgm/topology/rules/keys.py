"""Rules about the public keys of nodes, and about revoked keys."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from pgm.topology.precedence import streams_of
from pgm.topology.problems import suggestion
from pgm.topology.rules.rule import Rule, RuleFinding
from pgm.topology.tree import Tree
from pgm.trust.node_identity import number_of


def _owners(tree: Tree) -> Iterator[RuleFinding]:
    nodes = tree.topology.nodes
    patterns = [node.name for node in tree.nodes if node.is_pattern]
    for name in tree.topology.keys:
        path = ("keys", name)
        if name in patterns:
            example = name.replace("*", "1")
            message = f"the pattern {name!r} has keys, which all its nodes would share"
            yield RuleFinding(path, message, f"give each node keys of its own, as in {example!r}")
        elif name not in nodes and all(number_of(pattern, name) is None for pattern in patterns):
            known = [one.replace("*", "1") for one in nodes]
            yield RuleFinding(path, f"the keys of {name!r} belong to no node", suggestion(name, known))


def _shared(tree: Tree) -> Iterator[RuleFinding]:
    owners: dict[bytes, str] = {}
    for name, lines in tree.topology.keys.items():
        for index, keys in enumerate(lines):
            first = {owners.setdefault(octets, f"{name}[{index}]") for octets in (keys.ed25519, keys.x25519)}
            if first != {f"{name}[{index}]"}:
                others = ", ".join(sorted(first - {f"{name}[{index}]"})) or name
                message = f"the keys {keys.id} of {name!r} are those of {others}"
                yield RuleFinding(("keys", name, index), message, "make keys for each node with: pgm keys new")


def _gap(tree: Tree) -> Iterator[RuleFinding]:
    for name, lines in tree.topology.keys.items():
        for current, following in itertools.pairwise(lines):
            if following.first_day > current.end_day:
                message = f"{name!r} has no valid keys from {current.end_day} to {following.first_day}"
                remedy = f"write the first day {current.end_day} or earlier for the keys {following.id}"
                yield RuleFinding(("keys", name, 1), message, remedy)


def _revoked(tree: Tree) -> Iterator[RuleFinding]:
    revoked = tree.topology.revoked
    for name, lines in tree.topology.keys.items():
        for index, keys in enumerate(lines):
            if keys.id in revoked:
                message = f"the keys {keys.id} of {name!r} are revoked: {revoked[keys.id]}"
                remedy = (
                    f"remove the line, and make new keys with: pgm keys new {tree.topology.path} --node {name} --write"
                )
                yield RuleFinding(("keys", name, index), message, remedy)


def _signers(tree: Tree) -> Iterator[RuleFinding]:
    for stream in tree.topology.streams.values():
        if not stream.signed:
            continue
        path, names = (
            ("streams", stream.name, "signed"),
            tree.sources_of(stream.name),
        )
        if not names:
            message = f"the stream {stream.name!r} is signed, and the file has no source of it"
            yield RuleFinding(path, message, 'write the source into the file, with streams = ["' + stream.name + '"]')
        for name in names:
            if not tree.topology.keys.get(name):
                message = f"the stream {stream.name!r} is signed, and its source {name!r} has no keys"
                yield RuleFinding(path, message, f"make keys: pgm keys new {tree.topology.path} --node {name} --write")


def _verified_late(tree: Tree) -> Iterator[RuleFinding]:
    for stream in tree.topology.streams.values():
        if stream.verify == "before":
            continue
        path = ("streams", stream.name, "verify")
        if not stream.signed:
            message = f"the stream {stream.name!r} has verify = {stream.verify!r}, and its packets are not proved"
            yield RuleFinding(path, message, "write signed = true, or leave out verify")
        elif stream.sealed:
            message = f"the stream {stream.name!r} has verify = {stream.verify!r}, and a proof tells the secret of its packets"
            yield RuleFinding(path, message, "leave out verify: packets of sealed streams wait for their proofs")


def _authenticated(tree: Tree) -> Iterator[RuleFinding]:
    topology = tree.topology
    for node in tree.nodes:
        coded = [stream.name for stream in streams_of(topology, node) if stream.authenticated]
        if not coded:
            continue
        names = [node.name]
        if node.is_pattern:
            names = [node.name.replace("*", str(number)) for number in range(1, node.instances + 1)]
        why = f"the stream {coded[0]!r} is authenticated"
        lacking = [name for name in names if not topology.keys.get(name)]
        if lacking:
            lack = f" and {len(lacking) - 1} more have" if len(lacking) > 1 else " has"
            remedy = f"make keys: pgm keys new {topology.path} --node {lacking[0]} --write"
            yield RuleFinding(("nodes", node.name), f"{why}, and {lacking[0]!r}{lack} no keys", remedy)
        for place in node.places:
            if len(node.addresses_on(place.segment)) < len(names):
                message = f"{why}, and {node.name!r} has no address on {place.segment!r}"
                remedy = f"write {'addresses' if node.is_pattern else 'address'} = ..., which its requests come from"
                yield RuleFinding(("nodes", node.name), message, remedy)


def _half_secured(tree: Tree) -> Iterator[RuleFinding]:
    """Find protections that lack the one that they rest on, and clear streams beside protected ones."""
    streams = tree.topology.streams
    guarded = [name for name, stream in streams.items() if stream.signed or stream.authenticated]
    for name, stream in streams.items():
        if stream.authenticated and not stream.signed:
            message = f"the control of {name!r} is authenticated, and its data are not signed: others can forge them"
            yield RuleFinding(("streams", name, "authenticated"), message, "write signed = true")
        elif stream.signed and stream.order != "ordered":
            message = f"the SPMs of {name!r} are signed, and not its packets, because its order is {stream.order!r}"
            yield RuleFinding(
                ("streams", name, "signed"), message, 'write order = "ordered", if its receivers can wait'
            )
        elif stream.signed and not stream.authenticated and stream.flow in ("acked", "pgmcc"):
            message = f"the stream {name!r} is signed, and its acks are not authenticated: forged ones can slow it down"
            yield RuleFinding(("streams", name, "signed"), message, "write authenticated = true")
        elif guarded and name not in guarded:
            message = f"the stream {name!r} is in the clear, and {guarded[0]!r} is protected: others can forge {name!r}"
            yield RuleFinding(
                ("streams", name), message, "write signed = true, or keep the streams in files of their own"
            )
    if tree.topology.keys and not guarded:
        message = "nodes have keys, and no stream is signed or authenticated: the keys protect nothing"
        yield RuleFinding(("keys",), message, "write signed = true at a stream")


# fmt: off
RULES = (
    Rule("key-owner", "Keys belong to a node of the file, or to one node of a pattern.", _owners),
    Rule("key-shared", "No two nodes have a key in common.", _shared),
    Rule("key-gap", "The next keys of a node are valid before the current ones end.", _gap),
    Rule("stream-verify", "A stream that is verified after delivery is signed, and not sealed.", _verified_late),
    Rule("stream-signed", "Every source of a signed stream has keys.", _signers),
    Rule("stream-authenticated", "Every node of an authenticated stream has keys and an address.", _authenticated),
    Rule("half-secured", "A protected stream has all that its protection rests on, and no clear stream beside it.", _half_secured, is_warning=True),
    Rule("key-revoked", "No node lists revoked keys.", _revoked),
)
# fmt: on
