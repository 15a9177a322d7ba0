"""Null NAKs to the source: feedback on the work of repairers (RFC 9.5.3.2).

Null NAKs are neither confirmed nor repeated. The source needs one null NAK for a packet, so a null NAK is dropped if all
its sqns were passed up within NAK_ELIM_IVL. This memory is separate from the repair state, so it eliminates no real NAK
(DLR-40).
"""

from __future__ import annotations

from collections.abc import Iterable

from pgm.core.structures.ranges import Span, TimedRange, TimedRanges
from pgm.parameters import Parameters


class NullNaks:
    """Record of the null NAKs that one node has passed up in one session."""

    def __init__(self, parameters: Parameters) -> None:
        self._parameters = parameters
        self._reported: TimedRanges[TimedRange] = TimedRanges()

    def admit(self, spans: Iterable[Span], now_ns: int) -> bool:
        """Record a null NAK, and return whether it must go to the source."""
        for expired in self._reported.take_due(now_ns):
            self._reported.remove(expired)
        is_news = False
        for first, end in spans:
            for low, high in self._reported.uncovered(first, end):
                is_news = True
                self._reported.arm(self._reported.add(TimedRange(low, high)), now_ns + self._parameters.nak_elim_ivl)
        while len(self._reported) > self._parameters.repair_states:
            oldest = self._reported.oldest
            assert oldest is not None
            self._reported.remove(oldest)
        return is_news
