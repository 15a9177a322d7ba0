"""Precedence of parameter values at one node, with the reason of each value.

The levels from weak to strong are: default, IPv6 header size, profile, the file's `[parameters]`, stream, segment, node. A
relay is on several segments. A parameter that sources read too concerns the answers to NAKs, and the segments below set it.
Any other parameter concerns the relay's own NAKs, and the segment above sets it. If streams or segments disagree, the first
in the file wins, and `check` reports the disagreement.
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

_FLAT_OUT_RTE = 2_500_000_000  # octets a second, more than one process sends: rate of flow = "yield" without a rate
_FLAT_OUT_WINDOW = 256 * MIB
_YIELD_IVL = 50 * MILLISECOND  # ns: the window of such a source may last for a fraction of a second
_HOLD_SECS = (
    3 * SECOND
)  # ns: longest hold of a full window, enough for some cuts of the rate and the repairs after them
_HOLD_IVL = 500 * MILLISECOND  # ns: hold for one NAK, until the NAK is repeated after a lost repair
_LEAST_SHARE = 100  # divisor of the rate: the minimum rate of such a source
_LONGER_HEADER = 20  # octets by which an IPv6 header exceeds an IPv4 header
_INCREMENTS = 10  # number of increments in a window shorter than the default increment


@attrs.frozen
class ParameterSetting:
    """Value of a parameter that some level of the file sets."""

    value: int | float | bool | str
    reason: str
    path: KeyPath  # key that sets the value; ("profile",) for a computed value


Settings = Mapping[str, ParameterSetting]


def streams_of(topology: Topology, node: NodeTable) -> tuple[StreamTable, ...]:
    """Return the streams of a node: those that it names, or all for a receiver or an element that names none."""
    if node.streams:
        return tuple(topology.streams[name] for name in node.streams if name in topology.streams)
    return () if node.role is Role.SOURCE else tuple(topology.streams.values())


def settings_of(topology: Topology, node: NodeTable, streams: Sequence[StreamTable] | None = None) -> Settings:
    """Return all parameters that the file sets for a node. `streams` restricts a source to some of its streams."""
    streams = streams_of(topology, node) if streams is None else streams
    base = topology.parameters.get("txw_max_rte", ROWS["txw_max_rte"].default)
    rates = {stream.name: _rate_of(stream) for stream in streams}
    total = sum(rate or int(base) for rate in rates.values()) if any(rates.values()) else int(base)
    settings = _of_ipv6(topology, node, streams) | _of_profile(topology, total)
    settings |= _given(topology, ("parameters",), topology.parameters, "file")
    for stream in reversed(streams):
        if stream.flow == "yield" and node.role is Role.SOURCE:
            settings |= _of_yielding(topology, stream)
        settings |= _given(topology, ("streams", stream.name, "parameters"), stream.parameters, f"stream {stream.name}")
        if stream.window is not None and node.role is Role.SOURCE:
            path = ("streams", stream.name, "window")
            reason = _reason(topology, path, f"stream {stream.name} window,")
            settings[stream.window.key] = ParameterSetting(stream.window.value, reason, path)
            if stream.window.key == "txw_secs" and stream.window.value < int(ROWS["txw_adv_secs"].default):
                step = max(int(ROWS["txw_adv_secs"].low), stream.window.value // _INCREMENTS)
                settings["txw_adv_secs"] = ParameterSetting(step, reason, path)
    if any(rates.values()):
        settings["txw_max_rte"] = _rate(topology, streams, total)
    for place in reversed(node.places):
        settings |= _of_segment(topology, node, place)
    settings |= _of_node(topology, node)
    return settings | _of_tiers(topology, node, streams, settings)


def _of_tiers(
    topology: Topology, node: NodeTable, streams: Sequence[StreamTable], settings: Settings
) -> dict[str, ParameterSetting]:
    """Return a longer `ack_element_ivl` above elements, so that the node next to a stuck element detects it first."""
    tiers = _tiers_below(topology, node.name) if any(stream.flow == "acked" for stream in streams) else 0
    if not tiers or node.role is Role.RECEIVER:
        return {}
    before = settings.get("ack_element_ivl")
    value = value_of(settings, "ack_element_ivl") + tiers * value_of(settings, "ack_expiry")
    reason = (
        f"{'default' if before is None else before.reason}, and ack_expiry for each of {tiers} tiers of elements below"
    )
    path = ("nodes", node.name) if before is None else before.path
    return {"ack_element_ivl": ParameterSetting(min(value, int(ROWS["ack_element_ivl"].high)), reason, path)}


def _tiers_below(topology: Topology, name: str) -> int:
    """Return the number of tiers of elements whose NAKs lead to a node."""
    children: dict[str, list[str]] = {}
    for node in topology.nodes.values():
        for parent in node.parents if node.role in (Role.AGGREGATOR, Role.REPAIRER) else ():
            children.setdefault(parent, []).append(node.name)
    known: dict[str, int] = {}

    def tiers(of: str) -> int:
        if of not in known:
            known[of] = 0  # ends the recursion if parents form a loop, which `check` reports
            known[of] = max((1 + tiers(child) for child in children.get(of, ())), default=0)
        return known[of]

    return tiers(name)


def _of_yielding(topology: Topology, stream: StreamTable) -> dict[str, ParameterSetting]:
    """Return the settings of flow = "yield".

    A source with this flow sends as fast as its receivers allow. The source slows down while the receivers send too many
    NAKs, and keeps the packets that the NAKs request.
    """
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
    """Return the parameters: settings over defaults."""
    values: dict[str, Any] = {key: setting.value for key, setting in settings.items()}
    return Parameters(**values)


def value_of(settings: Settings, key: str) -> int:
    """Return one numeric value as the cores will read it."""
    setting = settings.get(key)
    return int(ROWS[key].default if setting is None else setting.value)


def _of_profile(topology: Topology, rate: int) -> dict[str, ParameterSetting]:
    inputs = ProfileInputs(rtt=topology.rtt, repair_budget=topology.repair_budget, rate=rate)
    reason = f"profile {topology.profile}, rtt {format_duration(topology.rtt)}"
    values = PROFILES[topology.profile](inputs)
    return {key: ParameterSetting(value, reason, ("profile",)) for key, value in values.items()}


def _of_ipv6(topology: Topology, node: NodeTable, streams: Sequence[StreamTable]) -> dict[str, ParameterSetting]:
    """Return a `max_tpdu` that fits an Ethernet frame on IPv6, for a source whose streams reach an IPv6 segment."""
    if node.role is not Role.SOURCE:
        return {}
    for segment in _reached(topology, node, streams):
        if topology.version_on(segment) == 6:
            value = int(ROWS["max_tpdu"].default) - _LONGER_HEADER
            return {"max_tpdu": ParameterSetting(value, f"IPv6 on segment {segment}", ("segments", segment))}
    return {}


def _reached(topology: Topology, node: NodeTable, streams: Sequence[StreamTable]) -> Iterator[str]:
    """Yield the segments that a source's streams reach through relays, its own first."""
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


def _given(topology: Topology, table: KeyPath, overrides: Overrides, level: str) -> dict[str, ParameterSetting]:
    return {
        key: ParameterSetting(value, _reason(topology, (*table, key), level), (*table, key))
        for key, value in overrides.items()
    }


def _reason(topology: Topology, path: KeyPath, level: str) -> str:
    return f"{level} line {topology.lines.of(path)}" if path in topology.lines else level.rstrip(",")


def _rate_of(stream: StreamTable) -> int | None:
    """Return the stream's rate in the file, in octets a second. `rate` or `parameters` may set it."""
    own = stream.parameters.get("txw_max_rte")
    return stream.rate if own is None else int(own)


def _rate(topology: Topology, streams: Sequence[StreamTable], total: int) -> ParameterSetting:
    path = ("streams", streams[0].name, "rate")
    if len(streams) > 1:
        return ParameterSetting(total, f"rates of streams {', '.join(stream.name for stream in streams)}", path)
    return ParameterSetting(total, _reason(topology, path, f"stream {streams[0].name} rate,"), path)


def is_about_answering(key: str) -> bool:
    """Return whether a parameter concerns answers to the nodes below. The others concern the node's own NAKs."""
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
    settings: dict[str, ParameterSetting] = {}
    tables: dict[str, dict[str, int | None]] = {}
    if node.cache is not None:
        tables["cache"] = {"bytes": node.cache.bytes, "secs": node.cache.seconds}
    if node.record is not None:
        record = node.record
        tables["record"] = {"bytes": record.bytes, "secs": record.seconds, "segment_bytes": record.segment_bytes}
    for table, values in tables.items():
        for key, value in values.items():
            if value is not None:
                path = ("nodes", node.name, table, key.replace("secs", "seconds"))
                settings[f"{table}_{key}"] = ParameterSetting(
                    value, _reason(topology, path, f"node {node.name} {table},"), path
                )
    return settings | _given(topology, ("nodes", node.name, "parameters"), node.parameters, f"node {node.name}")
