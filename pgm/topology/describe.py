"""Descriptions of a topology: lines of text for `pgm plan`, and dicts with stable keys for `--json`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

import attrs

from pgm.impairments import Impairment
from pgm.parameters import ROWS
from pgm.topology.check import CheckReport
from pgm.topology.model import NodeTable, SegmentTable, StreamTable, Topology
from pgm.topology.node_plan import CLEAR, Address, NodePlan, Role
from pgm.topology.plan import checked_tree, plan_entry, protection_of
from pgm.topology.problems import Problem
from pgm.topology.rules.sources import ANY_SOURCE, default_sources
from pgm.topology.tree import Tree
from pgm.units import MILLISECOND, SECOND, format_duration, format_fraction

Json = dict[str, Any]


# For scripts


def report_json(report: CheckReport) -> Json:
    """Return the document of `pgm check --json`."""
    return {
        "ok": report.is_good,
        "errors": [_problem_json(problem) for problem in report.errors],
        "warnings": [_problem_json(problem) for problem in report.warnings],
    }


def _problem_json(problem: Problem) -> Json:
    return attrs.asdict(problem)


def topology_json(topology: Topology) -> Json:
    """Return the document of `pgm plan --json`. A pattern is one node with its count. Raises `TopologyError`."""
    tree = checked_tree(topology)
    return {
        "topology": topology.name,
        "file": topology.path,
        "profile": topology.profile,
        "rtt": format_duration(topology.rtt),
        "repair_budget": format_duration(topology.repair_budget),
        "streams": [_stream_json(tree, stream) for stream in topology.streams.values()],
        "segments": [_segment_json(tree, segment) for segment in topology.segments.values()],
        "nodes": [_entry_json(tree, node) for node in tree.nodes],
    }


def _stream_json(tree: Tree, stream: StreamTable) -> Json:
    return {
        "stream": stream.name,
        "data_port": stream.data_port,
        "rate": None if stream.rate is None else ROWS["txw_max_rte"].spell(stream.rate),
        "window": None if stream.window is None else ROWS[stream.window.key].spell(stream.window.value),
        "order": stream.order,
        "flow": stream.flow,
        "signed": stream.signed,
        "verify": stream.verify,
        "sealed": stream.sealed,
        "authenticated": stream.authenticated,
        "sources": tree.sources_of(stream.name),
        "permitted": permitted_of(tree, stream) or None,
    }


def _segment_json(tree: Tree, segment: SegmentTable) -> Json:
    loss = segment.loss or Impairment()
    return {
        "segment": segment.name,
        "group": segment.group or None,
        "port": segment.port,
        "unicast_port": segment.own_port,
        "interface": segment.interface or None,
        "transport": segment.transport,
        "unicast": segment.unicast,
        "loss": format_fraction(loss.loss),
        "burst_loss": format_fraction(loss.burst_loss),
        "burst_length": loss.burst_length,
        "streams": sorted({stream for _, stream in tree.feeds[segment.name]}),
        "nodes": [node.name for node in tree.on.get(segment.name, [])],
    }


def _entry_json(tree: Tree, node: NodeTable) -> Json:
    entry = plan_json(plan_entry(tree, node))
    entry["count"] = node.instances
    entry["addresses"] = None if node.addresses is None else node.addresses.spelling
    entry["parents"] = list(node.parents)
    entry["repairers"] = list(node.repairers)
    entry["standby_of"] = node.standby_of or None
    return entry


def plan_json(plan: NodePlan) -> Json:
    """Return one node's plan, with each parameter of its role that differs from the default, and the reason."""
    return {
        "node": plan.name,
        "role": plan.role.value,
        "segments": [
            {
                "segment": seat.name,
                "group": seat.group,
                "port": seat.port,
                "unicast_port": seat.unicast_port,
                "interface": seat.interface,
                "address": seat.address,
                "transport": seat.transport,
                "peers": None if seat.peers is None else list(seat.peers),
                "upstream": seat.upstream,
                "downstream": seat.downstream,
            }
            for seat in plan.segments
        ],
        "streams": [stream.name for stream in plan.streams],
        "parent_addresses": list(plan.parents),
        "lines": [{"segment": line.segment, "parent_addresses": list(line.parents)} for line in plan.lines],
        "sibling_addresses": list(plan.siblings),
        "repairer_addresses": [list(addresses) for addresses in plan.repairers],
        "partner_addresses": sorted(plan.partners),
        "local_repairer_addresses": sorted(plan.local_repairers),
        "is_standby": plan.is_standby,
        "keeps": format_duration(kept_ns(plan)),
        "asks_below_trail": plan.asks_below_trail,
        "parameters": {key: {"value": value, "reason": reason} for key, value, reason in changed_parameters(plan)},
    }


def kept_ns(plan: NodePlan) -> int:
    """Return how long an element keeps packets at the full rate of its streams, in ns; 0 for other nodes."""
    own = plan.parameters
    is_relay = any(seat.downstream and not seat.upstream for seat in plan.segments)
    if plan.role is Role.REPAIRER:
        octets, lasts_ns = own.cache_bytes, own.cache_secs
    elif plan.role is Role.AGGREGATOR and is_relay:
        octets, lasts_ns = own.relay_cache_bytes, own.relay_cache_ivl
    else:
        return 0
    return min(lasts_ns, octets * SECOND // own.txw_max_rte) // MILLISECOND * MILLISECOND


def changed_parameters(plan: NodePlan) -> Iterator[tuple[str, str, str]]:
    """Yield the parameters of the node's role that differ from the default: name, spelled value, reason."""
    for key, reason in plan.reasons:
        row = ROWS[key]
        if plan.role.value in row.roles:
            yield key, row.spell(getattr(plan.parameters, key)), reason


# For people


def topology_lines(topology: Topology) -> list[str]:
    """Return the tree as text: segments with their nodes, and below each relay its segments. Raises `TopologyError`."""
    tree = checked_tree(topology)
    timing = f"profile {topology.profile}, rtt {format_duration(topology.rtt)}"
    lines = [f"{topology.name}: {timing}, repair budget {format_duration(topology.repair_budget)}"]
    for stream in topology.streams.values():
        lines.append(
            f"stream {stream.name}: data port {stream.data_port}{_pace(stream)}, {stream.order}, flow {stream.flow}, "
            f"from {', '.join(permitted_of(tree, stream)) or 'any sender'}" + _security(tree, stream)
        )
    names: dict[Address, str] = {
        place.address: node.name for node in tree.nodes for place in node.places if place.address
    }
    fed = {place.segment for node in tree.nodes if node.is_relay for place in node.downstream}
    for name in topology.segments:
        if name not in fed:
            lines += ["", *_segment_lines(tree, name, names)]
    return lines


def permitted_of(tree: Tree, stream: StreamTable) -> list[str]:
    """Return the names and addresses of the permitted sources of a stream; empty if any sender is permitted."""
    if stream.sources == ANY_SOURCE:
        return []
    return [*stream.sources] or [node.name for node in default_sources(tree, stream)]


def _security(tree: Tree, stream: StreamTable) -> str:
    protection = protection_of(tree, stream)
    return "" if protection == CLEAR else f", {protection.text}"


def _pace(stream: StreamTable) -> str:
    rate = "" if stream.rate is None else f", {ROWS['txw_max_rte'].spell(stream.rate)}"
    if stream.window is None:
        return rate
    packets = " packets" if stream.window.key == "txw_sqns" else ""
    return f"{rate}, window {ROWS[stream.window.key].spell(stream.window.value)}{packets}"


def _segment_lines(tree: Tree, name: str, names: Mapping[Address, str]) -> list[str]:
    """Return one segment and all below it. A checked tree has no loop, so the recursion ends."""
    segment = tree.topology.segments[name]
    loss = "" if segment.loss is None else f", loses {format_fraction(segment.loss.asked)}"
    interface = f" on {segment.interface}" if segment.interface else ""
    lines = [f"segment {name}: {segment.where}{interface}{loss}"]
    # A relay hangs below its upstream segment, and its downstream segments hang below the relay.
    seated = [node for node in tree.on.get(name, []) if node.up is None or node.up.segment == name]
    for index, node in enumerate(seated):
        is_last = index == len(seated) - 1
        first, *rest = _node_lines(tree, node, names)
        lines.append(("└─ " if is_last else "├─ ") + first)
        lines += [("   " if is_last else "│  ") + line for line in rest]
    return lines


def _node_lines(tree: Tree, node: NodeTable, names: Mapping[Address, str]) -> list[str]:
    lines = plan_lines(plan_entry(tree, node), names)
    if node.is_pattern:
        pool = "" if node.addresses is None else f", {node.addresses.spelling}"
        lines[0] += f", {node.instances} of them{pool}"
    if node.standby_of:
        lines[0] += f", standby of {node.standby_of}"
        return lines
    if node.is_relay:
        for place in node.downstream:
            lines += [f"  {line}" for line in _segment_lines(tree, place.segment, names)]
    return lines


def plan_lines(plan: NodePlan, names: Mapping[Address, str] = MappingProxyType({})) -> list[str]:
    """Return one node as text: role, addresses, parents, and the reasons of values other than the defaults.

    `names` maps addresses to names of nodes, if the tree is known.
    """

    def spell(addresses: Iterable[Address]) -> str:
        return ", then ".join(f"{names[a]} ({a})" if a in names else a for a in addresses)

    seats = "".join(f", {seat.address} on {seat.name}" for seat in plan.segments if seat.address)
    streams = ", ".join(stream.name for stream in plan.streams)
    lines = [f"{plan.name}: {plan.role.value}{seats}, {streams or 'any stream'}"]
    asked_first = [address for addresses in plan.repairers for address in addresses]
    if asked_first:
        lines.append(f"  asks below {spell(asked_first)}")
    if plan.siblings:
        lines.append(f"  asks beside {spell(plan.siblings)}")
    if plan.parents:
        lines.append(f"  asks {'above ' if asked_first or plan.siblings else ''}{spell(plan.parents)}")
    for line in plan.lines:
        lines.append(
            f"  takes the same from {line.segment}" + (f", asks {spell(line.parents)} there" if line.parents else "")
        )
    if kept_ns(plan):
        rate = ROWS["txw_max_rte"].spell(plan.parameters.txw_max_rte)
        lines.append(f"  keeps packets for {format_duration(kept_ns(plan))} at {rate}")
    return [*lines, *(f"  {key} {value}: {reason}" for key, value, reason in changed_parameters(plan))]
