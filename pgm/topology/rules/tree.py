"""Rules about the links between nodes: parents, relays, standbys, and the arrival of streams."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise

from pgm.topology.model import NodeTable
from pgm.topology.node_plan import Role
from pgm.topology.rules.rule import Rule, RuleFinding
from pgm.topology.tree import Tree

MANY_RECEIVERS = 20  # receivers above which `check` warns about a segment without a repairer; an estimate


def _cycles(edges: dict[str, list[str]]) -> Iterator[list[str]]:
    """Yield cycles of a graph as [a, b, ..., a]. Each cycle is broken before the search for the next."""
    edges = {name: list(others) for name, others in edges.items()}
    while True:
        try:
            TopologicalSorter(edges).prepare()
        except CycleError as error:
            cycle = list(reversed(error.args[1]))  # the sorter returns the cycle against the direction of the edges
            yield cycle
            edges[cycle[0]].remove(cycle[1])
        else:
            return


def _parent_loop(tree: Tree) -> Iterator[RuleFinding]:
    edges = {node.name: [parent.name for parent in tree.named(node.parents)] for node in tree.nodes}
    for cycle in _cycles(edges):
        message = f"the parents form a loop: {' asks '.join(cycle)}"
        remedy = (
            f"remove {cycle[1]!r} from the parents of {cycle[0]!r}, or break the loop at the node nearest to the source"
        )
        yield RuleFinding(("nodes", cycle[0], "parents"), message, remedy)


def _segment_loop(tree: Tree) -> Iterator[RuleFinding]:
    edges: dict[str, list[str]] = {}
    carriers: dict[tuple[str, str], NodeTable] = {}
    for node in tree.nodes:
        if node.upstream is None or not node.is_relay:
            continue
        for step in ((up.segment, down.segment) for up in node.ups for down in node.downstream):
            if step[0] != step[1] and step not in carriers:
                carriers[step] = node
                edges.setdefault(step[0], []).append(step[1])
    for cycle in _cycles(edges):
        relays = [carriers[step] for step in pairwise(cycle)]
        names = ", ".join(relay.name for relay in relays)
        message = f"data would run in a circle: {' -> '.join(cycle)}, carried by {names}"
        yield RuleFinding(
            ("nodes", relays[-1].name, "downstream"), message, "give one of them other downstream segments"
        )


def _parents(tree: Tree) -> Iterator[RuleFinding]:
    for node in tree.nodes:
        for index, name in enumerate(node.parents):
            parent = tree.topology.nodes.get(name)
            if parent is None or parent is node or node.up is None:
                continue
            path = ("nodes", node.name, "parents", index)
            answers = [place.segment for place in parent.downs]
            if parent.role is Role.RECEIVER:
                message = f"{node.name!r} has the receiver {name!r} as a parent: receivers repair nothing"
                yield RuleFinding(path, message, "name a repairer, an aggregator or a source", (("nodes", name),))
            elif node.up.segment not in answers and _exist(tree, node.up.segment, *answers) and answers:
                sides = f"{node.name!r} asks on {node.up.segment}, {name!r} answers on {' and '.join(answers)}"
                message = f"a parent must sit on the node's upstream segment: {sides}"
                yield RuleFinding(path, message, _parent_remedy(tree, node, name), (("nodes", name),))


def _exist(tree: Tree, *segments: str) -> bool:
    """Return whether all names are segments of the file. Another rule reports unknown names."""
    return all(name in tree.topology.segments for name in segments)


def _parent_remedy(tree: Tree, node: NodeTable, name: str) -> str:
    assert node.up is not None
    segment = node.up.segment
    near = [other.name for other in tree.answering_on(segment) if other is not node]
    if not near:
        return f"remove {name!r}, or give it an address on {segment}"
    return f"remove {name!r}; on {segment} there are {', '.join(near[:5])}"


def _repairers(tree: Tree) -> Iterator[RuleFinding]:
    for node in tree.nodes:
        below = {place.segment for place in node.downs}
        for index, name in enumerate(node.repairers):
            repairer = tree.topology.nodes.get(name)
            if repairer is None or node.role is not Role.AGGREGATOR:
                continue
            path = ("nodes", node.name, "repairers", index)
            answers = [place.segment for place in repairer.downs]
            if repairer.role is not Role.REPAIRER:
                message = f"{node.name!r} lists the {repairer.role.value} {name!r} among its repairers"
                yield RuleFinding(
                    path, message, "list nodes of role repairer here, and other nodes in parents", (("nodes", name),)
                )
            elif not below.intersection(answers) and _exist(tree, *answers):
                where = " and ".join(answers) or "no segment"
                wanted = f"a downstream segment of {node.name!r} ({', '.join(sorted(below)) or 'none'})"
                message = f"the repairer {name!r} answers on {where}, not on {wanted}"
                yield RuleFinding(path, message, f"remove {name!r}, or name it in parents", (("nodes", name),))


def _speakers(tree: Tree) -> Iterator[RuleFinding]:
    speaking: dict[str, NodeTable] = {}
    for node in tree.nodes:
        if not node.is_relay or node.standby_of:
            continue
        for index, place in enumerate(node.downstream):
            other = speaking.setdefault(place.segment, node)
            if other is not node:
                message = f"the relays {other.name!r} and {node.name!r} are both active on {place.segment}"
                remedy = f'write standby_of = "{other.name}" for {node.name!r}, or give it another segment below'
                yield RuleFinding(("nodes", node.name, "downstream", index), message, remedy)


def _standby(tree: Tree) -> Iterator[RuleFinding]:
    for relay_name, standbys in tree.standbys.items():
        relay = tree.topology.nodes.get(relay_name)
        for standby in standbys:
            path = ("nodes", standby.name, "standby_of")
            if not standby.is_relay:
                message = f"{standby.name!r} is a standby of {relay_name!r} and is not a relay"
                yield RuleFinding(path, message, "give it upstream and downstream like the relay's")
            if relay is None or not _exist(tree, *(place.segment for place in (*relay.places, *standby.places))):
                continue
            if relay is standby or relay.standby_of or not relay.is_relay:
                kind = "itself" if relay is standby else "a standby" if relay.standby_of else "not a relay"
                message = f"{standby.name!r} is a standby of {relay_name!r}, which is {kind}"
                yield RuleFinding(path, message, "name the active relay", (("nodes", relay_name),))
            elif standby.is_relay and _seats_of(relay) != _seats_of(standby):
                sides = f"{_seats_of(standby)} and {_seats_of(relay)}"
                message = f"{standby.name!r} is a standby of {relay_name!r}, and their segments differ: {sides}"
                yield RuleFinding(path, message, "put both on the same segments", (("nodes", relay_name),))
            if standby is not standbys[0]:
                message = f"{standbys[0].name!r} and {standby.name!r} are both standbys of {relay_name!r}: both would take over"
                yield RuleFinding(path, message, "keep one standby for each relay")


def _seats_of(relay: NodeTable) -> str:
    below = ", ".join(sorted(place.segment for place in relay.downstream))
    return f"{relay.upstream.segment if relay.upstream else ''} to {below}"


def _silent_segments(tree: Tree) -> Iterator[RuleFinding]:
    """Find segments with listeners where no stream arrives, except below another such segment."""
    feeders: defaultdict[str, list[str]] = defaultdict(list)  # segment -> upstream segments of the relays that feed it
    for node in tree.nodes:
        if node.is_relay and not node.standby_of and node.upstream is not None:
            for place in node.downstream:
                if node.address_below(place.segment):
                    feeders[place.segment].append(node.upstream.segment)
    for name in tree.topology.segments:
        listening = [node.name for node in tree.on.get(name, []) if node.up is not None and node.up.segment == name]
        above = feeders.get(name)
        if tree.feeds[name] or not listening or (above and not any(tree.feeds.get(segment) for segment in above)):
            continue
        names = ", ".join(listening[:3]) + (f" and {len(listening) - 3} more" if len(listening) > 3 else "")
        message = f"no stream arrives on {name}, where {names} listen{'s' if len(listening) == 1 else ''}"
        remedy = f"put a source on {name}, or a relay with {name} downstream and a source above it"
        yield RuleFinding(("segments", name), message, remedy, (("nodes",),))


def _fed(tree: Tree) -> Iterator[RuleFinding]:
    yield from _silent_segments(tree)
    sent = {name for node in tree.nodes if node.role is Role.SOURCE for name in node.streams}
    for node in tree.nodes:
        arriving = set() if node.up is None else {stream for _, stream in tree.feeds.get(node.up.segment, ())}
        if node.up is None or not arriving:
            continue
        for index, name in enumerate(node.streams):
            if name in arriving or name not in tree.topology.streams:
                continue
            if name not in sent:
                message = f"no source sends the stream {name!r} that {node.name!r} wants"
                remedy = f'add "{name}" to the streams of a source'
            else:
                message = f"the stream {name!r} that {node.name!r} wants does not reach {node.up.segment}"
                remedy = f"let the relays above it carry it too; what arrives is {', '.join(sorted(arriving))}"
            yield RuleFinding(("nodes", node.name, "streams", index), message, remedy, (("nodes",),))


def _stream_segment(tree: Tree) -> Iterator[RuleFinding]:
    for node in tree.nodes:
        if node.role is not Role.SOURCE:
            continue
        for name in node.streams:
            stream = tree.topology.streams.get(name)
            if stream is not None and stream.segment not in ("", node.segment):
                message = (
                    f"the stream {name!r} belongs on {stream.segment}, its source {node.name!r} is on {node.segment}"
                )
                remedy = f'write segment = "{node.segment}" for the stream, or move the source'
                yield RuleFinding(("streams", name, "segment"), message, remedy)


def _offers(tree: Tree) -> Iterator[RuleFinding]:
    for node in tree.nodes:
        mode = tree.settings[node.name].get("dlr_mode")
        if mode is not None and mode.value != "off" and node.role is Role.REPAIRER and node.is_relay:
            message = f"the relay {node.name!r} offers itself as a repairer ({mode.value}): the nodes below send their NAKs to it in any case"
            yield RuleFinding(mode.path, message, 'write dlr_mode = "off" for it, or give it one segment')


def _no_parents(tree: Tree) -> Iterator[RuleFinding]:
    for node in tree.nodes:
        if node.role is not Role.SOURCE and not node.parents:
            near = [other.name for other in tree.answering_on(node.up.segment if node.up else "") if other is not node]
            message = f"the {node.role.value} {node.name!r} has no parents: its NAKs go to the node that the SPMs name"
            named = ", ".join(f'"{name}"' for name in near[:3]) or '"..."'
            yield RuleFinding(("nodes", node.name), message, f"write parents = [{named}]")


def _no_repairer(tree: Tree) -> Iterator[RuleFinding]:
    for name in tree.topology.segments:
        nodes = tree.on.get(name, [])
        receivers = sum(node.instances for node in nodes if node.role is Role.RECEIVER)
        if receivers > MANY_RECEIVERS and not tree.repairers_on(name):
            message = f"{name} has {receivers} receivers and no repairer: every loss is repaired from farther away"
            yield RuleFinding(("segments", name), message, f'add a node with role = "repairer" and segment = "{name}"')


# fmt: off
RULES = (
    Rule("parent-loop", "No node is its own parent, directly or through other nodes, so that requests for repairs end.", _parent_loop),
    Rule("segment-loop", "Data flow one way: no relay leads back to a segment above it.", _segment_loop),
    Rule("parent-segment", "A parent is a source or an element that answers on the node's upstream segment.", _parents),
    Rule("repairer-segment", "The `repairers` of an aggregator are repairers on its downstream segments.", _repairers),
    Rule("one-speaker", "One relay is active on a segment. A second relay is its standby.", _speakers),
    Rule("standby", "A standby is a relay on the same segments as its active relay, which has one standby.", _standby),
    Rule("fed", "Every stream that a node names has a source, and reaches the node from segment to segment.", _fed),
    Rule("stream-segment", "A stream that names a segment has its source there.", _stream_segment),
    Rule("offer", "A repairer that offers itself by `dlr_mode` is on one segment.", _offers),
    Rule("no-parents", "Receivers and elements name their parents.", _no_parents, is_warning=True),
    Rule("no-repairer", f"A segment of more than {MANY_RECEIVERS} receivers has a repairer.", _no_repairer, is_warning=True),
)
# fmt: on
