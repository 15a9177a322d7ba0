"""Drawn trees, traffic and faults of the swarm: plain, with parity, or with all options that are off by default.

The options are polls, tuned back-offs, redirects, null NAKs, containment and marks. Each is only advice between nodes,
so all data must still arrive, within every bound.
"""

from __future__ import annotations

import random

import attrs

from deploy.node.roles import build_core
from pgm.sim.runs import swarm
from pgm.sim.runs.scenario import Scenario, scenario
from pgm.topology.node_plan import NodePlan, Role
from pgm.units import MILLISECOND, SECOND


def run(seed: int, parity: bool = False) -> swarm.SwarmOutcome:
    """Run one scenario. Raises `InvariantBroken`."""
    return swarm.run(seed, build_core, drawn=scenario(seed, parity=parity))


def describe(seed: int, parity: bool = False) -> str:
    """Return the description of a seed's scenario."""
    return scenario(seed, parity=parity).describe()


def run_with_options(seed: int) -> swarm.SwarmOutcome:
    """Run one scenario with all options. Raises `InvariantBroken`."""
    return swarm.run(seed, build_core, drawn=with_everything_on(seed))


def with_everything_on(seed: int) -> Scenario:
    """Return the scenario of a seed with options drawn by a generator of their own."""
    rng = random.Random(f"options:{seed}")
    drawn = scenario(seed)
    options = {
        "poll_ivl": rng.choice([500, 2000]) * MILLISECOND,
        "poll_dlr_ivl": rng.choice([500, 2000]) * MILLISECOND,
        "poll_bo_ivl": rng.choice([20, 200]) * MILLISECOND,
        "poll_replies": rng.choice([2, 8]),
        "poll_max_replies": rng.choice([4, 100]),
        "poll_first_bits": rng.choice([0, 4]),
        "nak_bo_tuning": rng.choice(["duplicates", "polls"]),
        "nak_bo_ivl_max": rng.choice([100, 500]) * MILLISECOND,
        "nak_probe_num": rng.choice([2, 16]),
        "dup_nak_max": rng.choice([0, 2, 5]),
        "dlr_mode": rng.choice(["upstream", "off-tree", "both"]),
        "redirect_ivl": rng.choice([100, 1000]) * MILLISECOND,
        "honour_redirects": True,
        "null_naks": rng.random() < 0.5,
        "nak_bo": ("uniform", "exponential")[seed % 2],
        "mark_ends": True,
    }

    def changed(plan: NodePlan) -> NodePlan:
        segments = plan.segments
        if plan.role is Role.RECEIVER and rng.random() < 0.5:  # another subnet than that of the redirecting repairers
            segments = tuple(attrs.evolve(one, interface="172.16.0.0/12") for one in segments)
        return attrs.evolve(plan, parameters=attrs.evolve(plan.parameters, **options), segments=segments)

    more_ns = 2 * SECOND  # a parent's announcement may delay a NAK until a census or an SPM
    return attrs.evolve(
        drawn,
        plans={name: changed(plan) for name, plan in drawn.plans.items()},
        traffic={name: attrs.evolve(one, close_at_ns=one.close_at_ns + more_ns) for name, one in drawn.traffic.items()},
        closes_ns=drawn.closes_ns + more_ns,
    )
