"""One simulation of `pgm tune`: a candidate on a tree, and its measures. Spark runs it in worker processes."""

from __future__ import annotations

import functools
import ipaddress
from collections.abc import Iterable, Mapping
from typing import Any

import attrs

from deploy.node.roles import build_core
from pgm.core.effects import Send
from pgm.errors import UsageError
from pgm.impairments import Impairment
from pgm.sim.checks.checker import Checker
from pgm.sim.checks.repair_latency import RepairLatency
from pgm.sim.links import LinkSetup
from pgm.sim.load import Load, NetworkConditions
from pgm.sim.node import SimulatedNode
from pgm.sim.runs.report import Observation, simulate
from pgm.sim.world import Wiring
from pgm.topology.addresses import IpNetwork, network_of, version_of
from pgm.topology.load import loads
from pgm.topology.model import Host, NodeTable, Overrides, Topology
from pgm.topology.node_plan import NodePlan, Role
from pgm.topology.plan import plan_all
from pgm.units import MILLISECOND
from pgm.wire.formats import PacketType
from pgm.wire.train import Train

# segment -> parameter -> value, sorted so that equal choices compare equal
Choices = tuple[tuple[str, tuple[tuple[str, int], ...]], ...]

_USUAL_BITS = {4: 24, 6: 64}  # of a network of which only an address is known, by version


@attrs.frozen
class TrialSetting:
    """Settings that all candidates share. Delays are in ns by segment; losses are by segment and node."""

    text: str  # text of the topology file
    path: str
    messages: int
    size: int
    delays: tuple[tuple[str, int], ...]
    losses: tuple[tuple[tuple[str, str], Impairment], ...] = ()
    counts: tuple[tuple[str, int], ...] = ()


@attrs.frozen
class Candidate:
    """Values of parameters by segment, with optional additional repairers and an optional cache time."""

    overrides: Choices = ()
    repairers_on: tuple[str, ...] = ()  # segments with one more repairer each
    cache_secs: int = 0  # cache time of every repairer in ns; 0 keeps the times of the file


@attrs.frozen
class TuneTrial:
    """Run of a candidate. The seed determines losses and back-offs; compared candidates use the same seeds."""

    setting: TrialSetting
    candidate: Candidate
    seed: int


@attrs.frozen
class RunMeasures:
    """Measures of a run. Times are in ms; traffic is the number of packets for repairs per missed packet."""

    mean_ms: float
    p99_ms: float
    worst_ms: float
    traffic: float
    source_naks: float  # NAKs at the source per missed packet
    lost: int
    missed: int


@functools.lru_cache(maxsize=2)
def _topology(text: str, path: str) -> Topology:
    return loads(text, path)


def applied(topology: Topology, candidate: Candidate) -> Topology:
    """Return the tree of a candidate."""
    segments = dict(topology.segments)
    for name, values in candidate.overrides:
        segments[name] = attrs.evolve(
            segments[name], parameters=Overrides({**segments[name].parameters, **dict(values)})
        )
    topology = attrs.evolve(topology, segments=segments)
    if candidate.cache_secs:
        topology = with_caches(topology, candidate.cache_secs)
    for segment in candidate.repairers_on:
        topology = with_repairer(topology, segment)
    return topology


def with_caches(topology: Topology, cache_secs: int) -> Topology:
    """Return the tree with the cache time `cache_secs`, in ns, for all repairers."""
    nodes = {
        name: attrs.evolve(node, parameters=Overrides({**node.parameters, "cache_secs": cache_secs}))
        if node.role is Role.REPAIRER
        else node
        for name, node in topology.nodes.items()
    }
    return attrs.evolve(topology, nodes=nodes)


def with_repairer(topology: Topology, segment: str) -> Topology:
    """Return the tree with one more repairer on a segment, as the first parent of the segment's receivers."""
    receivers = receivers_on(topology, segment)
    name, parents = extra_name(segment), receivers[0].parents
    extra = NodeTable(
        role=Role.REPAIRER, segment=segment, address=Host(free_address(topology, segment)), parents=parents,
        streams=(), name=name,
    )  # fmt: skip
    nodes: dict[str, NodeTable] = {name: extra}
    for key, node in topology.nodes.items():
        nodes[key] = attrs.evolve(node, parents=(name, *node.parents)) if node in receivers else node
    return attrs.evolve(topology, nodes=nodes)


def receivers_on(topology: Topology, segment: str) -> list[NodeTable]:
    """Return the entries of receivers on a segment."""
    return [node for node in topology.nodes.values() if node.role is Role.RECEIVER and node.segment == segment]


def extra_name(segment: str) -> str:
    """Return the name of an additional repairer on a segment."""
    return f"{segment}-extra-repairer"


def free_address(topology: Topology, segment: str) -> str:
    """Return the highest address of a segment's network that no node of the file has.

    Raises `UsageError` if the file tells no network, or if the network has no free address.
    """
    taken = {address for node in topology.nodes.values() for address in node.addresses_on(segment)}
    network = _network(topology.segments[segment].interface, taken)
    if network is None:
        raise UsageError(
            f"segment {segment}: the file tells no network, so a further repairer has no address",
            remedy='write the interface as a network, such as "10.0.0.0/24"',
        )
    for offset in range(network.num_addresses - 2, 0, -1):
        address = str(network[offset])
        if address not in taken:
            return address
    raise UsageError(
        f"segment {segment}: nodes of the file have all addresses of {network}",
        remedy="write a larger network as the interface",
    )


def has_room(topology: Topology, segment: str) -> bool:
    """Return whether a further repairer can have an address on a segment."""
    try:
        free_address(topology, segment)
    except UsageError:
        return False
    return True


def _network(interface: str, taken: Iterable[str]) -> IpNetwork | None:
    """Return the network of an interface, else the usual one of a known address."""
    known = [interface] if version_of(interface) is not None else sorted(taken, key=ipaddress.ip_address)[-1:]
    for address in known:
        bits = _USUAL_BITS[ipaddress.ip_address(address.partition("/")[0]).version]
        return network_of(address) or ipaddress.ip_network(f"{address}/{bits}", strict=False)
    return None


def losses_of(plan: NodePlan, losses: Mapping[tuple[str, str], Impairment]) -> NodePlan:
    """Return a plan with the measured losses; segments without a measurement keep the losses of the file."""
    segments = tuple(
        attrs.evolve(segment, impairment=losses.get((segment.name, plan.name), segment.impairment))
        for segment in plan.segments
    )
    return attrs.evolve(plan, segments=segments)


class AskedSegments(Checker):
    """Observer of the segments on which any node has sent a NAK, which timers of no other segment could change."""

    def __init__(self) -> None:
        self.names: set[str] = set()

    def sent(self, node: SimulatedNode, send: Send, train: Train) -> None:
        """Note the segment of a NAK."""
        name = send.segment.name
        if not send.is_data and name not in self.names:
            items, _ = train.parse_untrusted()
            if any(item.type is PacketType.NAK for item in items):
                self.names.add(name)


def asked_segments(setting: TrialSetting, seeds: int) -> set[str]:
    """Return the segments on which packets are requested in some runs of the present file."""
    asked = AskedSegments()
    for seed in range(seeds):
        _simulated(TuneTrial(setting, Candidate(), seed), asked)
    return asked.names


def run(trial: TuneTrial) -> RunMeasures:
    """Simulate a trial and return its measures.

    Raises `TopologyError` for a candidate that gives no valid tree, and `InvariantBroken` only for a defect of the product.
    """
    latency = RepairLatency()
    return _outcome(_simulated(trial, latency), latency)


def _simulated(trial: TuneTrial, checker: Checker) -> dict[str, Any]:
    """Return the report of a trial."""
    setting = trial.setting
    topology = applied(_topology(setting.text, setting.path), trial.candidate)
    losses = dict(setting.losses)
    plans = {name: losses_of(plan, losses) for name, plan in plan_all(topology, dict(setting.counts)).items()}
    delays = dict(setting.delays)
    wiring = {
        name: {segment.name: Wiring(ingress=LinkSetup(delay=delays[segment.name])) for segment in plan.segments}
        for name, plan in plans.items()
    }
    return simulate(
        plans,
        build_core,
        seed=trial.seed,
        load=Load(messages=setting.messages, size=setting.size),
        conditions=NetworkConditions(wiring=wiring),
        observation=Observation(checkers=(checker,)),
    )


def _outcome(report: dict[str, Any], latency: RepairLatency) -> RunMeasures:
    elements = [*report["sources"], *report["aggregators"], *report["repairers"]]
    sent = sum(row["rdata"] + row["rdata_forwarded"] + row["ncfs"] + row["nak_packets"] for row in elements)
    missed = max(1, latency.packets)
    return RunMeasures(
        mean_ms=latency.mean_ns / MILLISECOND,
        p99_ms=latency.quantile_ns(0.99) / MILLISECOND,
        worst_ms=latency.quantile_ns(1.0) / MILLISECOND,
        traffic=sent / missed,
        source_naks=sum(row["nak_packets"] for row in report["sources"]) / missed,
        lost=sum(row["lost"] for row in report["receivers"]),
        missed=latency.packets,
    )
