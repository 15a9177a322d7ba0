"""Null NAKs on their way to the source: feedback on what repairers have repaired (RFC 9.5.3.2).

They are neither confirmed nor repeated. So that the source hears once of a packet, those for sqns of which it has heard
within NAK_ELIM_IVL stay here; that memory is apart from the repair state, so it eliminates no real NAK (DLR-40).
"""

from __future__ import annotations

from collections.abc import Iterable

from pgm.core.structures.ranges import Span, TimedRange, TimedRanges
from pgm.parameters import Parameters


class NullNaks:
    """The null NAKs that one session has passed up at one node."""

    def __init__(self, parameters: Parameters) -> None:
        self._parameters = parameters
        self._told: TimedRanges[TimedRange] = TimedRanges()

    def admit(self, spans: Iterable[Span], now_ns: int) -> bool:
        """Whether anything in it is news for the source; it is told then."""
        for over in self._told.take_due(now_ns):
            self._told.remove(over)
        is_news = False
        for first, end in spans:
            for low, high in self._told.uncovered(first, end):
                is_news = True
                self._told.arm(self._told.add(TimedRange(low, high)), now_ns + self._parameters.nak_elim_ivl)
        while len(self._told) > self._parameters.repair_states:
            oldest = self._told.oldest
            assert oldest is not None
            self._told.remove(oldest)
        return is_news
