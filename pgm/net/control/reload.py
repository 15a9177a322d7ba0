"""Reload of the topology file by a running node, on SIGHUP."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

import attrs

from pgm.core.effects import Notice
from pgm.errors import PgmError
from pgm.impairments import Impairment
from pgm.net.control.settings import answers_of
from pgm.net.driver.node_driver import NodeDriver
from pgm.topology.check import load_checked
from pgm.topology.model import Rate, Topology
from pgm.topology.node_plan import NodePlan, Role, StreamPlan
from pgm.topology.plan import plan_node
from pgm.units import format_fraction, format_rate

_LOSSES = ("loss", "burst_loss", "burst_length")
_OF_THE_COMMAND = (
    "telemetry",
    "tape",
    "reasons",
    "file",
    "digest",
)  # fields of a plan that an option may replace, or that only explain


def has_terminal() -> bool:
    """Return whether the process has a terminal that is open: a hangup of it is no request to reload."""
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return False
    return True


def reload(plan: NodePlan, driver: NodeDriver) -> None:
    """Read the node's topology file again, set what can be set in place, and tell what needs a restart."""
    for notice in _reloaded(plan, driver):
        driver.perform([notice])


def _reloaded(plan: NodePlan, driver: NodeDriver) -> Iterator[Notice]:
    """Yield the results of a reload. Settings that change have notices of their own."""
    try:
        topology = load_checked(plan.file)
        wanted = plan_node(topology, plan.name)
        kept = plan_node(_with_rates_of(plan, topology), plan.name)
        changes = 0
        for request in _requests(plan, wanted, driver):
            answer = answers_of(plan, driver)(request, "a reload of the file")
            changes += sum(change["old"] != change["new"] for change in answer["changed"])
    except (PgmError, OSError) as error:
        told = f"{error.message}; {error.remedy}" if isinstance(error, PgmError) else str(error)
        yield Notice("reload-failed", f"{plan.file}: {told}".replace("\n", "; "))
        return
    fixed = sorted(_differences(plan, kept))
    if fixed:
        yield Notice("reload-restart", f"{plan.file}: a restart is needed for {', '.join(fixed)}")
    yield Notice("reloaded", f"{plan.file}: settings changed: {changes}")


def _requests(plan: NodePlan, wanted: NodePlan, driver: NodeDriver) -> Iterator[Mapping[str, Any]]:
    """Yield the requests of `pgm ctl` that set what the file says now."""
    rates = {stream.name: wanted.parameters_of(stream).txw_max_rte for stream in wanted.streams}
    for stream in plan.streams if plan.role is Role.SOURCE else ():
        rate = rates.get(stream.name)
        if rate is not None and rate <= plan.parameters_of(stream).txw_max_rte and _is_sent(plan, stream, driver):
            yield {"do": "set", "settings": {"rate": format_rate(rate)}, "stream": stream.name}
    losses = {segment.name: segment.impairment for segment in wanted.segments}
    for link in driver.links:
        if link.injector is not None and link.plan.name in losses:
            yield {"do": "set", "settings": _spelled(losses[link.plan.name]), "segment": link.plan.name}


def _is_sent(plan: NodePlan, stream: StreamPlan, driver: NodeDriver) -> bool:
    sent = {one.data_port for endpoint in driver.endpoints for one in (endpoint.plan or plan).streams}
    return stream.data_port in sent


def _spelled(impairment: Impairment) -> dict[str, str]:
    shares = {name: format_fraction(getattr(impairment, name)) for name in ("loss", "burst_loss")}
    return {**shares, "burst_length": f"{impairment.burst_length:g}"}


def _with_rates_of(plan: NodePlan, topology: Topology) -> Topology:
    """Return the file with the rates of the start where it has lower ones, which a source takes in place."""
    streams = dict(topology.streams)
    for stream in plan.streams if plan.role is Role.SOURCE else ():
        table, start = streams.get(stream.name), plan.parameters_of(stream).txw_max_rte
        if table is not None and table.rate is not None and table.rate < start:
            streams[stream.name] = attrs.evolve(table, rate=Rate(start))
    return attrs.evolve(topology, streams=streams)


def _differences(old: NodePlan, new: NodePlan) -> Iterator[str]:
    """Yield the names of all that differs in two plans of a node, except what is set in place."""
    new = attrs.evolve(
        new,
        segments=tuple(
            attrs.evolve(segment, impairment=_with_losses_of(before.impairment, segment.impairment))
            for before, segment in zip(old.segments, new.segments, strict=False)
        )
        + new.segments[len(old.segments) :],
    )
    for field in attrs.fields(NodePlan):
        before, after = getattr(old, field.name), getattr(new, field.name)
        if field.name in _OF_THE_COMMAND or before == after:
            continue
        if field.name != "parameters":
            yield field.name
            continue
        yield from (
            name for name, value in attrs.asdict(before, recurse=False).items() if value != getattr(after, name)
        )


def _with_losses_of(before: Impairment, after: Impairment) -> Impairment:
    """Return an impairment with the losses of the start, if the node injects losses and can change them in place."""
    if before == Impairment():
        return after
    return attrs.evolve(after, **{name: getattr(before, name) for name in _LOSSES})
