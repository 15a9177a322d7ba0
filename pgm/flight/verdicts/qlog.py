"""Explanations as JSON, in the manner of qlog: one trace for each node, with relative times and named events.

`docs/reference/flight.md` describes the keys. Keys are added, never renamed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs

from pgm.flight.record import FlightKind
from pgm.flight.verdicts.explanation import Explanation
from pgm.flight.verdicts.life import PacketState
from pgm.flight.verdicts.repair_story import Step
from pgm.flight.verdicts.view import FlightEvent
from pgm.flight.verdicts.worst import Trouble
from pgm.units import MILLISECOND
from pgm.wire.formats import tsi_text

FORMAT = "pgm-explain"
VERSION = 1

# kind of a record -> name of the event: category and name, as in qlog
EVENT_NAMES: dict[FlightKind, str] = {
    FlightKind.BEGAN: "recorder:began",
    FlightKind.SENT: "data:sent",
    FlightKind.REACHED: "data:reached",
    FlightKind.GAP: "recovery:gap_detected",
    FlightKind.REPAIRED: "recovery:repaired",
    FlightKind.LATE: "recovery:arrived_late",
    FlightKind.SKIPPED: "recovery:never_sent",
    FlightKind.GAVE_UP: "recovery:gave_up",
    FlightKind.SUPPRESSED: "recovery:nak_suppressed",
    FlightKind.NCF_TIMEOUT: "recovery:ncf_timeout",
    FlightKind.RDATA_TIMEOUT: "recovery:rdata_timeout",
    FlightKind.MENDED: "recovery:mended",
    FlightKind.PARENT: "recovery:parent_changed",
    FlightKind.NAK_IN: "transport:nak_received",
    FlightKind.NAK_OUT: "transport:nak_sent",
    FlightKind.NCF_IN: "transport:ncf_received",
    FlightKind.NCF_OUT: "transport:ncf_sent",
    FlightKind.RDATA_IN: "transport:rdata_received",
    FlightKind.RDATA_OUT: "transport:rdata_sent",
    FlightKind.LOST: "application:lost",
    FlightKind.FORGED: "application:forged",
    FlightKind.CONFLICT: "security:conflict",
    FlightKind.OPENED: "session:opened",
    FlightKind.CLOSED: "session:closed",
    FlightKind.SHED: "budget:shed",
    FlightKind.DROPPED: "socket:dropped",
    FlightKind.SKIPPED_RECORDS: "recorder:left_out",
    FlightKind.CLOCK: "recorder:clock_set",
}


def explanation_as_json(explanation: Explanation) -> dict[str, Any]:
    """Return an explanation as an object for JSON."""
    reference_ns = min((event.time_ns for event in explanation.events), default=0)
    return {
        "qlog_version": "0.4",
        "qlog_format": "JSON",
        "format": FORMAT,
        "version": VERSION,
        "title": f"packet {explanation.sqn} of {explanation.stream or tsi_text(explanation.tsi)}",
        "stream": explanation.stream,
        "tsi": tsi_text(explanation.tsi),
        "sqn": explanation.sqn,
        "reference_time_ns": reference_ns,
        "target": None if explanation.target is None else explanation.target.node.name,
        "loss": {**attrs.asdict(explanation.loss), "remedy": explanation.loss.remedy},
        "repair": {**attrs.asdict(explanation.repair), "remedy": explanation.repair.remedy},
        "steps": [_step_row(step, reference_ns) for step in explanation.steps],
        "nodes": [_state_row(state, reference_ns) for state in explanation.states],
        "clocks": [attrs.asdict(clock) for clock in explanation.clocks],
        "traces": [_trace(state, explanation.events, reference_ns) for state in explanation.states],
    }


def _ms(time_ns: int, reference_ns: int) -> float | None:
    """Return a time in ms since the reference; None for an unknown time."""
    return round((time_ns - reference_ns) / MILLISECOND, 6) if time_ns else None


def _step_row(step: Step, reference_ns: int) -> dict[str, Any]:
    return {
        "kind": step.kind,
        "node": step.node,
        "other": step.other,
        "text": step.text,
        "time": _ms(step.from_ns, reference_ns),
        "took_ms": round(step.took_ns / MILLISECOND, 6),
        "failed": step.failed,
        "cause": step.cause,
    }


def _state_row(state: PacketState, reference_ns: int) -> dict[str, Any]:
    return {
        "node": state.node.name,
        "role": state.node.role,
        "host": state.node.host,
        "presence": state.presence.value,
        "outcome": state.outcome,
        "after": _ms(state.after_ns, reference_ns),
        "by": _ms(state.by_ns, reference_ns),
        "gap": _ms(state.gap_ns, reference_ns),
        "end": _ms(state.end_ns, reference_ns),
        "took_ms": round(state.took_ns / MILLISECOND, 6),
        "source": state.source,
        "cause": state.cause,
        "is_uncertain": state.is_uncertain,
    }


def _trace(state: PacketState, events: Sequence[FlightEvent], reference_ns: int) -> dict[str, Any]:
    own = [event for event in events if event.node == state.node.name]
    return {
        "vantage_point": {"name": state.node.name, "type": state.node.role, "host": state.node.host},
        "common_fields": {"time_format": "relative", "reference_time": reference_ns / MILLISECOND},
        "events": [
            {"time": _ms(event.time_ns, reference_ns), "name": EVENT_NAMES[event.kind], "data": _data(event)}
            for event in own
        ],
    }


def _data(event: FlightEvent) -> dict[str, Any]:
    row: dict[str, Any] = {"first": event.first, "count": event.count}
    if event.segment:
        row["segment"] = event.segment
    if event.peer:
        row["peer"] = event.peer
    if event.value:
        row["value"] = event.value
    if event.tries:
        row["tries"] = event.tries
    if event.cause:
        row["cause"] = event.cause
    return row


def worst_as_json(troubles: Sequence[Trouble], explanations: Sequence[Explanation]) -> dict[str, Any]:
    """Return the list of `pgm explain --worst` as an object for JSON."""
    return {
        "format": "pgm-explain-worst",
        "version": VERSION,
        "troubles": [
            {
                "node": trouble.node,
                "tsi": tsi_text(trouble.tsi),
                "first": trouble.first,
                "count": trouble.count,
                "lost": trouble.is_lost,
                "cause": trouble.cause,
                "took_ms": round(trouble.took_ns / MILLISECOND, 6),
                "time_ns": trouble.time_ns,
                "loss": {**attrs.asdict(one.loss), "remedy": one.loss.remedy},
                "repair": {**attrs.asdict(one.repair), "remedy": one.repair.remedy},
            }
            for trouble, one in zip(troubles, explanations, strict=True)
        ],
    }
