"""Text of `pgm explain`: verdict, way of the packet, steps of the repair, nodes, clocks."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from rich.text import Text

from deploy.terminal.tables import TableColumn, console, table
from pgm.flight.verdicts.clocks import HostClock
from pgm.flight.verdicts.explanation import Explanation
from pgm.flight.verdicts.life import PacketState, Presence
from pgm.flight.verdicts.view import FlightView
from pgm.flight.verdicts.worst import Trouble
from pgm.units import MILLISECOND, SECOND
from pgm.wire.formats import tsi_text

_MOST_NODES = 24  # rows of the table of nodes
# Columns of the losses and slowest repairs.
WORST_COLUMNS = (
    TableColumn("node"),
    TableColumn("stream", 1),
    TableColumn("sqn"),
    TableColumn("took"),
    TableColumn("why"),
    TableColumn("at", 2),
)


def print_explanation(explanation: Explanation) -> None:
    """Print an explanation."""
    terminal = console()
    for line in lines_of(explanation):
        terminal.print(Text(line), soft_wrap=True)
    if explanation.steps:
        terminal.print()
        for line in steps_of(explanation):
            terminal.print(Text(line), soft_wrap=True)
    terminal.print()
    terminal.print(_nodes(explanation, terminal.width))
    terminal.print()
    for line in map(clock_line, explanation.clocks):
        terminal.print(Text(line), soft_wrap=True)


def lines_of(explanation: Explanation) -> Iterator[str]:
    """Yield the lines on the packet, its way and the verdicts."""
    stream = explanation.stream or "session"
    yield f"packet {explanation.sqn:,} of {stream} ({tsi_text(explanation.tsi)})"
    source = explanation.source
    if source is not None and source.presence is Presence.SENT:
        yield f"sent:    by {source.node.name} between {_time(source.after_ns)} and {_time(source.by_ns, is_short=True)}"
    elif source is not None:
        yield f"sent:    the recorder of {source.node.name} does not have it: {source.presence.value}"
    else:
        yield "sent:    no recorder of the source was reached"
    target = explanation.target
    for hop in explanation.loss.path:
        mark = "passed" if hop.passed else "missed"
        yield f"way:     {hop.feeder or 'an unknown node'} -> segment {hop.segment} -> {hop.listener}: {mark}"
    had = [state.node.name for state in explanation.states if state.presence is Presence.HAD and not state.is_lost]
    missed = [state.node.name for state in explanation.states if state.presence is Presence.MISSED]
    yield f"had it:  {_names(had)}"
    yield f"missed:  {_names(missed)}"
    yield f"lost:    {explanation.loss.text}" + ("" if explanation.loss.is_certain else " (not certain)")
    if target is not None:
        yield f"repair:  {explanation.repair.text}"
    for remedy in dict.fromkeys((explanation.loss.remedy, explanation.repair.remedy)):
        if remedy:
            yield f"remedy:  {remedy}"
    if any(state.is_uncertain for state in explanation.states):
        yield "note:    a recorder left out records at that time (flight_rte)"


def _names(names: Sequence[str], most: int = 8) -> str:
    if not names:
        return "none"
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def steps_of(explanation: Explanation) -> Iterator[str]:
    """Yield the lines on the repair."""
    start_ns = min(step.from_ns for step in explanation.steps)
    yield f"repair, from {_time(start_ns)} on"
    yield "        at       took"
    for step in sorted(explanation.steps, key=lambda step: (step.from_ns, step.to_ns)):
        at, took = (step.from_ns - start_ns) / MILLISECOND, step.took_ns / MILLISECOND
        yield f"{at:+10,.1f} {took:10,.1f} ms  {'failed: ' if step.failed else ''}{step.text}"


def _nodes(explanation: Explanation, width: int) -> object:
    shown = [*explanation.states]
    if len(shown) > _MOST_NODES:
        shown.sort(key=lambda state: (state.presence is not Presence.MISSED, state.outcome != "lost"))
        shown = shown[:_MOST_NODES]
    rows = [
        [state.node.name, state.node.role, state.presence.value, _outcome(state), _took(state), state.node.host]
        for state in shown
    ]
    columns = (
        TableColumn("node"),
        TableColumn("role", 1),
        TableColumn("packet"),
        TableColumn("outcome"),
        TableColumn("took"),
        TableColumn("host", 2),
    )
    return table(f"nodes ({len(explanation.states):,})", columns, rows, width)


def _outcome(state: PacketState) -> str:
    if state.outcome == "lost":
        return f"lost: {state.cause}" if state.cause else "lost"
    return f"{state.outcome}, of {state.source}" if state.source else state.outcome


def _took(state: PacketState) -> str:
    return f"{state.took_ns / MILLISECOND:,.1f} ms" if state.took_ns else ""


def clock_line(clock: HostClock) -> str:
    """Return the line on a clock."""
    name = clock.host or clock.boot_id
    if clock.is_reference:
        return f"clock:   times are those of host {name}"
    if clock.error_ns is None:
        return f"clock:   host {name} has no request to compare with: its clock is taken as right"
    ahead, error = clock.ahead_ns / MILLISECOND, clock.error_ns / MILLISECOND
    return f"clock:   host {name} is {ahead:+,.3f} ms ahead, give or take {error:,.3f} ms ({clock.pairs:,} requests compared)"


def _time(time_ns: int, *, is_short: bool = False) -> str:
    seconds, rest = divmod(time_ns, SECOND)
    form = "%H:%M:%S" if is_short else "%Y-%m-%d %H:%M:%S"
    return f"{time.strftime(form, time.localtime(seconds))}.{rest // 1000:06}"


def print_worst(view: FlightView, troubles: Sequence[Trouble], explanations: Sequence[Explanation]) -> None:
    """Print the losses and the slowest repairs."""
    terminal = console()
    if not troubles:
        terminal.print(f"no loss and no repair in the recorders of {len(view.nodes)} nodes")
        return
    rows = worst_rows(view, troubles, explanations)
    terminal.print(table("losses and slowest repairs", WORST_COLUMNS, rows, terminal.width))
    terminal.print(Text("pgm explain STREAM SQN --at NODE tells more"))


def worst_rows(view: FlightView, troubles: Sequence[Trouble], explanations: Sequence[Explanation]) -> list[list[str]]:
    """Return the cells of the losses and slowest repairs, one row each."""
    streams = stream_names(view)
    rows = []
    for trouble, one in zip(troubles, explanations, strict=True):
        sqns = f"{trouble.first:,}" if trouble.count == 1 else f"{trouble.first:,} +{trouble.count - 1:,}"
        what = f"lost: {trouble.cause}" if trouble.is_lost else f"{trouble.took_ns / MILLISECOND:,.1f} ms"
        why = (
            one.loss.kind
            if one.repair.kind in ("none", "in-time", "gave-up")
            else f"{one.loss.kind}, {one.repair.kind}"
        )
        name = streams.get(trouble.tsi, tsi_text(trouble.tsi))
        rows.append([trouble.node, name, sqns, what, why, _time(trouble.time_ns, is_short=True)])
    return rows


def stream_names(view: FlightView) -> dict[bytes, str]:
    """Return the names of streams by their sessions."""
    names = {
        int(row["data_port"]): str(row["name"])
        for node in view.nodes.values()
        for one in node.contents
        for row in one.facts["streams"]
    }
    pairs = [pair for node in view.nodes.values() for one in node.contents for pair in one.sessions]
    return {tsi: names[port] for tsi, port in pairs if port in names}
