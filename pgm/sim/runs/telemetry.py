"""Telemetry of a simulated tree: the rows of real nodes, with virtual time as the time of day."""

from __future__ import annotations

from pathlib import Path

from pgm.core.effects import Effects
from pgm.core.segment import Channel
from pgm.parameters import Parameters
from pgm.sim.checks.checker import Checker
from pgm.sim.node import SimulatedNode
from pgm.telemetry.events import EventLog
from pgm.telemetry.observer import Observer
from pgm.units import SECOND
from pgm.wire.formats import Nla
from pgm.wire.train import Train

START_OF_DAY_NS = 1_767_225_600 * SECOND  # virtual time 0: the first instant of 2026


class TelemetryChecker(Checker):
    """Observer that writes the events of all nodes into `folder`, as one writer; never fails a run."""

    def __init__(self, folder: str | Path, parameters: Parameters) -> None:
        self.log = EventLog(folder, "simulated", parameters, in_background=False)
        self._observers: dict[str, Observer] = {}

    def started(self, node: SimulatedNode) -> None:
        """Observe the node's new core."""
        old = self._observers.pop(node.name, None)
        if old is not None:
            old.close()
        assert node.core is not None
        observer = Observer(node.plan, self.log, self.world.now_ns, lambda: START_OF_DAY_NS)
        node.core.counters.watch = self._observers[node.name] = observer

    def received(self, node: SimulatedNode, train: Train, channel: Channel, peer: Nla) -> None:
        """Record a train that a core is about to take."""
        self._observers[node.name].received(train, channel, peer, self.world.now_ns)

    def performs(self, node: SimulatedNode, effects: Effects) -> None:
        """Record the effects that a core returned."""
        self._observers[node.name].performed(effects, self.world.now_ns)

    def finish(self) -> None:
        """Write the remaining events."""
        for observer in self._observers.values():
            observer.close()
        self.log.close()
