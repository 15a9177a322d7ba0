"""State of the keys of all nodes: listed lines, private files of this host, and the problems of both."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import attrs

from pgm.errors import KeyRefused
from pgm.net.keys.key_directory import KeyPlace, place_of
from pgm.net.keys.key_files import read_private_file
from pgm.topology.model import NodeTable, Topology
from pgm.topology.node_plan import Role
from pgm.topology.plan import plan_node
from pgm.trust.public_keys import KeyState, PublicKeys

SOON_DAYS = 30  # before the end day, in which a check advises a rotation


@attrs.frozen
class KeyReport:
    """One pair of keys of a node: listed in the topology file, held by this host, or both."""

    id: str
    state: KeyState
    public: PublicKeys | None  # None for a private file of revoked keys, which no line names
    private: Path | None
    flaw: str = ""  # of the private file

    def row(self) -> dict[str, Any]:
        """Return the keys for `--json`."""
        public = self.public
        return {
            "id": self.id,
            "state": self.state.value,
            "first_day": public and str(public.first_day),
            "end_day": public and str(public.end_day),
            "line": public and public.line,
            "private_file": self.private and str(self.private),
            "flaw": self.flaw,
        }


@attrs.frozen
class NodeReport:
    """Keys of one node, with faults and advice in words."""

    node: str
    role: Role
    keys: tuple[KeyReport, ...]
    faults: tuple[str, ...] = ()
    advice: tuple[str, ...] = ()

    def row(self) -> dict[str, Any]:
        """Return the node for `--json`."""
        return {
            "node": self.node,
            "role": self.role.value,
            "keys": [keys.row() for keys in self.keys],
            "faults": list(self.faults),
            "advice": list(self.advice),
        }


def inspect_nodes(topology: Topology, node: str | None, chosen: Path | None, day: date) -> list[NodeReport]:
    """Return the reports of all nodes, or of one. Nodes of a pattern appear if they have keys.

    Raises `TopologyError` for an unknown node.
    """
    if node is not None:
        plan = plan_node(topology, node)
        return [_report(topology, node, plan.role, chosen, day, is_here=True)]
    return [_report(topology, name, role, chosen, day) for name, role in _names(topology)]


def half_secured(topology: Topology) -> list[str]:
    """Return the sources and elements without keys, if others have some."""
    if not topology.keys:
        return []
    return [node.name for node in topology.nodes.values() if _matters(node) and node.name not in topology.keys]


def _matters(node: NodeTable) -> bool:
    return node.role is not Role.RECEIVER


def _names(topology: Topology) -> Iterator[tuple[str, Role]]:
    for node in topology.nodes.values():
        yield node.name, node.role
    for name in topology.keys:
        if name not in topology.nodes:
            yield name, Role.RECEIVER  # a node of a pattern


def _report(
    topology: Topology, name: str, role: Role, chosen: Path | None, day: date, *, is_here: bool = False
) -> NodeReport:
    """Return the report of one node. With `is_here` this host must have its private file."""
    place = place_of(topology.name, name, topology.key_directory, chosen)
    held = place.held()
    listed = topology.keys.get(name, ())
    keys = [_listed(place, one, held.get(one.id), day) for one in listed]
    known = {one.id for one in listed}
    keys += [_unlisted(place, topology, one, path, day) for one, path in held.items() if one not in known]
    faults = [f"{one.id}: {one.flaw}" for one in keys if one.flaw]
    advice = []
    if listed and KeyState.VALID not in (one.state for one in keys[: len(listed)]):
        faults.append(f"no keys are valid on {day}: make new ones with pgm keys rotate")
    if is_here and listed and not known & set(held):
        faults.append(f"its private file is not in {place.directory}")
    for one in keys[len(listed) :]:
        if one.state is KeyState.REVOKED:
            advice.append(f"{one.id} is revoked: remove {one.private}")
        elif listed:
            advice.append(f"{one.id} is in no line of the file: remove {one.private} after a rotation")
        elif not one.flaw:
            faults.append(f"{one.id} is in no line of the file: paste the line of pgm keys show")
    last = max((one.end_day for one in listed), default=None)
    if last is not None and day < last <= day + timedelta(days=SOON_DAYS):
        advice.append(f"its keys end on {last}: rotate them")
    if len(listed) > 1:
        advice.append(f"a rotation from {listed[0].id} to {listed[1].id} is under way")
    return NodeReport(name, role, tuple(keys), tuple(faults), tuple(advice))


def _listed(place: KeyPlace, public: PublicKeys, path: Path | None, day: date) -> KeyReport:
    return KeyReport(public.id, public.state_on(day), public, path, "" if path is None else _read(place, path)[1])


def _unlisted(place: KeyPlace, topology: Topology, key_id: str, path: Path, day: date) -> KeyReport:
    public, flaw = _read(place, path)
    if key_id in topology.revoked:
        return KeyReport(key_id, KeyState.REVOKED, public, path, flaw)
    return KeyReport(key_id, KeyState.VALID if public is None else public.state_on(day), public, path, flaw)


def _read(place: KeyPlace, path: Path) -> tuple[PublicKeys | None, str]:
    """Return the public keys of a private file, and its flaw."""
    try:
        return read_private_file(place, path).public, ""
    except KeyRefused as error:
        return None, f"{error.message} ({error.remedy})"
