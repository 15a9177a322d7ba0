"""Which value a parameter has at one node, and why.

From weak to strong: default, what follows from IPv6, profile, the file's `[parameters]`, stream, segment, node. A relay sits on several
segments: a parameter that sources read too is about answering and comes from the segments below, any other is
about asking and comes from the segment above. Where streams or segments disagree, the first named wins;
`check` reports it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import attrs

from pgm.parameters import PROFILES, ROWS, Parameters, ProfileInputs
from pgm.topology.locate import KeyPath
from pgm.topology.model import NodePlace, NodeTable, Overrides, StreamTable, Topology
from pgm.topology.node_plan import Role
from pgm.units import MIB, MILLISECOND, SECOND, format_duration

_FLAT_OUT_RTE = 2_500_000_000  # octets a second: more than one process sends; the rate of flow = "yield" without a rate
_FLAT_OUT_WINDOW = 256 * MIB
_YIELD_IVL = 50 * MILLISECOND  # its window may last for a fraction of a second
_HOLD_SECS = (
    3 * SECOND
)  # what a full window waits at most for those who ask: some cuts of the rate, and the repairs after them
_HOLD_IVL = 500 * MILLISECOND  # for one NAK: until it is repeated, should its repair be lost
_LEAST_SHARE = 100  # of the rate: how far such a source slows down
_LONGER_HEADER = 20  # octets: IPv6's against IPv4's
_INCREMENTS = 10  # of a window that is shorter than the usual increment


@attrs.frozen
class ParameterSetting:
    """A value that some level of the file gave to a parameter."""

    value: int | float | bool | str
    reason: str
    path: KeyPath  # where the file says so; the profile's place for what it computes


Settings = Mapping[str, ParameterSetting]


def streams_of(topology: Topology, node: NodeTable) -> tuple[StreamTable, ...]:
    """The streams a node carries: those it names, else, for a receiver or an element, all of the file."""
    if node.streams:
        return tuple(topology.streams[name] for name in node.streams if name in topology.streams)
    return () if node.role is Role.SOURCE else tuple(topology.streams.values())


def settings_of(topology: Topology, node: NodeTable, streams: Sequence[StreamTable] | None = None) -> Settings:
    """Every parameter that is said of this node anywhere. `streams` narrows a source down to some of its own."""
    streams = streams_of(topology, node) if streams is None else streams
    base = topology.parameters.get("txw_max_rte", ROWS["txw_max_rte"].default)
    rates = {stream.name: _rate_of(stream) for stream in streams}
    total = sum(rate or int(base) for rate in rates.values()) if any(rates.values()) else int(base)
    found = _of_ipv6(topology, node, streams) | _of_profile(topology, total)
    found |= _given(topology, ("parameters",), topology.parameters, "file")
    for stream in reversed(streams):
        if stream.flow == "yield" and node.role is Role.SOURCE:
            found |= _of_yielding(topology, stream)
        found |= _given(topology, ("streams", stream.name, "parameters"), stream.parameters, f"stream {stream.name}")
        if stream.window is not None and node.role is Role.SOURCE:
            path = ("streams", stream.name, "window")
            reason = _reason(topology, path, f"stream {stream.name} window,")
            found[stream.window.key] = ParameterSetting(stream.window.value, reason, path)
            if stream.window.key == "txw_secs" and stream.window.value < int(ROWS["txw_adv_secs"].default):
                step = max(int(ROWS["txw_adv_secs"].low), stream.window.value // _INCREMENTS)
                found["txw_adv_secs"] = ParameterSetting(step, reason, path)
    if any(rates.values()):
        found["txw_max_rte"] = _rate(topology, streams, total)
    for place in reversed(node.places):
        found |= _of_segment(topology, node, place)
    found |= _of_node(topology, node)
    return found | _of_tiers(topology, node, streams, found)


def _of_tiers(
    topology: Topology, node: NodeTable, streams: Sequence[StreamTable], found: Settings
) -> dict[str, ParameterSetting]:
    """Above elements one waits longer for an element whose acks stand still: whoever is next to the cause shall find it first."""
    tiers = _tiers_below(topology, node.name) if any(one.flow == "acked" for one in streams) else 0
    if not tiers or node.role is Role.RECEIVER:
        return {}
    before = found.get("ack_element_ivl")
    value = value_of(found, "ack_element_ivl") + tiers * value_of(found, "ack_expiry")
    reason = (
        f"{'default' if before is None else before.reason}, and ack_expiry for each of {tiers} tiers of elements below"
    )
    path = ("nodes", node.name) if before is None else before.path
    return {"ack_element_ivl": ParameterSetting(min(value, int(ROWS["ack_element_ivl"].high)), reason, path)}


def _tiers_below(topology: Topology, name: str) -> int:
    """How many tiers of elements ask a node."""
    asking: dict[str, list[str]] = {}
    for one in topology.nodes.values():
        for parent in one.parents if one.role in (Role.AGGREGATOR, Role.REPAIRER) else ():
            asking.setdefault(parent, []).append(one.name)
    known: dict[str, int] = {}

    def tiers(of: str) -> int:
        if of not in known:
            known[of] = 0  # should parents form a loop, which `check` reports
            known[of] = max((1 + tiers(child) for child in asking.get(of, ())), default=0)
        return known[of]

    return tiers(name)


def _of_yielding(topology: Topology, stream: StreamTable) -> dict[str, ParameterSetting]:
    """A source that goes as fast as its receivers bear: it slows down while they ask for too much, and keeps what they ask for."""
    path = ("streams", stream.name, "flow")
    reason = _reason(topology, path, f"stream {stream.name} flow,")
    rate = stream.rate or _FLAT_OUT_RTE
    values: dict[str, int | str] = {
        "txw_min_rte": max(1, rate // _LEAST_SHARE),
        "txw_yield_ivl": _YIELD_IVL,
        "txw_adv_mode": "data",
        "txw_adv_secs": _HOLD_SECS,
        "txw_adv_ivl": _HOLD_IVL,
    }
    if stream.rate is None:
        values["txw_max_rte"] = rate
    if stream.window is None:
        values["txw_bytes"] = _FLAT_OUT_WINDOW
    return {key: ParameterSetting(value, reason, path) for key, value in values.items()}


def parameters_of(settings: Settings) -> Parameters:
    """The settings over the defaults."""
    values: dict[str, Any] = {key: setting.value for key, setting in settings.items()}
    return Parameters(**values)


def value_of(settings: Settings, key: str) -> int:
    """One value as the cores will see it; for parameters that are numbers."""
    setting = settings.get(key)
    return int(ROWS[key].default if setting is None else setting.value)


def _of_profile(topology: Topology, rate: int) -> dict[str, ParameterSetting]:
    inputs = ProfileInputs(rtt=topology.rtt, repair_budget=topology.repair_budget, rate=rate)
    reason = f"profile {topology.profile}, rtt {format_duration(topology.rtt)}"
    values = PROFILES[topology.profile](inputs)
    return {key: ParameterSetting(value, reason, ("profile",)) for key, value in values.items()}


def _of_ipv6(topology: Topology, node: NodeTable, streams: Sequence[StreamTable]) -> dict[str, ParameterSetting]:
    """A source whose streams come to an IPv6 segment makes packets that fit an Ethernet frame there."""
    if node.role is not Role.SOURCE:
        return {}
    for segment in _reached(topology, node, streams):
        if topology.version_on(segment) == 6:
            value = int(ROWS["max_tpdu"].default) - _LONGER_HEADER
            return {"max_tpdu": ParameterSetting(value, f"IPv6 on segment {segment}", ("segments", segment))}
    return {}


def _reached(topology: Topology, node: NodeTable, streams: Sequence[StreamTable]) -> Iterator[str]:
    """The segments to which relays carry a source's streams, its own first."""
    carried = {stream.name for stream in streams}
    relays: defaultdict[str, list[NodeTable]] = defaultdict(list)
    for relay in topology.nodes.values():
        if relay.is_relay and relay.upstream is not None and (not relay.streams or carried.intersection(relay.streams)):
            relays[relay.upstream.segment].append(relay)
    waiting = [place.segment for place in node.downs]
    seen: set[str] = set()
    while waiting:
        segment = waiting.pop(0)
        if segment in seen or segment not in topology.segments:
            continue
        seen.add(segment)
        yield segment
        waiting += [place.segment for relay in relays[segment] for place in relay.downstream]


def _given(topology: Topology, table: KeyPath, overrides: Overrides, who: str) -> dict[str, ParameterSetting]:
    return {
        key: ParameterSetting(value, _reason(topology, (*table, key), who), (*table, key))
        for key, value in overrides.items()
    }


def _reason(topology: Topology, path: KeyPath, who: str) -> str:
    return f"{who} line {topology.lines.of(path)}" if path in topology.lines else who.rstrip(",")


def _rate_of(stream: StreamTable) -> int | None:
    """What the file says of the stream's rate; it may say so in either place."""
    own = stream.parameters.get("txw_max_rte")
    return stream.rate if own is None else int(own)


def _rate(topology: Topology, streams: Sequence[StreamTable], total: int) -> ParameterSetting:
    path = ("streams", streams[0].name, "rate")
    if len(streams) > 1:
        return ParameterSetting(total, f"rates of streams {', '.join(stream.name for stream in streams)}", path)
    return ParameterSetting(total, _reason(topology, path, f"stream {streams[0].name} rate,"), path)


def is_about_answering(key: str) -> bool:
    """Whether a parameter is about serving those below; the others are about asking above."""
    return "source" in ROWS[key].roles


def _of_segment(topology: Topology, node: NodeTable, place: NodePlace) -> dict[str, ParameterSetting]:
    segment = topology.segments.get(place.segment)
    if segment is None:
        return {}
    given = _given(topology, ("segments", segment.name, "parameters"), segment.parameters, f"segment {segment.name}")
    if not node.is_relay:
        return given
    is_above = place == node.upstream
    return {key: setting for key, setting in given.items() if is_about_answering(key) != is_above}


def _of_node(topology: Topology, node: NodeTable) -> dict[str, ParameterSetting]:
    found: dict[str, ParameterSetting] = {}
    tables: dict[str, dict[str, int | None]] = {}
    if node.cache is not None:
        tables["cache"] = {"bytes": node.cache.bytes, "secs": node.cache.seconds}
    if node.record is not None:
        one = node.record
        tables["record"] = {"bytes": one.bytes, "secs": one.seconds, "segment_bytes": one.segment_bytes}
    for table, values in tables.items():
        for key, value in values.items():
            if value is not None:
                path = ("nodes", node.name, table, key.replace("secs", "seconds"))
                found[f"{table}_{key}"] = ParameterSetting(
                    value, _reason(topology, path, f"node {node.name} {table},"), path
                )
    return found | _given(topology, ("nodes", node.name, "parameters"), node.parameters, f"node {node.name}")
