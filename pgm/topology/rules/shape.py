"""Rules about single entries: names, keys of each role, and unknown names."""

from __future__ import annotations

import posixpath
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from pgm.deprecated import PARAMETERS
from pgm.parameters import ROWS
from pgm.topology.locate import KeyPath
from pgm.topology.model import NodeTable, Overrides
from pgm.topology.node_plan import Role
from pgm.topology.precedence import is_about_answering, streams_of
from pgm.topology.problems import suggestion
from pgm.topology.rules.rule import Rule, RuleFinding
from pgm.topology.tree import Tree
from pgm.trust.node_identity import NODE_NUMBER

FORMER_NAME = "former-name"  # rule of the names in `pgm.deprecated`
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
_ELEMENTS = (Role.AGGREGATOR, Role.REPAIRER)
NAME_REMEDY = "use letters, digits, dots, dashes and underscores"


def is_name(text: str) -> bool:
    """Return whether a text can be a name of a tree, a stream, a segment or a node."""
    return _NAME.fullmatch(text) is not None


def _names(tree: Tree) -> Iterator[RuleFinding]:
    topology = tree.topology
    # The tree's name is part of paths and of unit names. Another error reports a missing name.
    if not is_name(topology.name) and (topology.name or ("name",) in topology.lines):
        yield RuleFinding(("name",), f"{topology.name!r} is not a valid name of a tree", NAME_REMEDY)
    for section, names in (("streams", topology.streams), ("segments", topology.segments)):
        for name in names:
            if not is_name(name):
                yield RuleFinding((section, name), f"{name!r} is not a valid name in {section}", NAME_REMEDY)
    for name in topology.nodes:
        if not is_name(name.replace("*", "1")):
            yield RuleFinding(
                ("nodes", name), f"{name!r} is not a valid name of a node", f"{NAME_REMEDY}, and one * in a pattern"
            )


def _nodes(tree: Tree) -> Iterator[RuleFinding]:
    if not tree.topology.nodes:
        yield RuleFinding(("nodes",), "the tree has no nodes", 'add [nodes.NAME] with role = "source", and others')


def _pattern(tree: Tree) -> Iterator[RuleFinding]:
    for node in tree.nodes:
        path = ("nodes", node.name)
        if node.name.count("*") > 1:
            yield RuleFinding(
                path, f"the pattern {node.name!r} has more than one *", "keep one * at the place of the number"
            )
        if node.is_pattern and node.role is not Role.RECEIVER:
            message = f"the role of the pattern {node.name!r} is {node.role.value}: only receivers can be a pattern"
            yield RuleFinding(path, message, "give every source and element an entry of its own")
        if node.is_pattern and node.address is not None:
            message = f"the pattern {node.name!r} has the single address {node.address}"
            yield RuleFinding(
                (*path, "address"), message, f'write addresses = "{node.address}-..." with an address for each'
            )
        for key in ("count", "addresses"):
            if not node.is_pattern and getattr(node, key) is not None:
                message = f"{node.name!r} is no pattern and has {key}"
                yield RuleFinding((*path, key), message, f'call it "{node.name}-*", or write address')


def _patterns_of(name: str) -> Iterator[tuple[str, int]]:
    """Yield every pattern that a name may match, with its number."""
    for start in range(len(name)):
        for end in range(start + 1, len(name) + 1):
            if not NODE_NUMBER.fullmatch(name, start, end):
                break
            yield f"{name[:start]}*{name[end:]}", int(name[start:end])


def _same_name(tree: Tree) -> Iterator[RuleFinding]:
    patterns = {node.name: node for node in tree.nodes if node.is_pattern and node.name.count("*") == 1}
    for node in tree.nodes:
        # Two patterns such as "a-*" and "a-1*" may share a node name, which the first number of one of them shows.
        for name, number in _patterns_of(node.name.replace("*", "1")):
            pattern = patterns.get(name)
            if pattern is not None and pattern is not node and number <= pattern.instances and node.instances:
                message = f"{node.name!r} is also number {number} of the pattern {pattern.name!r}"
                yield RuleFinding(("nodes", node.name), message, f"rename it, or set count below {number}")


def _shape(tree: Tree) -> Iterator[RuleFinding]:
    for node in tree.nodes:
        path = ("nodes", node.name)
        is_end = node.role not in _ELEMENTS
        if is_end and (node.upstream or node.downstream):
            message = f"the {node.role.value} {node.name!r} has upstream or downstream"
            yield RuleFinding(path, message, "write segment and address: only aggregators and repairers relay")
        elif node.segment and (node.upstream or node.downstream):
            message = f"{node.name!r} has both segment = {node.segment!r} and upstream or downstream"
            yield RuleFinding(path, message, "write segment for an on-LAN node, upstream and downstream for a relay")
        elif bool(node.upstream) != bool(node.downstream):
            lacks = "downstream" if node.upstream else "upstream"
            yield RuleFinding(path, f"the relay {node.name!r} has no {lacks}", _RELAY_REMEDY)
        elif not node.segment and not node.upstream:
            remedy = 'write segment = "..."' if is_end else f'write segment = "...", or {_RELAY_REMEDY}'
            yield RuleFinding(path, f"{node.name!r} is on no segment", remedy)
        if node.address is not None and not node.segment and node.upstream:
            message = f"the relay {node.name!r} has address = {node.address!r} without a segment"
            yield RuleFinding((*path, "address"), message, "write the address in upstream and in each downstream")
        yield from _seats(node)


_RELAY_REMEDY = (
    'write upstream = { segment = "...", address = "..." } and downstream = [{ segment = "...", address = "..." }]'
)


def _seats(node: NodeTable) -> Iterator[RuleFinding]:
    counts = Counter(place.segment for place in node.downstream)
    if node.upstream is not None and node.upstream.segment in counts:
        message = f"{node.name!r} has the segment {node.upstream.segment!r} upstream and downstream"
        remedy = f'write segment = "{node.upstream.segment}" for an on-LAN node, or name the segment below'
        yield RuleFinding(("nodes", node.name, "downstream"), message, remedy)
    for name, count in counts.items():
        if count > 1:
            message = f"{node.name!r} has the segment {name!r} downstream {count} times"
            yield RuleFinding(("nodes", node.name, "downstream"), message, "name every segment once")


# Keys that only some roles read, with these roles.
_READ_BY: dict[str, tuple[Role, ...]] = {
    "parents": (Role.RECEIVER, *_ELEMENTS),
    "repairers": (Role.AGGREGATOR,),
    "cache": (Role.REPAIRER,),
    "record": (Role.RECEIVER, Role.REPAIRER),
    "standby_of": _ELEMENTS,
}


def _role(tree: Tree) -> Iterator[RuleFinding]:
    for node in tree.nodes:
        for key, roles in _READ_BY.items():
            if getattr(node, key) and node.role not in roles:
                readers = " and ".join(f"{role.value}s" for role in roles)
                message = f"the {node.role.value} {node.name!r} has {key}"
                yield RuleFinding(("nodes", node.name, key), message, f"remove it: only {readers} read {key}")
        if node.role is Role.SOURCE and not node.streams:
            known = ", ".join(f'"{name}"' for name in tree.topology.streams) or '"..."'
            yield RuleFinding(
                ("nodes", node.name), f"the source {node.name!r} has no streams", f"write streams = [{known}]"
            )


def _unknown(tree: Tree) -> Iterator[RuleFinding]:
    topology = tree.topology
    for stream in topology.streams.values():
        if stream.segment:
            yield from _look_up(("streams", stream.name, "segment"), [stream.segment], topology.segments, "segment")
    for node in tree.nodes:
        path: KeyPath = ("nodes", node.name)
        places: list[tuple[KeyPath, str]] = [((*path, "segment"), node.segment)] if node.segment else []
        if node.upstream is not None:
            places.append(((*path, "upstream"), node.upstream.segment))
        places += [((*path, "downstream", index), place.segment) for index, place in enumerate(node.downstream)]
        places += [((*path, "lines", index), line.segment) for index, line in enumerate(node.lines)]
        for where, segment in places:
            yield from _look_up(where, [segment], topology.segments, "segment")
        yield from _look_up((*path, "streams"), node.streams, topology.streams, "stream")
        for key, names in (("parents", node.parents), ("repairers", node.repairers)):
            yield from _look_up((*path, key), names, topology.nodes, "node")
        for index, line in enumerate(node.lines):
            yield from _look_up((*path, "lines", index, "parents"), line.parents, topology.nodes, "node")
        if node.standby_of:
            yield from _look_up((*path, "standby_of"), [node.standby_of], topology.nodes, "node")


def _look_up(path: KeyPath, names: Iterable[str], known: Mapping[str, object], kind: str) -> Iterator[RuleFinding]:
    for index, name in enumerate(names):
        if name not in known:
            is_item = path[-1] in ("streams", "parents", "repairers")
            message = f"{path[1]!r} names the {kind} {name!r}, which does not exist"
            yield RuleFinding((*path, index) if is_item else path, message, suggestion(name, known))


def _twice(tree: Tree) -> Iterator[RuleFinding]:
    for node in tree.nodes:
        for key in ("streams", "parents", "repairers"):
            for name, count in Counter(getattr(node, key)).items():
                if count > 1:
                    message = f"{node.name!r} lists {name!r} {count} times in {key}"
                    yield RuleFinding(("nodes", node.name, key), message, "name it once, at its place in the order")


def _data_ports(tree: Tree) -> Iterator[RuleFinding]:
    seen: dict[int, str] = {}
    for stream in tree.topology.streams.values():
        other = seen.setdefault(stream.data_port, stream.name)
        if other != stream.name and stream.data_port:
            message = f"streams {other!r} and {stream.name!r} have the same data_port {stream.data_port}"
            remedy = f"give {stream.name!r} another data_port: receivers distinguish streams by it"
            yield RuleFinding(("streams", stream.name, "data_port"), message, remedy)


def _disagreement(tree: Tree) -> Iterator[RuleFinding]:
    topology = tree.topology
    for node in tree.nodes:
        places = [topology.segments[place.segment] for place in node.downs if place.segment in topology.segments]
        below = [(f"segment {segment.name}", segment.parameters) for segment in places if node.is_relay]
        overridden = set(node.parameters).union(*(parameters for _, parameters in below))
        streams = [] if node.role is Role.SOURCE else streams_of(topology, node)
        above = [(f"stream {stream.name}", stream.parameters) for stream in streams]
        for key, first, second in [
            *((key, a, b) for key, a, b in _differences(above) if key not in overridden and key != "txw_max_rte"),
            *(
                (key, a, b)
                for key, a, b in _differences(below)
                if key not in node.parameters and is_about_answering(key)
            ),
        ]:
            if node.role.value in ROWS[key].roles:
                message = f"{node.name!r} gets {key} = {first} and {second}"
                yield RuleFinding(("nodes", node.name), message, f"set {key} in the parameters of {node.name!r}")


def _differences(levels: list[tuple[str, Overrides]]) -> Iterator[tuple[str, str, str]]:
    first: dict[str, tuple[str, object]] = {}
    reported = set()
    for level, parameters in levels:
        for key, value in parameters.items():
            other, known = first.setdefault(key, (level, value))
            if known != value and key not in reported:
                reported.add(key)
                spell = ROWS[key].spell
                yield key, f"{spell(known)} from {other}", f"{spell(value)} from {level}"


def _unread(tree: Tree) -> Iterator[RuleFinding]:
    for node in tree.nodes:
        for key in node.parameters:
            roles = ROWS[key].roles
            if node.role.value not in roles:
                message = f"the {node.role.value} {node.name!r} sets {key}, which it does not read"
                remedy = f"set it at a {' or '.join(roles)}, or remove it"
                yield RuleFinding(("nodes", node.name, "parameters", key), message, remedy)


def _former_names(tree: Tree) -> Iterator[RuleFinding]:
    for path in tree.topology.lines:
        key = str(path[-1])
        if path[-2:-1] == ("parameters",) and key in PARAMETERS:
            message = f"{key} is the former name of {PARAMETERS[key]}, and the next version refuses it"
            yield RuleFinding(path, message, f"write {PARAMETERS[key]}")


def _is_address(text: str) -> bool:
    """Return whether a text is HOST:PORT."""
    host, _, port = text.rpartition(":")
    return bool(host) and port.isdecimal() and 0 < int(port) < 1 << 16


def _records(tree: Tree) -> Iterator[RuleFinding]:
    """Find nodes that would record into one directory. The lock of one would block the other."""
    seen: dict[str, str] = {}
    for node in tree.nodes:
        if node.record is None:
            continue
        path: KeyPath = ("nodes", node.name, "record")
        other = seen.setdefault(posixpath.normpath(node.record.directory), node.name)
        if other != node.name:
            message = f"{node.name!r} records into {node.record.directory!r}, as {other!r} does"
            yield RuleFinding(path, message, "give each node a directory of its own")
        elif node.record.serve and not _is_address(node.record.serve):
            message = f"serve = {node.record.serve!r} of {node.name!r} is no address"
            yield RuleFinding((*path, "serve"), message, "write HOST:PORT, as in 10.0.2.5:3057")
        elif node.instances > 1:
            message = f"the {node.instances} nodes of {node.name!r} would all record into {node.record.directory!r}"
            yield RuleFinding(
                path, message, "give the recording node an entry of its own, or name a directory by --dir"
            )


# fmt: off
RULES = (
    Rule("names", "Names are made of letters, digits, dots, dashes and underscores.", _names),
    Rule("nodes", "A tree has nodes.", _nodes),
    Rule("pattern", "A name with one `*` is a pattern of receivers. Only a pattern has `count` and `addresses`.", _pattern),
    Rule("same-name", "No name is also a number of a pattern.", _same_name),
    Rule("shape", "A node has `segment`. A relay has `upstream` and `downstream` instead, on different segments.", _shape),
    Rule("role", "A node has only keys that its role reads, and a source names its streams.", _role),
    Rule("record", "Every `record.directory` belongs to one node, and `record.serve` is HOST:PORT.", _records),
    Rule("unknown-name", "Every named segment, stream, parent, repairer and relay exists.", _unknown),
    Rule("twice", "A list names each entry once.", _twice),
    Rule("data-port", "Every stream has a `data_port` of its own.", _data_ports),
    Rule("disagreement", "The streams and segments of one node do not contradict each other.", _disagreement),
    Rule("unread", "A node sets only parameters that its role reads.", _unread, is_warning=True),
    Rule(FORMER_NAME, "Parameters have their present names.", _former_names, is_warning=True),
)
# fmt: on
