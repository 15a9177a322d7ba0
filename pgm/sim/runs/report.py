"""Run of a planned tree in virtual time, and its report, as `pgm sim` prints it.

The keys are those of `pgm demo --json`, and also "seed" and "virtual_seconds". The same scripts can read both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs

from pgm.sim.applications import ReceiverApplication, SourceApplication, Traffic
from pgm.sim.checks.checker import Checker
from pgm.sim.checks.invariants import cheap_checkers
from pgm.sim.faults import Fault, Faults
from pgm.sim.links import LinkSetup
from pgm.sim.node import STREAM_MARK, SimulatedNode
from pgm.sim.runs.telemetry import TelemetryChecker
from pgm.sim.world import CoreFactory, Wiring, World
from pgm.topology.node_plan import NodePlan, Role
from pgm.units import MILLISECOND, SECOND
from pgm.wire.formats import DATA_HEADER_OCTETS

Report = dict[str, Any]  # value that json.dumps accepts

_START_NS = SECOND  # by then every relay has learnt its role, and all nodes have received an SPM
_SLICE_NS = 100 * MILLISECOND  # virtual time between two calls of `progress`
_REST_LIMIT_NS = 600 * SECOND  # a tree still active so long after its last message will never come to rest
_RATE_SHARE = 2  # the default offer is half of txw_max_rte, so that repairs have room


@attrs.frozen
class Progress:
    """Progress of a run: times in ns, sqns `delivered` over all receivers, and the sqns `expected`."""

    now_ns: int
    offered: int
    messages: int
    delivered: int
    expected: int


@attrs.frozen
class Load:
    """Messages of every source: `size` in octets, `rate` a second; rate 0 means half of txw_max_rte."""

    messages: int = 1000
    size: int = 1000
    rate: int = 0


@attrs.frozen(kw_only=True)
class NetworkConditions:
    """Delays and faults of a run, besides the losses configured in plans.

    `delay` is the delay from a segment to a node in ns. `wiring` replaces it for the named nodes.
    """

    delay: int = LinkSetup().delay
    wiring: Mapping[str, Wiring | dict[str, Wiring]] = attrs.field(factory=dict)
    faults: Sequence[Fault] = ()


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
    world = World(factory, seed=seed, repeat=observation.repeat)
    for checker in (*cheap_checkers(), *observation.checkers):
        world.add_checker(checker)
    telemetry = observation.telemetry
    events = TelemetryChecker(telemetry, next(iter(plans.values())).parameters) if telemetry else None
    if events is not None:
        world.add_checker(events)
    world.reserved.update(
        (segment.name, segment.address) for plan in plans.values() for segment in plan.segments if segment.address
    )
    default_wiring = Wiring(ingress=LinkSetup(delay=conditions.delay))
    for name, plan in _split_streams(plans).items():
        traffic = _traffic(plan, load) if plan.role is Role.SOURCE else None
        wiring = conditions.wiring.get(name.partition(STREAM_MARK)[0], default_wiring)
        world.add_node(plan, wiring=wiring, traffic=traffic)
    schedule = Faults(world)
    for fault in conditions.faults:
        schedule.add(fault)
    quiet_ns = 2 * max(_longest_retry_ns(node.plan) for node in world.nodes.values())
    busy_ns = max(schedule.begun_at_ns, schedule.healed_at_ns, _START_NS)
    try:
        _run(world, busy_ns, quiet_ns, limit, observation.progress)
    finally:  # telemetry is most useful for a run that broke an invariant
        if events is not None:
            events.finish()
    return account(world)


def _split_streams(plans: Mapping[str, NodePlan]) -> dict[str, NodePlan]:
    """Return the plans, with one source for each stream of a source. The sources of one plan share an address."""
    split: dict[str, NodePlan] = {}
    for name, plan in plans.items():
        if plan.role is not Role.SOURCE or len(plan.streams) == 1:
            split[name] = plan
            continue
        for stream in plan.streams:
            own = f"{name}{STREAM_MARK}{stream.name}"
            split[own] = attrs.evolve(plan, name=own, streams=(stream,))
    return split


def _traffic(plan: NodePlan, load: Load) -> Traffic:
    octets, limits = load.size + DATA_HEADER_OCTETS, plan.parameters_of(plan.streams[0])
    per_s = load.rate or max(1, limits.txw_max_rte // _RATE_SHARE // octets)
    # A burst fills at most one train, like the batches of a typical application.
    burst = max(1, min(64, 65_507 // octets, per_s * limits.txw_burst_ivl // SECOND))
    return Traffic(messages=load.messages, size=load.size, rate=per_s, burst=burst, start_ns=_START_NS)


def _longest_retry_ns(plan: NodePlan) -> int:
    """Return the longest pause between two attempts of a repair, ns."""
    limits = plan.parameters
    # waits without an answer grow up to nak_max_ivl
    wait_ns = max(limits.nak_rdata_ivl, limits.nak_rpt_ivl, limits.nak_max_ivl)
    # announced by a parent to its children
    announced_ns = 0 if limits.nak_bo_tuning == "off" else limits.nak_bo_ivl_max
    return wait_ns + max(limits.nak_bo_ivl, announced_ns) + limits.ne_nak_rpt_ivl


def _run(
    world: World, busy_ns: int, quiet_ns: int, limit: int | None, progress: Callable[[Progress], None] | None
) -> None:
    offered, limit_ns = -1, 0
    while True:
        world.run_until(world.now_ns + _SLICE_NS)
        if limit is not None:
            limit_ns = limit
        elif (now_offered := sum(_source_application(node).offered for node in world.sources)) != offered:
            offered, limit_ns = now_offered, max(world.now_ns, busy_ns) + _REST_LIMIT_NS
        if progress is not None:
            progress(_progress(world))
        # A closed source ends by itself, and a crashed one has ended.
        have_left = all(node.core is None for node in world.sources)
        is_quiet = world.now_ns >= world.log.last_activity_ns + quiet_ns
        if have_left and is_quiet and world.now_ns > busy_ns:
            return
        if world.now_ns > limit_ns:
            world.fail("-", f"no rest within {limit_ns / SECOND:g} s of virtual time")


def _source_application(node: SimulatedNode) -> SourceApplication:
    assert isinstance(node.application, SourceApplication)
    return node.application


def _receiver_application(node: SimulatedNode) -> ReceiverApplication:
    assert isinstance(node.application, ReceiverApplication)
    return node.application


def _progress(world: World) -> Progress:
    receivers = world.receivers
    return Progress(
        now_ns=world.now_ns,
        offered=sum(_source_application(node).offered for node in world.sources),
        messages=sum(_source_application(node).traffic.messages for node in world.sources),
        delivered=sum(
            stream.delivered_sqns for node in receivers for stream in _receiver_application(node).all_streams
        ),
        expected=sum(_expected(world, node) for node in receivers),
    )


def _expected(world: World, node: SimulatedNode) -> int:
    ports = {stream.data_port for stream in node.plan.streams}
    return sum(ledger.end - ledger.first for ledger in world.ledgers.values() if ledger.data_port in ports)


def account(world: World) -> Report:
    """Return the report of a world: the totals of each node over all its cores."""
    rows: dict[Role, list[Report]] = {role: [] for role in Role}
    for node in world.nodes.values():
        role = node.plan.role
        rows[role].append(_receiver_row(world, node) if role is Role.RECEIVER else _element_row(node))
    sources = rows[Role.SOURCE]
    receivers = rows[Role.RECEIVER]
    begun_ns = min((_source_application(node).traffic.start_ns for node in world.sources), default=0)
    report: Report = {
        "seed": world.seed,
        "virtual_seconds": round(world.now_ns / SECOND, 6),
        "messages": sum(ledger.messages for ledger in world.ledgers.values()),
        "seconds": round(max(0, world.log.last_delivery_ns - begun_ns) / SECOND, 6),
        "source": {key: sum(row[key] for row in sources) for key in ELEMENT_COUNTERS},
        "sources": sources,
        "aggregators": rows[Role.AGGREGATOR],
        "repairers": rows[Role.REPAIRER],
        "receivers": receivers,
        "events": world.scheduler.events,
        "digest": world.log.digest(),
        "notices": [
            {"at": round(at_ns / SECOND, 6), "node": name, "code": notice.code, "text": notice.text}
            for at_ns, name, notice in world.log.notices
        ],
    }
    report["totals"] = {key: sum(row[key] for row in receivers) for key in _RECEIVER_KEYS}
    report["problems"] = [*_unsent(world), *_problems(receivers)]
    report["ok"] = not report["problems"]
    return report


# key of the row of a source or element -> counter
ELEMENT_COUNTERS: dict[str, str] = {
    "odata": "odata_packets",
    "rdata": "rdata_packets",
    "rdata_forwarded": "rdata_forwarded",
    "nak_packets": "nak_packets_in",
    "nak_sqns": "nak_sqns_in",
    "nak_sqns_in": "nak_sqns_in",
    "nak_sqns_out": "nak_sqns",
    "nak_packets_eliminated": "nak_packets_eliminated",
    "ncfs": "ncf_packets",
}
_RECEIVER_KEYS = (
    "delivered", "lost", "duplicates", "out_of_order", "damaged", "nak_sqns", "repaired", "repaired_locally", "late",
)  # fmt: skip


def _element_row(node: SimulatedNode) -> Report:
    return {"node": node.name} | {key: node.total(counter) for key, counter in ELEMENT_COUNTERS.items()}


def _receiver_row(world: World, node: SimulatedNode) -> Report:
    """Return the row of a receiver. Duplicates, disorder and damage would have ended the run, so their counts are 0."""
    streams = _receiver_application(node).all_streams
    ports = {stream.data_port for stream in node.plan.streams}
    have_all = {stream.tsi for stream in streams if stream.is_complete and stream.is_from_start}
    return {
        "node": node.name,
        "segment": node.plan.segments[0].name,
        "delivered": sum(stream.messages for stream in streams),
        "lost": sum(stream.lost_sqns for stream in streams),
        "duplicates": 0,
        "out_of_order": 0,
        "damaged": 0,
        "nak_sqns": node.total("nak_sqns"),
        "repaired": node.total("repaired_sqns"),
        "repaired_locally": node.total("repaired_locally"),
        "late": node.total("late_sqns"),
        # Every delivery was compared octet by octet with the offered messages, which is stronger than a hash.
        "sha256_ok": have_all == {tsi for tsi, ledger in world.ledgers.items() if ledger.data_port in ports},
    }


def _unsent(world: World) -> list[str]:
    """Return the sources that a fault ended early; unoffered messages count as complete at every receiver."""
    offers = {node.name: _source_application(node) for node in world.sources}
    return [
        f"{name}: ended with {application.offered} of {application.traffic.messages} messages offered"
        for name, application in offers.items()
        if application.offered < application.traffic.messages
    ]


def _problems(receivers: list[Report]) -> list[str]:
    problems = []
    for row in receivers:
        if row["lost"]:
            problems.append(f"{row['node']}: lost {row['lost']}")
        elif not row["sha256_ok"]:
            problems.append(f"{row['node']}: delivered {row['delivered']}, not all of every session")
    return problems
