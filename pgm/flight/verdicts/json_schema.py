"""JSON Schema of what `pgm explain --json` prints: docs/reference/flight.md shows it, and tests validate by it."""

from __future__ import annotations

from typing import Any

from pgm.flight.verdicts.loss_place import LOSS_KINDS
from pgm.flight.verdicts.qlog import EVENT_NAMES, FORMAT, VERSION
from pgm.flight.verdicts.repair_story import STEP_KINDS


def _text(doc: str, *choices: str) -> dict[str, Any]:
    return {"type": "string", "description": doc, **({"enum": list(choices)} if choices else {})}


def _ms(doc: str) -> dict[str, Any]:
    return {"type": ["number", "null"], "description": f"{doc}, ms since reference_time_ns; null if unknown."}


def _number(doc: str, kind: str = "integer") -> dict[str, Any]:
    return {"type": kind, "description": doc}


def _object(doc: str, **properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "description": doc, "properties": properties, "required": list(properties)}


def _list(items: dict[str, Any], doc: str = "") -> dict[str, Any]:
    return {"type": "array", "description": doc or items.get("description", ""), "items": items}


_NAMES = {"type": "array", "items": {"type": "string"}}
_HOP = _object(
    "One segment of the way.",
    segment=_text("Segment."),
    feeder=_text("Node that feeds the segment; empty if unknown."),
    listener=_text("Node that takes the stream from it."),
    passed={"type": "boolean", "description": "Whether the first copy passed."},
)
_LOSS = _object(
    "Verdict: where the packet was lost.",
    kind=_text("Kind of the place.", *LOSS_KINDS),
    text=_text("The verdict for people."),
    node=_text("Node that lost it, or behind the link that did."),
    segment=_text("Segment of the loss."),
    feeder=_text("Node that fed the segment."),
    had={**_NAMES, "description": "Other listeners of the segment that got it."},
    missed={**_NAMES, "description": "Other listeners that missed it."},
    path=_list(_HOP, "The way from the source down."),
    is_certain={"type": "boolean", "description": "False if a recorder that matters lacks the packet."},
    remedy=_text("What to do; empty: nothing."),
)
_REPAIR = _object(
    "Verdict: why the repair was late or never came.",
    kind=_text("Kind of the step that took longest.", *STEP_KINDS),
    text=_text("The verdict for people."),
    node=_text("Node of that step."),
    other=_text("Parent of that step."),
    cause=_text("Counter of a budget, or cause of a loss."),
    remedy=_text("What to do; empty: nothing."),
)
_STEP = _object(
    "One step of the repair.",
    kind=_text("Kind of the step.", *STEP_KINDS),
    node=_text("Node that waited."),
    other=_text("Node that it waited for."),
    text=_text("The step for people."),
    time=_ms("Its begin"),
    took_ms=_number("Its length.", "number"),
    failed={"type": "boolean", "description": "Whether something failed in it."},
    cause=_text("Counter of a budget."),
)
_NODE = _object(
    "What one node knows of the packet.",
    node=_text("Name."),
    role=_text("Role."),
    host=_text("Host."),
    presence=_text("What it had at first.", "sent", "had", "missed", "earlier", "not yet", "unknown"),
    outcome=_text("What became of a gap.", "", "repaired", "late", "mended", "skipped", "given up", "lost", "pending"),
    after=_ms("Sent or known after"),
    by=_ms("Sent or known by"),
    gap=_ms("Detection of the gap"),
    end=_ms("End of the gap"),
    took_ms=_number("From gap to end.", "number"),
    source=_text("Node whose packet ended the gap."),
    cause=_text("Cause of a loss."),
    is_uncertain={"type": "boolean", "description": "Whether the recorder left out records at that time."},
)
_CLOCK = _object(
    "Clock of one host.",
    host=_text("Name of the host."),
    boot_id=_text("Boot id: nodes with the same one share a clock."),
    ahead_ns=_number("Its times are later than those of the reference by this."),
    error_ns={"type": ["integer", "null"], "description": "Largest error; null: nothing to compare, taken as 0."},
    pairs=_number("Requests with confirmations that were compared."),
    is_reference={"type": "boolean", "description": "Whether all times are by this clock."},
)
_EVENT = _object(
    "One event, as in qlog.",
    time=_ms("Its time"),
    name=_text("Category and name.", *EVENT_NAMES.values()),
    data={"type": "object", "description": "first, count, and where known segment, peer, value, tries, cause."},
)
_TRACE = _object(
    "Events of one node, as in qlog.",
    vantage_point=_object("The node.", name=_text("Name."), type=_text("Role."), host=_text("Host.")),
    common_fields=_object(
        "Of all events.", time_format=_text("relative"), reference_time=_number("ms since 1970.", "number")
    ),
    events=_list(_EVENT),
)

SCHEMA: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "Output of pgm explain --json",
    **_object(
        "Life of one packet. Keys are added, never renamed.",
        qlog_version=_text("Version of qlog whose form the traces have."),
        qlog_format=_text("JSON"),
        format={"const": FORMAT, "description": "Names this format."},
        version={"const": VERSION, "description": "Of this format."},
        title=_text("For people."),
        stream=_text("Stream as asked for."),
        tsi=_text("TSI of the session."),
        sqn=_number("Sequence number as asked for."),
        reference_time_ns=_number("Time 0 of all other times, ns since 1970."),
        target={"type": ["string", "null"], "description": "Node whose loss is explained; null: no node missed it."},
        loss=_LOSS,
        repair=_REPAIR,
        steps=_list(_STEP, "Steps of the repair."),
        nodes=_list(_NODE, "All nodes, from the source down."),
        clocks=_list(_CLOCK, "Clocks of the hosts."),
        traces=_list(_TRACE, "Events by node."),
    ),
}
