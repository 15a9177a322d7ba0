"""The losses and the slowest repairs that recorders hold."""

from __future__ import annotations

from collections.abc import Iterator

import attrs

from pgm.flight.record import FlightKind
from pgm.flight.verdicts.explanation import Explanation, explain
from pgm.flight.verdicts.view import FlightView, NodeFlight
from pgm.wire.formats import Tsi

_ARRIVALS = (FlightKind.REPAIRED, FlightKind.LATE)


@attrs.frozen
class Trouble:
    """A range of sqns that a node lost or waited for, ending at `time_ns` on the common time line."""

    node: str
    tsi: Tsi
    first: int
    count: int
    is_lost: bool
    took_ns: int
    time_ns: int
    cause: str = ""


def worst_troubles(view: FlightView, most: int, stream: str | None = None) -> list[Trouble]:
    """Return the losses, the newest first, and then the slowest repairs, `most` in all. Raises `UsageError`."""
    tsis = None if stream is None else view.sessions_of(stream)
    found = [one for node in view.nodes.values() for one in _troubles(node, tsis)]
    found.sort(key=lambda one: (not one.is_lost, -one.time_ns if one.is_lost else -one.took_ns))
    return found[:most]


def _troubles(node: NodeFlight, tsis: set[Tsi] | None) -> Iterator[Trouble]:
    end = FlightKind.LOST if node.role == "receiver" else FlightKind.GAVE_UP
    for tsi in node.tsis_any() if tsis is None else tsis & node.tsis_any():
        for event in node.events(tsi, None, (end, *_ARRIVALS)):
            is_lost = event.kind is end
            took_ns = 0 if is_lost and end is FlightKind.LOST else event.value
            yield Trouble(
                node.name,
                tsi,
                event.first,
                event.count,
                is_lost,
                took_ns,
                event.time_ns,
                event.cause if is_lost else "",
            )


def explained(view: FlightView, trouble: Trouble) -> Explanation:
    """Return the explanation of the first packet of a range."""
    return explain(view, "", trouble.first, trouble.node, trouble.tsi)
