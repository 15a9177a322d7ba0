"""Faults at given times: crashes, stops, partitions, outages."""

from __future__ import annotations

import functools
from collections.abc import Iterable

import attrs

from pgm.errors import UsageError
from pgm.sim.network import Attachment
from pgm.sim.world import World

FOR_GOOD = ("crash", "restart")
LASTING = ("crash_and_restart", "pause", "partition", "deafen")
KINDS = FOR_GOOD + LASTING


@attrs.frozen
class Fault:
    """One fault: a kind of `KINDS`, the node, the start and the duration, ns. A crash has no end."""

    kind: str
    node: str
    at_ns: int
    for_ns: int = 0


class Faults:
    """Schedule of the faults of a world. Times in ns. The fault ends after `for_ns`."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.healed_at_ns = 0  # end of the last fault that ends
        self.begun_at_ns = 0  # start of the last fault

    def add(self, fault: Fault) -> None:
        """Schedule a fault, of all streams of a source. Raises `UsageError` for an unknown kind or node."""
        if fault.kind not in KINDS:
            raise UsageError(f"a fault cannot be {fault.kind!r}", remedy=f"choose one of {', '.join(KINDS)}")
        names = [node.name for node in self._world.nodes.values() if fault.node in (node.name, node.host)]
        if not names:
            raise UsageError(f"there is no node {fault.node!r}", remedy="name a node of the tree")
        for name in names:
            self._add(fault, name)

        self.begun_at_ns = max(self.begun_at_ns, fault.at_ns)

    def _add(self, fault: Fault, name: str) -> None:
        if fault.kind == "crash":
            self.crash(name, fault.at_ns)
        elif fault.kind == "restart":
            self.restart(name, fault.at_ns)
        elif fault.kind == "crash_and_restart":
            self.crash_and_restart(name, fault.at_ns, fault.for_ns)
        elif fault.kind == "pause":
            self.pause(name, fault.at_ns, fault.for_ns)
        elif fault.kind == "partition":
            self.partition(name, fault.at_ns, fault.for_ns)
        else:
            self.deafen([name], fault.at_ns, fault.for_ns)

    def crash(self, node: str, at_ns: int) -> None:
        """Kill a process, without a last packet and without any state left."""
        self._world.at(at_ns, self._world.nodes[node].stop)

    def restart(self, node: str, at_ns: int) -> None:
        """Start a process with a fresh core and the same addresses. A running process is killed first."""
        self._world.at(at_ns, functools.partial(self._world.start, node))
        self._heals(at_ns)

    def crash_and_restart(self, node: str, at_ns: int, for_ns: int) -> None:
        """Kill a process and start it again."""
        self.crash(node, at_ns)
        self.restart(node, at_ns + for_ns)

    def pause(self, node: str, at_ns: int, for_ns: int) -> None:
        """Stop a process and resume it, as SIGSTOP and SIGCONT do. Arriving packets wait in the process's sockets."""
        self._world.at(at_ns, self._world.nodes[node].pause)
        self._world.at(at_ns + for_ns, self._world.nodes[node].resume)
        self._heals(at_ns + for_ns)

    def partition(self, node: str, at_ns: int, for_ns: int, segment: str | None = None) -> None:
        """Cut a node off one segment, or off all its segments, in both directions."""
        for attachment in self._attachments(node, segment):
            self._world.at(at_ns, functools.partial(attachment.cut, True))
            self._world.at(at_ns + for_ns, functools.partial(attachment.cut, False))
        self._heals(at_ns + for_ns)

    def deafen(self, nodes: Iterable[str], at_ns: int, for_ns: int, segment: str | None = None) -> None:
        """Drop all packets to some nodes."""
        for node in nodes:
            for attachment in self._attachments(node, segment):
                self._world.at(at_ns, functools.partial(attachment.deafen, True))
                self._world.at(at_ns + for_ns, functools.partial(attachment.deafen, False))
        self._heals(at_ns + for_ns)

    def _attachments(self, node: str, segment: str | None) -> list[Attachment]:
        return [
            attachment
            for attachment in self._world.nodes[node].attachments
            if segment is None or attachment.segment.name == segment
        ]

    def _heals(self, at_ns: int) -> None:
        self.healed_at_ns = max(self.healed_at_ns, at_ns)
