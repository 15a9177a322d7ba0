"""Differences of two plans of one node, and whether a running node takes each of them in place.

A core has parameters and a setup of its own. All its parts read the values listed here at each use, or have a method
that takes a new one. Everything else got its size or its shape at the start, so a change of it needs a restart.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar

import attrs

from pgm.impairments import Impairment
from pgm.parameters import ROWS, Parameters
from pgm.topology.node_plan import NodePlan, Role, SegmentPlan, StreamPlan
from pgm.topology.problems import joined

# Parameters that the parts of a core read at each use.
LIVE = frozenset(
    {
        "txw_idle_ivl", "txw_yield_share", "txw_unsent_bytes", "txw_unsent_secs", "ack_element_ivl",
        "ack_child_members", "cc_hysteresis", "cc_timeout_ivl", "cc_bar_ivl", "ambient_spm_ivl", "join_ivl",
        "fin_quiet_ivl", "spmr_bo_ivl", "spmr_spm_ivl", "ncf_ivl", "nak_ncf_retries", "nak_data_retries",
        "nak_bo", "nak_bo_group", "nak_group_copy", "parent_retry_ivl", "ncf_lead_sqns", "jump_rate_factor", "jump_confirmations",
        "jump_packets", "jump_ivl", "jump_silence_ivl", "spm_confirmations", "session_confirmations", "stall_ivl",
        "forged_retries", "forged_allowed", "session_expiry", "excess_nak_min_sqns", "excess_nak_share",
        "excess_nak_policy", "notice_ivl", "ne_nak_rpt_ivl", "ne_nak_max_outstanding", "nak_elim_ivl",
        "relay_takeover_ivl", "relay_listen_ivl", "assist_on_ncf", "poll_bo_ivl", "poll_replies",
        "poll_max_replies", "nak_probe_num", "fec_retries", "fec_hold_ivl",
    }
)  # fmt: skip
# Parameters that a part keeps, with a method that takes another value: rates, budgets and timers.
TAKEN = frozenset(
    {
        "txw_max_rte", "rdata_share", "child_nak_rte", "session_nak_rte", "session_ncf_rte", "nak_bo_ivl",
        "nak_rpt_ivl", "nak_rdata_ivl", "nak_rdata_min_ivl", "nak_max_ivl", "reorder_ivl", "rdata_hold_ivl",
    }
)  # fmt: skip
# Bounds of windows and caches, which may grow. A smaller one would drop packets that others may still request.
GROWING = frozenset({"txw_secs", "txw_bytes", "txw_sqns", "rxw_bytes", "cache_bytes", "cache_secs"})

# Intervals that an advertised back-off needs.
_TUNING = frozenset({"nak_bo_ivl_default", "nak_bo_ivl_min", "nak_bo_ivl_max", "nak_probe_num"})
# Fields of a plan that a core takes in place: its neighbours.
NEIGHBOURS = (
    "parents",
    "children",
    "local_repairers",
    "local_relays",
    "keepers",
    "siblings",
    "assist_rank",
    "asks_below_trail",
    "repairers",
)
_BY_THE_COMMAND = ("telemetry", "tape")  # options of a command replace them
_EXPLAINING = ("reasons", "file", "digest")
_OF_STREAMS = ("allowed", "sources")  # of a stream, in place
_LOSSES = ("loss", "burst_loss", "burst_length")
_ONLY_GROWS = "a running window or cache may only grow"
_NEEDS_SIGNS = "signed streams have sessions with parameters of their own"


@attrs.frozen
class Difference:
    """One value that differs. `why_restart` is the reason why a running node cannot take it; empty if it can."""

    name: str
    old: str
    new: str
    why_restart: str = ""

    @property
    def is_in_place(self) -> bool:
        """Whether a running node takes the new value."""
        return not self.why_restart

    @property
    def text(self) -> str:
        """The difference on one line for people."""
        if not (self.old or self.new):
            return self.name
        return f"{self.name}: {self.old or 'none'} -> {self.new or 'none'}"

    def row(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {**attrs.asdict(self), "in_place": self.is_in_place}


def differences(old: NodePlan, new: NodePlan, *, is_return: bool = False) -> list[Difference]:
    """Return what differs in two plans of one node, in the order of the plan's fields.

    With `is_return` a node takes `new` again: windows and caches that have grown keep their size.
    """
    found: list[Difference] = []
    for field in attrs.fields(NodePlan):
        before, after = getattr(old, field.name), getattr(new, field.name)
        if field.name in (*_BY_THE_COMMAND, *_EXPLAINING) or before == after:
            continue
        if field.name == "segments":
            found += _of_segments(before, after)
        elif field.name == "streams":
            found += _of_streams(old, new)
        elif field.name == "parameters":
            found += _of_parameters(old, before, after)
        else:
            found.append(Difference(field.name, *_spelled(before, after), _why_fixed(old, new, field.name)))
    if is_return:
        found = [attrs.evolve(one, why_restart="") if one.why_restart == _ONLY_GROWS else one for one in found]
    return found


def _why_fixed(old: NodePlan, new: NodePlan, field: str) -> str:
    """Return why a field of the plan cannot change in place; empty if it can."""
    if field == "archives" and old.role is Role.RECEIVER and old.record_directory is None:
        return ""  # a durable receiver reads the list when it begins
    if field not in NEIGHBOURS:
        return _REASONS.get(field, "a node reads it once, at the start")
    if field == "parents" and (old.lines or new.lines):
        return "each line got its parents at the start"
    if field == "repairers" and [bool(one) for one in old.repairers] != [bool(one) for one in new.repairers]:
        return "an aggregator gets the routes to the repairers of a segment at its start"
    return ""


_REASONS: Mapping[str, str] = {
    "role": "another role is another program",
    "record_directory": "the archive is opened at the start",
    "record_service": "the range service opens its port at the start",
    "cache_directory": "the cache file is mapped at the start",
    "identity": "keys are read at the start",
    "lines": "the sockets of a line are opened at the start",
}


def _of_segments(old: tuple[SegmentPlan, ...], new: tuple[SegmentPlan, ...]) -> Iterator[Difference]:
    names = [one.name for one in old], [one.name for one in new]
    if names[0] != names[1]:
        yield Difference("segments", ", ".join(names[0]), ", ".join(names[1]), "sockets are opened at the start")
        return
    for before, after in zip(old, new, strict=True):
        for field in attrs.fields(SegmentPlan):
            values = getattr(before, field.name), getattr(after, field.name)
            if values[0] == values[1]:
                continue
            if field.name == "impairment":
                yield from _of_impairment(before.name, *values)
            else:
                why = "sockets are opened at the start"
                if field.name == "peers":
                    why = "the sockets of a unicast leg have a list of its nodes"
                yield Difference(f"segment {before.name} {field.name}", *_spelled(*values), why)


def _of_impairment(segment: str, old: Impairment, new: Impairment) -> Iterator[Difference]:
    """Yield the losses that differ. A node that injects none at its start has no injector."""
    same = attrs.evolve(old, **{name: getattr(new, name) for name in _LOSSES})
    why = "" if old != Impairment() and same == new else "a node without injected losses has no injector"
    for field in attrs.fields(Impairment):
        before, after = getattr(old, field.name), getattr(new, field.name)
        if before != after:
            yield Difference(f"segment {segment} {field.name}", f"{before}", f"{after}", why)


def _of_streams(old: NodePlan, new: NodePlan) -> Iterator[Difference]:
    names = [one.name for one in old.streams], [one.name for one in new.streams]
    if names[0] != names[1]:
        why = "a node opens its streams at the start"
        yield Difference("streams", ", ".join(names[0]), ", ".join(names[1]), why)
        return
    for before, after in zip(old.streams, new.streams, strict=True):
        for field in attrs.fields(StreamPlan):
            values = getattr(before, field.name), getattr(after, field.name)
            if values[0] == values[1] or field.name in ("protection", "parameters"):
                continue
            name = f"stream {before.name} {field.name}"
            why = "" if field.name in _OF_STREAMS else "a node opens its streams at the start"
            if field.name == "allowed" and None in values:
                why = "a node makes the list of permitted senders at the start"
            yield Difference(name, *_spelled(*values), why)
        if before.parameters is not None and after.parameters is not None:
            for one in _of_parameters(old, before.parameters, after.parameters):
                yield attrs.evolve(one, name=f"stream {before.name} {one.name}")


def _of_parameters(plan: NodePlan, old: Parameters, new: Parameters) -> Iterator[Difference]:
    for key, row in ROWS.items():
        before, after = getattr(old, key), getattr(new, key)
        if before != after and plan.role.value in row.roles:  # else no part of the node reads it
            yield Difference(key, row.spell(before), row.spell(after), _why_kept(plan, key, before, after))


def _why_kept(plan: NodePlan, key: str, before: Any, after: Any) -> str:
    """Return why a running node keeps the value of a parameter; empty if it takes the new one."""
    if key in _TUNING and plan.parameters.nak_bo_tuning == "off":
        return ""  # nobody advertises an interval
    if key not in LIVE | TAKEN | GROWING:
        return "windows, tables and sockets get it at the start"
    if key == "reorder_ivl" and plan.lines:
        return "redundant lines get it at the start"
    if key == "txw_max_rte" and after < before and plan.role is Role.SOURCE:
        return ""
    if any(stream.is_proved for stream in plan.streams):
        return _NEEDS_SIGNS
    if key in GROWING and not 0 < before < after:
        return _ONLY_GROWS
    return ""


def _spelled(old: Any, new: Any) -> tuple[str, str]:
    """Return two values as text. Only the members of two sets that differ are named."""
    if isinstance(old, frozenset) and isinstance(new, frozenset):
        return joined(sorted(map(str, old - new))), joined(sorted(map(str, new - old)))
    return _text(old), _text(new)


def _text(value: Any) -> str:
    if isinstance(value, str | int | float | bool):
        return str(value)
    if isinstance(value, tuple) and all(isinstance(one, str) for one in value):
        return ", ".join(value)
    if attrs.has(type(value)) and hasattr(value, "addresses"):
        return f"{len(value.addresses)} addresses"
    return ""


def merged(old: NodePlan, new: NodePlan, onto: NodePlan | None = None, *, is_return: bool = False) -> NodePlan:
    """Return a plan with everything that differs and that a running node takes in place.

    `old` and `new` are the plans of the two files. `onto` is that of the running node, which may have options of a
    program: they stay. By default it is `old`.
    """
    onto = old if onto is None else onto
    found = differences(old, new, is_return=is_return)
    fixed = {one.name for one in found if not one.is_in_place}
    values: dict[str, Any] = {
        name: getattr(new, name)
        for name in (*NEIGHBOURS, "archives")
        if name not in fixed and getattr(old, name) != getattr(new, name)
    }
    values["parameters"] = _merged_parameters(onto.parameters, old.parameters, new.parameters, fixed)
    if "streams" not in fixed:
        values["streams"] = tuple(
            _merged_stream(*three, fixed) for three in _threes(onto.streams, old.streams, new.streams)
        )
    if "segments" not in fixed:
        values["segments"] = tuple(
            _merged_segment(*three, fixed) for three in _threes(onto.segments, old.segments, new.segments)
        )
    if not fixed:
        values |= {"digest": new.digest, "reasons": new.reasons}
    return attrs.evolve(onto, **values)


N = TypeVar("N", StreamPlan, SegmentPlan)


def _threes(onto: Iterable[N], old: Iterable[N], new: Iterable[N]) -> Iterator[tuple[N, N, N]]:
    """Yield what a running node has, with the same of the two files."""
    befores, afters = ({one.name: one for one in ones} for ones in (old, new))
    for one in onto:
        yield one, befores.get(one.name, one), afters.get(one.name, one)


def _merged_parameters(
    onto: Parameters, old: Parameters, new: Parameters, fixed: set[str], prefix: str = ""
) -> Parameters:
    values = {
        key: getattr(new, key)
        for key in ROWS
        if f"{prefix}{key}" not in fixed and getattr(old, key) == getattr(onto, key) != getattr(new, key)
    }
    return attrs.evolve(onto, **values)


def _merged_stream(onto: StreamPlan, old: StreamPlan, new: StreamPlan, fixed: set[str]) -> StreamPlan:
    prefix = f"stream {old.name} "
    values: dict[str, Any] = {
        name: getattr(new, name)
        for name in _OF_STREAMS
        if prefix + name not in fixed and getattr(old, name) != getattr(new, name)
    }
    if onto.parameters is not None and old.parameters is not None and new.parameters is not None:
        values["parameters"] = _merged_parameters(onto.parameters, old.parameters, new.parameters, fixed, prefix)
    return attrs.evolve(onto, **values)


def _merged_segment(onto: SegmentPlan, old: SegmentPlan, new: SegmentPlan, fixed: set[str]) -> SegmentPlan:
    is_fixed = any(name.startswith(f"segment {old.name} ") for name in fixed)
    return onto if is_fixed else attrs.evolve(onto, impairment=new.impairment)
