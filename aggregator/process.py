"""The aggregator as a process."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import partial

from aggregator.core import AggregatorCore
from pgm.core.segment import Segment
from pgm.core.session.signed_streams import NO_SIGNERS, StreamSigners
from pgm.net.control.operated_process import Log
from pgm.net.core_factory import element_setup, own_parameters
from pgm.net.element_process import run_element
from pgm.net.keys.control_keys import with_codes
from pgm.net.keys.stream_signatures import signers_of
from pgm.telemetry.snapshot import Snapshot
from pgm.topology.node_plan import NodePlan


def build(
    plan: NodePlan,
    segments: Sequence[Segment],
    rng: random.Random | None = None,
    signers: StreamSigners = NO_SIGNERS,
) -> AggregatorCore:
    """Return the core for a plan. Without `rng`, the random seed differs at each start."""
    generator = rng or random.Random(random.SystemRandom().random())
    return AggregatorCore(element_setup(plan, segments, signers), own_parameters(plan), generator)


async def run(plan: NodePlan, log: Log, seed: str | None = None) -> Snapshot:
    """Run until a signal, and return the last snapshot. Raise `TransportError` or `ProcessError`."""
    return await run_element(
        plan, partial(build, signers=with_codes(signers_of(plan.streams), plan, plan.streams)), log, seed
    )
