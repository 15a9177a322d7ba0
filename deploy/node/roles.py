"""Table of roles: a node's plan determines its core. The command of the simulator and the tests use this table."""

from __future__ import annotations

import random

import aggregator.process
import repairer.process
from pgm.core.interface import Core
from pgm.net.core_factory import SourceStart, receiver_core, segments_of, source_core
from pgm.topology.node_plan import NodePlan, Role
from pgm.wire.formats import Tsi


def build_core(plan: NodePlan, rng: random.Random, tsi: Tsi, now_ns: int) -> Core:
    """Build the core of a node of any role, for the simulator's world. A source sends its first stream.

    Simulated streams are not signed: the private keys lie on other hosts.
    """
    segments = segments_of(plan)
    if plan.role is Role.SOURCE:
        return source_core(plan, plan.streams[0], segments, SourceStart(tsi, now_ns, now_ns, rng))
    if plan.role is Role.RECEIVER:
        return receiver_core(plan, plan.streams, segments, rng)
    if plan.role is Role.AGGREGATOR:
        return aggregator.process.build(plan, segments, rng)
    return repairer.process.build(plan, segments, rng)
