"""Sums of a node's observer before it reports an event."""

from __future__ import annotations

from pgm.core.segment import Channel, Segment
from pgm.telemetry.observer import Observer
from pgm.telemetry.schema import Event
from pgm.topology.load import loads
from pgm.topology.plan import plan_node
from pgm.units import SECOND
from tests.net.support.places import Place, one_segment
from tests.unit.core.makers import data_train

SESSIONS = 10_000


class Log:
    """Log that keeps its events."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def add(self, event: Event) -> None:
        self.events.append(event)


def test_observer_thousands_of_sessions_hold_no_memory() -> None:
    plan, log = plan_node(loads(one_segment(Place(1))), "desk-1"), Log()
    observer = Observer(plan, log, SECOND, 0)  # type: ignore[arg-type]
    channel = Channel(Segment(0, "floor", "10.0.0.9", "239.0.0.1", upstream=True, downstream=False), is_group=True)
    for number in range(SESSIONS):
        observer.received(data_train([5], tsi=number.to_bytes(8, "big")), channel, "10.0.0.1", SECOND)
    assert len(log.events) > SESSIONS // 2, "each session was told or is in memory"
    observer.close()
    told = [event for event in log.events if event.kind == "received"]
    assert len({event.tsi for event in told}) == SESSIONS
    assert sum(event.count for event in told) == SESSIONS
