"""One simulation of `pgm tune`: a candidate on a tree, and what it came to. Runs where Spark runs it."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import attrs

from deploy.node.roles import build_core
from pgm.impairments import Impairment
from pgm.sim.checks.repair_latency import RepairLatency
from pgm.sim.links import LinkSetup
from pgm.sim.runs.report import simulate
from pgm.sim.world import Wiring
from pgm.topology.load import loads
from pgm.topology.model import Host, NodeTable, Overrides, Topology
from pgm.topology.node_plan import NodePlan, Role
from pgm.topology.plan import plan_all
from pgm.units import MILLISECOND

# segment -> parameter -> value, sorted: equal ones are equal
Choices = tuple[tuple[str, tuple[tuple[str, int], ...]], ...]


@attrs.frozen
class TrialSetting:
    """Everything about the tree that all candidates share. Delays in ns by segment; losses by segment and node."""

    text: str  # the topology file
    path: str
    messages: int
    size: int
    delays: tuple[tuple[str, int], ...]
    losses: tuple[tuple[tuple[str, str], Impairment], ...] = ()
    counts: tuple[tuple[str, int], ...] = ()


@attrs.frozen
class Candidate:
    """Values for parameters by segment, and perhaps one more repairer on a segment, or other caches."""

    overrides: Choices = ()
    repairer_on: str = ""
    cache_secs: int = 0  # of every repairer, in ns; 0 is what the file says


@attrs.frozen
class TuneTrial:
    """One run. The seed decides losses and back-offs, and is the same for all candidates that are compared."""

    place: TrialSetting
    candidate: Candidate
    seed: int


@attrs.frozen
class RunMeasures:
    """What a run came to. Times in ms; traffic is what repairing cost, in packets for each packet that was missed."""

    mean_ms: float
    p99_ms: float
    worst_ms: float
    traffic: float
    source_naks: float  # NAKs at the source for each packet that was missed
    lost: int
    missed: int


@functools.lru_cache(maxsize=2)
def _topology(text: str, path: str) -> Topology:
    return loads(text, path)


def applied(topology: Topology, candidate: Candidate) -> Topology:
    """The tree of a candidate."""
    segments = dict(topology.segments)
    for name, values in candidate.overrides:
        segments[name] = attrs.evolve(
            segments[name], parameters=Overrides({**segments[name].parameters, **dict(values)})
        )
    topology = attrs.evolve(topology, segments=segments)
    if candidate.cache_secs:
        topology = with_caches(topology, candidate.cache_secs)
    return with_repairer(topology, candidate.repairer_on) if candidate.repairer_on else topology


def with_caches(topology: Topology, cache_secs: int) -> Topology:
    """The tree whose repairers all keep packets for so long, in ns."""
    nodes = {
        name: attrs.evolve(node, parameters=Overrides({**node.parameters, "cache_secs": cache_secs}))
        if node.role is Role.REPAIRER
        else node
        for name, node in topology.nodes.items()
    }
    return attrs.evolve(topology, nodes=nodes)


def with_repairer(topology: Topology, segment: str) -> Topology:
    """The tree with one more repairer on a segment, which its receivers ask first."""
    receivers = [one for one in topology.nodes.values() if one.role is Role.RECEIVER and one.segment == segment]
    name, parents = f"{segment}-extra-repairer", receivers[0].parents
    extra = NodeTable(
        role=Role.REPAIRER, segment=segment, address=Host(free_address(topology, segment)), parents=parents,
        streams=(), name=name,
    )  # fmt: skip
    nodes: dict[str, NodeTable] = {name: extra}
    for key, node in topology.nodes.items():
        nodes[key] = attrs.evolve(node, parents=(name, *node.parents)) if node in receivers else node
    return attrs.evolve(topology, nodes=nodes)


def free_address(topology: Topology, segment: str) -> str:
    """An address on a segment that no node of the file has; the highest of its network that is free."""
    import ipaddress

    taken = {address for node in topology.nodes.values() for address in node.addresses_on(segment)}
    known = sorted(ipaddress.ip_address(address) for address in taken)
    where = topology.segments[segment].interface
    network = ipaddress.ip_network(where if "/" in where else f"{known[-1]}/24", strict=False)
    at = network.broadcast_address - 1
    while str(at) in taken:
        at -= 1
    return str(at)


def losses_of(plan: NodePlan, losses: Mapping[tuple[str, str], Impairment]) -> NodePlan:
    """A plan with the losses that were measured, where they were."""
    segments = tuple(
        attrs.evolve(one, impairment=losses.get((one.name, plan.name), one.impairment)) for one in plan.segments
    )
    return attrs.evolve(plan, segments=segments)


def run(trial: TuneTrial) -> RunMeasures:
    """Simulate. Raises `TopologyError` for a candidate that makes no sense, `InvariantBroken` never unless the product is wrong."""
    place = trial.place
    topology = applied(_topology(place.text, place.path), trial.candidate)
    known = dict(place.losses)
    plans = {name: losses_of(plan, known) for name, plan in plan_all(topology, dict(place.counts)).items()}
    delays = dict(place.delays)
    wiring = {
        name: {one.name: Wiring(ingress=LinkSetup(delay=delays[one.name])) for one in plan.segments}
        for name, plan in plans.items()
    }
    meter = RepairLatency()
    report = simulate(
        plans, build_core, seed=trial.seed, messages=place.messages, size=place.size, wiring=wiring, checkers=(meter,)
    )
    return _outcome(report, meter)


def _outcome(report: dict[str, Any], meter: RepairLatency) -> RunMeasures:
    elements = [*report["sources"], *report["aggregators"], *report["repairers"]]
    sent = sum(row["rdata"] + row["rdata_forwarded"] + row["ncfs"] + row["nak_packets"] for row in elements)
    missed = max(1, meter.packets)
    return RunMeasures(
        mean_ms=meter.mean_ns / MILLISECOND,
        p99_ms=meter.quantile_ns(0.99) / MILLISECOND,
        worst_ms=meter.quantile_ns(1.0) / MILLISECOND,
        traffic=sent / missed,
        source_naks=sum(row["nak_packets"] for row in report["sources"]) / missed,
        lost=sum(row["lost"] for row in report["receivers"]),
        missed=meter.packets,
    )
