"""Flight recorders of a simulated tree: a ring in memory for each node, with virtual time as the monotonic clock."""

from __future__ import annotations

from pgm.core.effects import Effects
from pgm.core.segment import Channel
from pgm.flight.contents import RingContents, contents_untrusted
from pgm.flight.facts import facts_of
from pgm.flight.recorder import FlightRecorder
from pgm.flight.ring import FlightRing
from pgm.sim.checks.checker import Checker
from pgm.sim.node import SimulatedNode
from pgm.sim.runs.telemetry import START_OF_DAY_NS
from pgm.units import MIB
from pgm.wire.formats import Nla
from pgm.wire.train import Train


class FlightRecorders(Checker):
    """Observer with a ring of `most_octets` for each node; never fails a run.

    `skews_ns` has what the clocks of some nodes are ahead, in ns: such a node counts as a host of its own.
    """

    def __init__(self, most_octets: int = MIB, skews_ns: dict[str, int] | None = None) -> None:
        self._most_octets = most_octets
        self._skews_ns = skews_ns or {}
        self._recorders: dict[str, FlightRecorder] = {}
        self._rings: dict[str, FlightRing] = {}
        self._memories: dict[str, bytearray] = {}

    def started(self, node: SimulatedNode) -> None:
        """Record the node's new core in the ring of the earlier one."""
        assert node.core is not None
        memory = self._memories.setdefault(node.name, bytearray(self._most_octets))
        addresses = [attachment.segment.address for attachment in node.attachments]
        host = node.host if node.host in self._skews_ns else "simulated"
        ring = self._rings[node.name] = FlightRing(memory, host, facts_of(node.plan, addresses, host))
        offset_ns = START_OF_DAY_NS + self._skews_ns.get(node.host, 0)
        recorder = FlightRecorder(node.plan, node.core, ring, self.world.now_ns, lambda: offset_ns)
        node.core.counters.watch = self._recorders[node.name] = recorder

    def received(self, node: SimulatedNode, train: Train, channel: Channel, peer: Nla) -> None:
        """Record a train that a core is about to take."""
        self._recorders[node.name].received(train, channel, peer, self.world.now_ns)

    def called(self, node: SimulatedNode) -> None:
        """Record the train that a core has taken without an effect."""
        self._recorders[node.name].taken()

    def performs(self, node: SimulatedNode, effects: Effects) -> None:
        """Record the effects that a core returned."""
        self._recorders[node.name].taken()
        self._recorders[node.name].performed(effects, self.world.now_ns)

    def contents(self) -> list[RingContents]:
        """Return the contents of all rings."""
        for recorder in self._recorders.values():
            recorder.close()
        return [contents_untrusted(ring.octets()) for ring in self._rings.values()]
