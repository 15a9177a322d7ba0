"""Run of a planned tree in virtual time, and its report, as `pgm sim` prints it.

The keys are those of `pgm demo --json`, and also "seed" and "virtual_seconds". The same scripts can read both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import attrs

from pgm.errors import UsageError
from pgm.sim.addresses import with_addresses
from pgm.sim.checks.checker import Checker
from pgm.sim.checks.invariants import cheap_checkers
from pgm.sim.crowd.crowd_plan import crowd_of
from pgm.sim.invariant_broken import InvariantBroken
from pgm.sim.load import START_NS, Load, NetworkConditions, split_streams
from pgm.sim.parts.account import Progress, Report, report_of
from pgm.sim.parts.cut import cut_at_relays, lookahead_of
from pgm.sim.parts.part import Part, PartSetup
from pgm.sim.parts.windows import LocalLink, PartedTree, PartLink
from pgm.sim.runs.telemetry import TelemetryChecker
from pgm.sim.world import CoreFactory
from pgm.topology.node_plan import NodePlan, Role
from pgm.topology.plan import PatternRest
from pgm.topology.problems import suggestion
from pgm.units import MILLISECOND, NEVER, SECOND

_SLICE_NS = 100 * MILLISECOND  # virtual time between two calls of `progress`
_REST_LIMIT_NS = 600 * SECOND  # a tree still active so long after its last message will never come to rest


@attrs.frozen(kw_only=True)
class Observation:
    """Observers of a run.

    `progress` is called every 100 ms of virtual time. `telemetry` is a folder for the events of all nodes. `checkers`
    run besides the usual ones. `repeat` is the command that repeats the run, named if an invariant does not hold.
    """

    progress: Callable[[Progress], None] | None = None
    telemetry: str = ""
    checkers: Sequence[Checker] = ()
    repeat: str = ""


_DEFAULT_LOAD = Load()
_NO_FAULTS = NetworkConditions()
_NO_OBSERVATION = Observation()


def simulate(
    plans: Mapping[str, NodePlan],
    factory: CoreFactory,
    *,
    seed: int = 0,
    load: Load = _DEFAULT_LOAD,
    conditions: NetworkConditions = _NO_FAULTS,
    observation: Observation = _NO_OBSERVATION,
    limit: int | None = None,
) -> Report:
    """Run a tree and return its report.

    Every source offers the load, and closes. The run then continues until the tree comes to rest.

    `limit` is the virtual time in ns within which the tree must rest. The default is ten minutes after the last message
    and the last fault.

    Raises `InvariantBroken` if an invariant does not hold, or without rest within the limit.
    """
    whole = whole_tree(plans, factory, seed, load, conditions, observation.repeat)
    telemetry = observation.telemetry
    events = TelemetryChecker(telemetry, next(iter(plans.values())).parameters) if telemetry else None
    own = [events] if events is not None else []
    part = Part(whole, [*cheap_checkers(), *observation.checkers, *own])
    try:
        return run_parts(whole, [LocalLink(part)], limit=limit, progress=observation.progress)
    finally:  # telemetry is most useful for a run that broke an invariant
        if events is not None:
            events.finish()


def whole_tree(
    plans: Mapping[str, NodePlan],
    factory: CoreFactory,
    seed: int,
    load: Load = _DEFAULT_LOAD,
    conditions: NetworkConditions = _NO_FAULTS,
    repeat: str = "",
    rest: Sequence[PatternRest] = (),
) -> PartSetup:
    """Return a whole tree as one part; a model stands for each `rest` of a pattern.

    Raises `UsageError` for a fault of an unknown node, and for receivers that no model describes.
    """
    ready, filled = with_addresses(split_streams(plans), rest)
    crowds = tuple(crowd_of(one) for one in filled)
    for fault in conditions.faults:
        if fault.node not in ready and fault.node not in plans:
            raise _unknown_node(fault.node, plans, rest)
    return PartSetup(
        plans=ready, crowds=crowds, factory=factory, seed=seed, load=load, conditions=conditions, repeat=repeat
    )


def _unknown_node(name: str, plans: Mapping[str, NodePlan], rest: Sequence[PatternRest]) -> UsageError:
    """Return the error for a fault of a node without a core."""
    for one in rest:
        number = one.number(name)
        if number is not None:
            return UsageError(f"{name!r} is modelled, and a model has no faults", remedy=f"raise --real to {number}")
    return UsageError(f"there is no node {name!r}", remedy=suggestion(name, plans))


def parts_of(whole: PartSetup, count: int) -> list[PartSetup]:
    """Cut a tree at its relays into at most `count` parts; see `cut_at_relays`."""
    cut = cut_at_relays(whole.plans, count)
    parts = []
    for names in cut.parts:
        plans = {name: whole.plans[name] for name in names}
        # The real receivers of a pattern tell where its model belongs.
        below = {plan.segments[0].name for plan in plans.values() if plan.role is Role.RECEIVER}
        crowds = tuple(crowd for crowd in whole.crowds if crowd.plan.segments[0].name in below)
        parts.append(attrs.evolve(whole, plans=plans, crowds=crowds, shared=cut.shared))
    return parts


def local_links(parts: Sequence[PartSetup]) -> list[PartLink]:
    """Return links to parts that all run in this process."""
    return [LocalLink(Part(part, cheap_checkers())) for part in parts]


def run_parts(
    whole: PartSetup,
    links: Sequence[PartLink],
    *,
    shared: frozenset[str] = frozenset(),
    limit: int | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> Report:
    """Run a tree until rest, and return its report. The segments `shared` have nodes in several parts."""
    conditions = whole.conditions
    lookahead_ns = NEVER
    if shared:
        lookahead_ns = lookahead_of(
            conditions.delay_of(name, segment.name)
            for name, plan in whole.plans.items()
            for segment in plan.segments
            if segment.name in shared
        )
    tree = PartedTree(links, lookahead_ns, conditions.instants)
    begun_ns = max((fault.at_ns for fault in conditions.faults), default=0)
    healed_ns = max((fault.at_ns + fault.for_ns for fault in conditions.faults), default=0)
    quiet_ns = 2 * max(_longest_retry_ns(plan) for plan in whole.plans.values())
    _run(whole, tree, max(begun_ns, healed_ns, START_NS), quiet_ns, limit, progress)
    return report_of(whole.seed, tree.now_ns, tree.accounts(), whole.plans)


def _longest_retry_ns(plan: NodePlan) -> int:
    """Return the longest pause between two attempts of a repair, ns."""
    limits = plan.parameters
    # waits without an answer grow up to nak_max_ivl
    wait_ns = max(limits.nak_rdata_ivl, limits.nak_rpt_ivl, limits.nak_max_ivl)
    # announced by a parent to its children
    announced_ns = 0 if limits.nak_bo_tuning == "off" else limits.nak_bo_ivl_max
    return wait_ns + max(limits.nak_bo_ivl, announced_ns) + limits.ne_nak_rpt_ivl


def _run(
    whole: PartSetup,
    tree: PartedTree,
    busy_ns: int,
    quiet_ns: int,
    limit: int | None,
    progress: Callable[[Progress], None] | None,
) -> None:
    offered, limit_ns = -1, 0
    while True:
        tree.run_until(tree.now_ns + _SLICE_NS)
        if limit is not None:
            limit_ns = limit
        elif tree.offered != offered:
            offered, limit_ns = tree.offered, max(tree.now_ns, busy_ns) + _REST_LIMIT_NS
        if progress is not None:
            progress(tree.progress())
        # A closed source ends by itself, and a crashed one has ended.
        is_quiet = tree.now_ns >= tree.last_activity_ns + quiet_ns
        if tree.have_left and is_quiet and tree.now_ns > busy_ns:
            return
        if tree.now_ns > limit_ns:
            problem = f"no rest within {limit_ns / SECOND:g} s of virtual time"
            raise InvariantBroken(whole.seed, tree.now_ns, "-", problem, whole.repeat)
