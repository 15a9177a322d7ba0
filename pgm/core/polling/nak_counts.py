"""How many NAKs came for the same packets on one segment: what tuning and the detection of failures go by (RFC 15.2.1, 15.3.1).

A measurement lasts as long as the repair state it stands for. A NAK list is one decision of one receiver, so it counts
as one measurement, and as one duplicate, however many sqns it has.
"""

from __future__ import annotations

from collections.abc import Iterable

import attrs

from pgm.core.structures.ranges import Span, TimedRange, TimedRanges


@attrs.define(eq=False)
class _Measured(TimedRange):
    """NAKs for a range of sqns since its repair state was made."""

    naks: int = 1


@attrs.frozen
class NakTally:
    """What a NAK came to."""

    is_new: bool  # it made repair state
    is_first_duplicate: bool  # the second NAK for some sqn
    duplicates: int  # NAKs but the first, of the sqn that was asked for most


class NakCounts:
    """The measurements of one session on one segment: `lasts_ns` each, and at most `limit` ranges."""

    def __init__(self, lasts_ns: int, limit: int) -> None:
        self._lasts_ns = lasts_ns
        self._limit = limit
        self._measured: TimedRanges[_Measured] = TimedRanges()

    def note(self, spans: Iterable[Span], now_ns: int) -> NakTally:
        """Count a NAK."""
        for over in self._measured.take_due(now_ns):
            self._measured.remove(over)
        is_new, counts = False, [0]
        for first, end in spans:
            for found in self._measured.within(first, end):
                counts.append(found.naks)
                found.naks += 1
            for low, high in self._measured.uncovered(first, end):
                is_new = True
                self._measured.arm(self._measured.add(_Measured(low, high)), now_ns + self._lasts_ns)
        while len(self._measured) > self._limit:
            oldest = self._measured.oldest
            assert oldest is not None
            self._measured.remove(oldest)
        return NakTally(is_new, 1 in counts, max(counts))

    def discard(self, first: int, end: int) -> None:
        """The repair state of these sqns is gone."""
        self._measured.discard(first, end)
