"""Tapes of a simulated tree, as real nodes keep them."""

from __future__ import annotations

from pathlib import Path

from pgm.sim.checks.checker import Checker
from pgm.sim.node import SimulatedNode
from pgm.tape.recorder import TapeLimits, TapeRecorder
from pgm.tape.segments import SegmentRing, folder_name


class TapeChecker(Checker):
    """Observer that keeps a tape of every core in `folder`; never fails a run."""

    def __init__(self, folder: Path, limits: TapeLimits | None = None) -> None:
        self._folder = folder
        self._limits = limits
        self.recorders: dict[str, TapeRecorder] = {}  # of the present cores, by the node's name
        self.ended: list[TapeRecorder] = []  # of cores that were replaced

    def started(self, node: SimulatedNode) -> None:
        """Begin the tape of the node's new core."""
        old = self.recorders.pop(node.name, None)
        if old is not None:
            old.end()
            self.ended.append(old)
        assert node.core is not None
        limits = self._limits or TapeLimits.of(node.plan.parameters)
        ring = SegmentRing(self._folder / folder_name(f"{node.name}-{node.starts}"), limits.octets)
        segments = [attachment.segment for attachment in node.attachments]
        recorder = TapeRecorder(node.core, segments, ring, limits, {"node": node.name, "role": node.plan.role.value})
        recorder.begin(self.world.now_ns)
        self.recorders[node.name] = recorder

    def finish(self) -> None:
        """End all tapes."""
        for recorder in self.recorders.values():
            recorder.end()
