"""The repairer as a process."""

from __future__ import annotations

import random
from collections.abc import Sequence

from pgm.core.channel import Segment
from pgm.net.cores import element_setup
from pgm.net.process import Log, run_element
from pgm.telemetry.snapshot import Snapshot
from pgm.topology.node_plan import NodePlan
from repairer.core import RepairerCore


def build(plan: NodePlan, segments: Sequence[Segment], rng: random.Random | None = None) -> RepairerCore:
    """The core that a plan asks for; without `rng` back-offs differ from start to start."""
    generator = rng or random.Random(random.SystemRandom().random())
    return RepairerCore(element_setup(plan, segments), plan.parameters, generator)


async def run(plan: NodePlan, log: Log, seed: str | None = None) -> Snapshot:
    """Run until a signal; returns the last snapshot. Raises `TransportError` or `ProcessError`."""
    return await run_element(plan, build, log, seed)
