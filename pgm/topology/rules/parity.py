"""Rules about parity: valid group sizes and codes."""

from __future__ import annotations

from collections.abc import Iterator

from pgm.topology.locate import KeyPath
from pgm.topology.model import NodeTable
from pgm.topology.node_plan import Role
from pgm.topology.precedence import Settings, settings_of, streams_of, value_of
from pgm.topology.rules.rule import Rule, RuleFinding
from pgm.topology.tree import Tree

_MOST_PACKETS = 255  # data and parity of one group: the points of GF(2^8) except 0


def _path_of(settings: Settings, key: str, node: NodeTable) -> KeyPath:
    setting = settings.get(key)
    return ("nodes", node.name) if setting is None or setting.path == ("profile",) else setting.path


def _groups(tree: Tree) -> Iterator[RuleFinding]:
    seen: set[tuple[KeyPath, str]] = set()
    for node in tree.nodes:
        if node.role is not Role.SOURCE:
            continue
        for stream in streams_of(tree.topology, node):
            for finding in _of_source(node, settings_of(tree.topology, node, [stream])):
                if (finding.path, finding.message) not in seen:
                    seen.add((finding.path, finding.message))
                    yield finding


def _of_source(node: NodeTable, settings: Settings) -> Iterator[RuleFinding]:
    size, unasked = value_of(settings, "fec_group"), value_of(settings, "fec_proactive")
    if not size:
        if unasked:
            path = _path_of(settings, "fec_proactive", node)
            yield RuleFinding(path, f"fec_proactive = {unasked} without fec_group", "set fec_group = 32")
        return
    path = _path_of(settings, "fec_group", node)
    if size.bit_count() != 1 or size < 2:
        below = max(2, 1 << size.bit_length() - 1)
        yield RuleFinding(
            path,
            f"fec_group = {size} is not a power of two from 2 to 128",
            f"set fec_group = {below}" + (f" or {2 * below}" if 2 < size < 64 else ""),
        )
    if size + unasked >= _MOST_PACKETS:
        yield RuleFinding(
            _path_of(settings, "fec_proactive", node),
            f"fec_group = {size} and fec_proactive = {unasked} are more than {_MOST_PACKETS - 1} packets",
            f"set fec_proactive = {_MOST_PACKETS - 1 - size} or less",
        )
    if not unasked and not value_of(settings, "fec_on_demand"):
        yield RuleFinding(
            _path_of(settings, "fec_on_demand", node),
            f"fec_group = {size} with neither fec_on_demand nor fec_proactive offers no parity",
            "set fec_on_demand = true, or fec_proactive = 1 or more",
        )


def _legacy(tree: Tree) -> Iterator[RuleFinding]:
    if tree.topology.profile != "legacy":
        return
    for node in tree.nodes:
        if node.role is not Role.SOURCE:
            continue
        for stream in streams_of(tree.topology, node):
            settings = settings_of(tree.topology, node, [stream])
            if value_of(settings, "fec_group"):
                size = value_of(settings, "fec_group")
                message = f"fec_group = {size} with the profile legacy: OpenPGM's receivers end when they get parity"
                yield RuleFinding(_path_of(settings, "fec_group", node), message, "omit fec_group for their streams")
                return


# fmt: off
RULES = (
    Rule("parity", "A stream's transmission group is a power of two of packets, and at most 254 packets with its parity. The source offers some parity.", _groups),
    Rule("parity-legacy", "A stream for receivers of other implementations has no parity.", _legacy, is_warning=True),
)
# fmt: on
