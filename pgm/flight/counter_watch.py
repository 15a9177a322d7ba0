"""Counters that tell of drops at the node's own sockets, and of requests that a budget refused."""

from __future__ import annotations

from collections.abc import Sequence

from pgm.core.counters import Counters
from pgm.flight.record import DROPPING, SHEDDING, FlightKind, cause_place
from pgm.flight.record_writer import RecordWriter
from pgm.telemetry.observers import Span
from pgm.units import MICROSECOND
from pgm.wire.formats import Nla

_MOST_SINCE_US = 0xFFFFFFFF
_DROP_CAUSES = tuple((name, cause_place(name)) for name in DROPPING)
_SHED_CAUSES = tuple((name, cause_place(name)) for name in SHEDDING)


class CounterWatch:
    """Readings of a core's counters. Only growth is written."""

    def __init__(self, counters: Counters, writer: RecordWriter) -> None:
        self._counters = counters
        self._writer = writer
        self._drops = [getattr(counters, name) for name in DROPPING]
        self._drops_at_ns = writer.now_ns
        self._sheds = [0] * len(SHEDDING)

    def note_drops(self) -> None:
        """Write the packets that the sockets have dropped since the last call, unless it was at this instant."""
        now_ns, drops = self._writer.now_ns, self._drops
        if now_ns == self._drops_at_ns:
            return
        since_us = min((now_ns - self._drops_at_ns) // MICROSECOND, _MOST_SINCE_US)
        self._drops_at_ns = now_ns
        for at, (name, cause) in enumerate(_DROP_CAUSES):
            count = getattr(self._counters, name)
            if count != drops[at]:
                self._writer.add(FlightKind.DROPPED, detail=(count - drops[at], 0, cause, since_us))
                drops[at] = count

    def begin_request(self) -> None:
        """Read the counters of budgets before the core takes a request."""
        self._sheds = [getattr(self._counters, name) for name in SHEDDING]

    def end_request(self, place: int, spans: Sequence[Span], segment: int, peer: Nla) -> None:
        """Write the budgets whose counters have grown since: the core took a request for `spans` meanwhile."""
        for at, (name, cause) in enumerate(_SHED_CAUSES):
            more = getattr(self._counters, name) - self._sheds[at]
            if more:
                self._sheds[at] += more
                parts = [((first, end - first), (more, 0, cause, 0)) for first, end in spans]
                self._writer.add_each(FlightKind.SHED, place, parts, segment, peer)
