"""The aggregator as a process."""

from __future__ import annotations

import random
from collections.abc import Sequence

from aggregator.core import AggregatorCore
from pgm.core.segment import Segment
from pgm.net.core_factory import element_setup
from pgm.net.element_process import Log, run_element
from pgm.telemetry.snapshot import Snapshot
from pgm.topology.node_plan import NodePlan


def build(plan: NodePlan, segments: Sequence[Segment], rng: random.Random | None = None) -> AggregatorCore:
    """The core that a plan asks for; without `rng` what it draws differs from start to start."""
    generator = rng or random.Random(random.SystemRandom().random())
    return AggregatorCore(element_setup(plan, segments), plan.parameters, generator)


async def run(plan: NodePlan, log: Log, seed: str | None = None) -> Snapshot:
    """Run until a signal; returns the last snapshot. Raises `TransportError` or `ProcessError`."""
    return await run_element(plan, build, log, seed)
