"""Sums of a node's observer before it reports an event."""

from __future__ import annotations

from pgm.core.segment import Channel, Segment
from pgm.telemetry.observer import Observer
from pgm.telemetry.schema import Event
from pgm.topology.load import loads
from pgm.topology.plan import plan_node
from pgm.units import MILLISECOND, SECOND
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
    observer = Observer(plan, log, SECOND, lambda: 0)  # type: ignore[arg-type]
    channel = Channel(Segment(0, "floor", "10.0.0.9", "239.0.0.1", upstream=True, downstream=False), is_group=True)
    for number in range(SESSIONS):
        observer.received(data_train([5], tsi=number.to_bytes(8, "big")), channel, "10.0.0.1", SECOND)
    assert len(log.events) > SESSIONS // 2, "each session was told or is in memory"
    observer.close()
    told = [event for event in log.events if event.kind == "received"]
    assert len({event.tsi for event in told}) == SESSIONS
    assert sum(event.count for event in told) == SESSIONS


def test_observer_follows_a_clock_that_is_set() -> None:
    """Rows after the step have the new time, and the step is one row. A slewed clock is followed without a row."""
    plan, log, offset_ns = plan_node(loads(one_segment(Place(1))), "desk-1"), Log(), 0
    observer = Observer(plan, log, SECOND, lambda: offset_ns)  # type: ignore[arg-type]
    tsi, told = bytes(8), len(log.events)
    for second, offset_ns in [(2, 0), (3, 3600 * SECOND), (4, 3600 * SECOND + MILLISECOND)]:  # noqa: B007
        observer.missing(tsi, second, second + 1, second * SECOND)
    assert [(event.kind, event.time_us, event.value_us) for event in log.events[told:]] == [
        ("gap", 2_000_000, None),
        ("clock_step", 3_603_000_000, 3_600_000_000),
        ("gap", 3_603_000_000, None),
        ("gap", 3_604_001_000, None),
    ]
