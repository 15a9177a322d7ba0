"""Cost of signed and sealed streams: CPU of each core for each MB, by turns with the same stream in the clear.

`python -m tests.sim.figures.signed_costs [--element aggregator] [--megabytes 100] [--turns 5]`. Trains pass in memory, and time
is virtual, so the kernel's work is left out, and the load of the machine matters less. The source sends as fast as its rate
allows.
"""

from __future__ import annotations

import argparse
import gc
import random
import statistics
import time
from collections.abc import Callable
from typing import Any

import attrs
import numpy as np

from deploy.node.roles import build_core
from pgm.core.effects import Deliver, Effects, Lost, Send
from pgm.core.interface import Core
from pgm.core.segment import Channel, Segment
from pgm.core.structures.arena import READING_OCTETS, Arena
from pgm.net.core_factory import segments_of
from pgm.topology.load import loads
from pgm.topology.plan import plan_node
from pgm.units import KIB, MIB, MILLISECOND, SECOND
from pgm.wire.train import Train
from tests.sim.support.signed import Sealing, proving, with_public_keys

_SIZE = 1400  # octets of a message
_AT_ONCE = 187  # messages that the application gives
_WAITING_OCTETS = 512 * KIB  # below which it gives more
_JOINED_NS = SECOND + 300 * MILLISECOND  # when the receiver has heard the first SPMs
_SOURCE, _ELEMENT, _RECEIVER = "source", "element", "receiver-0"

_HEAD = """
version = 1
name = "costs"
profile = "lan"
[streams.s]
data_port = 7500
rate = "8Gbit/s"
window = "256MB"
[segments.up]
group = "239.1.1.1"
port = 7600
interface = "10.0.0.0/24"
[nodes.source]
role = "source"
segment = "up"
address = "10.0.0.1"
streams = ["s"]
parameters = { max_tpdu = "1472B", warm_bytes = "256MB", txw_unsent_bytes = "16MB" }
[nodes.receiver-0]
role = "receiver"
streams = ["s"]
"""
_DIRECT = 'segment = "up"\nparents = ["source"]\n'
_BELOW = """
segment = "down"
parents = ["element"]
[segments.down]
group = "239.1.1.2"
port = 7600
interface = "10.0.1.0/24"
[nodes.element]
role = "{role}"
upstream = {{ segment = "up", address = "10.0.0.2" }}
downstream = [{{ segment = "down", address = "10.0.1.2" }}]
parents = ["source"]
"""
_BUILDS: dict[str, Callable[[], Callable[..., Core]]] = {
    "clear": lambda: build_core,
    "signed": lambda: proving,
    "sealed": lambda: Sealing((_RECEIVER,)),
}


@attrs.define(eq=False)
class _Node:
    """A core with its memory for reads, and the CPU time that its calls took."""

    core: Any
    segments: list[Segment]
    arena: Arena = attrs.field(factory=lambda: Arena(READING_OCTETS, warm_octets=32 * MIB))
    spent_ns: int = 0

    def call(self, method: Callable[..., Effects], *arguments: Any) -> Effects:
        begun_ns = time.thread_time_ns()
        effects = method(*arguments)
        self.spent_ns += time.thread_time_ns() - begun_ns
        return effects


class _Row:
    """A source, an element or none, and a receiver, each with a segment in common with the next."""

    def __init__(self, protection: str, role: str) -> None:
        topology = loads(_HEAD + (_BELOW.format(role=role) if role else _DIRECT))
        build = _BUILDS[protection]()
        self.nodes = {}
        for number, name in enumerate((_SOURCE, _ELEMENT, _RECEIVER) if role else (_SOURCE, _RECEIVER)):
            plan, rng = plan_node(topology, name), random.Random(number)
            is_keyless = name == _ELEMENT and protection != "clear"
            core = with_public_keys(plan, rng) if is_keyless else build(plan, rng, b"12345678", SECOND)
            self.nodes[name] = _Node(core, segments_of(plan))
        self._now_ns = SECOND
        self._delivered = 0  # octets that the application has not taken
        self.octets = 0  # that the application has

    def run(self, octets: int) -> dict[str, float]:
        """Send some octets. Return ms of CPU for each MB, which are ns for each octet, by node."""
        source, receiver = self.nodes[_SOURCE], self.nodes[_RECEIVER]
        rows = np.random.default_rng(1).integers(0, 255, (_AT_ONCE, _SIZE), dtype=np.uint8)
        while self.octets < octets:
            if self._now_ns > _JOINED_NS and source.core.window.unsent_octets < _WAITING_OCTETS:
                if not self.octets:
                    for node in self.nodes.values():
                        node.spent_ns = 0
                source.call(source.core.submit_rows, rows)
            due_ns = min(node.core.deadline_ns for node in self.nodes.values())
            self._now_ns = max(self._now_ns, min(due_ns, self._now_ns + MILLISECOND))
            for node in self.nodes.values():
                if node.core.deadline_ns <= self._now_ns:
                    self._perform(node, node.call(node.core.handle_deadline, self._now_ns))
            taken, self._delivered = self._delivered, 0
            self._perform(receiver, receiver.call(receiver.core.grant, taken))
        return {name: node.spent_ns / self.octets for name, node in self.nodes.items()}

    def _perform(self, node: _Node, effects: Effects) -> None:
        for effect in effects:
            if isinstance(effect, Deliver):
                self._delivered += effect.run.octets
                self.octets += effect.run.payloads.size
            elif isinstance(effect, Send):
                self._pass_on(node, effect)
            assert not isinstance(effect, Lost), effect

    def _pass_on(self, sender: _Node, send: Send) -> None:
        octets = np.frombuffer(bytes(send.octets), np.uint8)
        for node in self.nodes.values():
            segment = next((one for one in node.segments if one.name == send.segment.name), None)
            if node is not sender and segment is not None:
                chunk, at = node.arena.take(len(octets))
                chunk[at : at + len(octets)] = octets
                train, channel = Train(chunk, at, len(octets), send.stride), Channel(segment, send.to is None)
                arguments = train, channel, send.segment.address, self._now_ns
                self._perform(node, node.call(node.core.receive, *arguments))


def main() -> None:
    """Print the least and the median of all turns."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--element", choices=("aggregator", "repairer"), default="")
    parser.add_argument("--megabytes", type=int, default=100)
    parser.add_argument("--turns", type=int, default=5)
    wanted = parser.parse_args()
    found: dict[tuple[str, str], list[float]] = {}
    for _ in range(wanted.turns):
        for protection in _BUILDS:
            gc.collect()
            for name, ms in _Row(protection, wanted.element).run(wanted.megabytes * 10**6).items():
                found.setdefault((name, protection), []).append(ms)
    print("ms of CPU a MB: the least of all turns, and the median")
    for (name, protection), each in sorted(found.items()):
        print(f"{name}, {protection}: {min(each):.2f}, {statistics.median(each):.2f}")


if __name__ == "__main__":
    main()
