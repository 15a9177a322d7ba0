"""Rules about sealed streams and their readers."""

from __future__ import annotations

from collections.abc import Iterator

from pgm.topology.model import NodeTable, StreamTable
from pgm.topology.node_plan import Role
from pgm.topology.precedence import streams_of
from pgm.topology.problems import suggestion
from pgm.topology.rules.rule import Rule, RuleFinding
from pgm.topology.tree import Tree
from pgm.trust.node_identity import names_node, number_of

_READING = (Role.RECEIVER, Role.SOURCE)  # a source's node may be opened as a receiver, too


def readers_of(tree: Tree, stream: StreamTable) -> list[str]:
    """Return the names of the nodes with keys that may read a sealed stream."""
    patterns = [node for node in tree.nodes if node.is_pattern]
    readers = []
    for name in tree.topology.keys:
        node = tree.topology.nodes.get(name)
        if node is None:
            node = next((one for one in patterns if number_of(one.name, name) is not None), None)
        if node is not None and _reads(tree, stream, node, name):
            readers.append(name)
    return readers


def _reads(tree: Tree, stream: StreamTable, node: NodeTable, name: str) -> bool:
    """Return whether a node, by the name of its own, is a reader. `node` is its entry in the file."""
    if stream.readers:
        return node.role in _READING and any(names_node(entry, name) for entry in stream.readers)
    return node.role is Role.RECEIVER and stream in streams_of(tree.topology, node)


def _sealed(tree: Tree) -> Iterator[RuleFinding]:
    for stream in tree.topology.streams.values():
        path = ("streams", stream.name, "sealed")
        if not stream.sealed:
            if stream.readers:
                message = f"the stream {stream.name!r} has readers, and is not sealed: every node can read it"
                yield RuleFinding(
                    ("streams", stream.name, "readers"), message, "write sealed = true, or leave out readers"
                )
            continue
        if not stream.signed:
            message = f"the stream {stream.name!r} is sealed, and not signed: anybody could change its messages"
            yield RuleFinding(path, message, "write signed = true, too")
        if not readers_of(tree, stream):
            message = f"the stream {stream.name!r} is sealed, and no node that may read it has keys"
            remedy = f"make keys on the host of each receiver: pgm keys new {tree.topology.path} --node NAME --write"
            yield RuleFinding(path, message, remedy)


def _readers(tree: Tree) -> Iterator[RuleFinding]:
    known = [node for node in tree.nodes if node.role in _READING]
    for stream in tree.topology.streams.values():
        for index, entry in enumerate(stream.readers):
            path = ("streams", stream.name, "readers", index)
            nodes = [node for node in tree.nodes if names_node(entry, node.name) or _is_of(node, entry)]
            if not nodes:
                message = f"the reader {entry!r} of {stream.name!r} is no node of the file"
                yield RuleFinding(path, message, suggestion(entry, [node.name for node in known]))
            for node in nodes:
                if node.role not in _READING:
                    message = f"the {node.role.value} {node.name!r} is a reader of {stream.name!r}, and needs no secret"
                    yield RuleFinding(path, message, "leave it out: elements repair a sealed stream without keys")
                elif stream not in streams_of(tree.topology, node):
                    message = f"{node.name!r} is a reader of {stream.name!r}, and does not take it"
                    yield RuleFinding(path, message, f"add {stream.name!r} to the streams of {node.name!r}")


def _is_of(node: NodeTable, name: str) -> bool:
    """Return whether a name is that of one node of a pattern."""
    return node.is_pattern and number_of(node.name, name) is not None


def _keys(tree: Tree) -> Iterator[RuleFinding]:
    for stream in tree.topology.streams.values():
        if not stream.sealed:
            continue
        readers = {*readers_of(tree, stream), *_revoked(tree)}
        for node in tree.nodes:
            if node.is_pattern and node.count is None and any(_is_of(node, name) for name in readers):
                continue  # any number of nodes may start
            missing = [name for name in _instances(node) if name not in readers and _reads(tree, stream, node, name)]
            if not missing:
                continue
            more = f" and {len(missing) - 1} others of {node.name!r}" if missing[1:] else ""
            message = f"the stream {stream.name!r} is sealed, and its receiver {missing[0]!r}{more} has no keys"
            remedy = f"make keys: pgm keys new {tree.topology.path} --node {missing[0]} --write; or list the readers"
            yield RuleFinding(("streams", stream.name, "sealed"), message, remedy)


def _revoked(tree: Tree) -> Iterator[str]:
    """Yield the nodes that `pgm keys revoke` names in its reasons: they are left out on purpose."""
    for reason in tree.topology.revoked.values():
        yield reason.partition(":")[0].partition(" ")[2]


def _instances(node: NodeTable) -> list[str]:
    return [node.name.replace("*", str(number)) for number in range(1, node.instances + 1)]


# fmt: off
RULES = (
    Rule("stream-sealed", "A sealed stream is signed, and has readers.", _sealed),
    Rule("stream-readers", "Readers of a sealed stream are receivers or sources of the file that take it.", _readers),
    Rule("reader-keys", "Every receiver that may read a sealed stream has keys.", _keys),
)
# fmt: on
