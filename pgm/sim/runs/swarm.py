"""Runs of drawn scenarios with every checker. `run(seed, factory)` is one run; a loop over seeds is the swarm."""

from __future__ import annotations

import random
from collections.abc import Iterable

import attrs

from pgm.core.effects import LossCause
from pgm.core.interface import Core
from pgm.core.segment import Segment
from pgm.core.source.setup import SourceSetup
from pgm.core.source.source import SourceCore
from pgm.sim.applications import ReceiverApplication
from pgm.sim.checks.checker import Checker
from pgm.sim.checks.completion import check_complete, settle
from pgm.sim.checks.invariants import all_checkers
from pgm.sim.faults import Faults
from pgm.sim.runs.scenario import Scenario, scenario
from pgm.sim.world import CoreFactory, World, tsi_of
from pgm.topology.node_plan import NodePlan, Role
from pgm.units import SECOND
from pgm.wire.formats import Tsi

_CALM_NS = 3 * SECOND  # a tree without activity for this long is at rest


@attrs.define
class SwarmOutcome:
    """Result of a run."""

    seed: int
    digest: str
    events: int
    virtual_ns: int
    delivered_sqns: int
    lost_sqns: int
    naks: int
    causes: dict[LossCause, int]


def repeat_command(kind: str, seed: int) -> str:
    """Return the command that repeats a run of a campaign."""
    return f"python -m tests.sim.campaigns.run_seeds --kind {kind} --first {seed} --seeds 1 --verbose"


def with_first_sqns(factory: CoreFactory, first_sqns: dict[str, int]) -> CoreFactory:
    """Return a factory whose named sources begin at given sqns."""

    def build(plan: NodePlan, rng: random.Random, tsi: Tsi, now_ns: int) -> Core:
        if plan.role is not Role.SOURCE or plan.name not in first_sqns:
            return factory(plan, rng, tsi, now_ns)
        segment_plan = plan.segments[0]
        assert segment_plan.address is not None
        segment = Segment(
            0,
            segment_plan.name,
            segment_plan.address,
            segment_plan.group,
            segment_plan.upstream,
            segment_plan.downstream,
            segment_plan.peers,
        )
        setup = SourceSetup(tsi, segment, plan.streams[0].data_port, first_sqns[plan.name], now_ns)
        return SourceCore(setup, plan.parameters, now_ns)

    return build


def build(
    drawn: Scenario, factory: CoreFactory, checkers: Iterable[Checker] | None = None, *, repeat: str = ""
) -> World:
    """Return the world of a scenario, with all checkers or the given ones, and all faults in place."""
    has_parity = any(plan.parameters.fec_group for plan in drawn.plans.values())
    world = World(
        with_first_sqns(factory, drawn.first_sqns),
        seed=drawn.seed,
        timer_slack_ns=drawn.timer_slack_ns,
        repeat=repeat or repeat_command("parity" if has_parity else "plain", drawn.seed),
    )
    for checker in all_checkers() if checkers is None else checkers:
        world.add_checker(checker)
    for name, plan in drawn.plans.items():
        world.add_node(
            plan, wiring=drawn.wirings[name], traffic=drawn.traffic.get(name), appetite=drawn.appetites.get(name)
        )
    faults = Faults(world)
    for fault in drawn.faults:
        faults.add(fault)
    return world


def run(seed: int, factory: CoreFactory, *, drawn: Scenario | None = None) -> SwarmOutcome:
    """Draw, build, run and check one scenario. Raises `InvariantBroken`."""
    drawn = drawn or scenario(seed)
    world = build(drawn, factory)
    play(world, drawn)
    return finish(world, drawn)


def play(world: World, drawn: Scenario, within_ns: int = 120 * SECOND) -> None:
    """Let all traffic and faults happen, and the sources close. Sessions must come to rest `within_ns`, and end."""
    world.run_until(drawn.closes_ns)
    settle(world, within_ns=within_ns, quiet_ns=_CALM_NS)
    # Sessions that fell silent for good are reported after session_expiry.
    world.run_until(world.now_ns + max(plan.parameters.session_expiry for plan in drawn.plans.values()) + SECOND)


def finish(world: World, drawn: Scenario) -> SwarmOutcome:
    """Check that all sessions are complete; return the outcome. Raises `InvariantBroken`."""
    check_complete(world, may_lose=drawn.may_lose, cut_short=[tsi_of(source, 0) for source in drawn.cut_short])
    return _outcome(world)


def _outcome(world: World) -> SwarmOutcome:
    causes: dict[LossCause, int] = {}
    delivered = 0
    for node in world.receivers:
        assert isinstance(node.application, ReceiverApplication)
        for stream in node.application.all_streams:
            delivered += stream.delivered_sqns
            for cause, sqns in stream.lost.items():
                causes[cause] = causes.get(cause, 0) + sqns
    return SwarmOutcome(
        seed=world.seed,
        digest=world.log.digest(),
        events=world.scheduler.events,
        virtual_ns=world.now_ns,
        delivered_sqns=delivered,
        lost_sqns=sum(causes.values()),
        naks=sum(node.total("nak_packets") for node in world.nodes.values()),
        causes=causes,
    )
