"""Counts of NAKs for the same packets on one segment (RFC 15.2.1, 15.3.1).

The tuning of NAK_BO_IVL and the detection of failed multicast use these counts. A measurement lasts as long as the
repair state that it stands for. A NAK list is one decision of one receiver, so it is one measurement and one duplicate,
for any number of sqns.
"""

from __future__ import annotations

from collections.abc import Iterable

import attrs

from pgm.core.structures.ranges import Span, TimedRange, TimedRanges


@attrs.define(eq=False)
class _Measurement(TimedRange):
    """Number of NAKs for a range of sqns since its repair state was made."""

    naks: int = 1


@attrs.frozen
class NakTally:
    """Result of counting one NAK."""

    is_new: bool  # the NAK made repair state
    is_first_duplicate: bool  # the NAK is the second one for some sqn
    duplicates: int  # NAKs after the first, for the sqn with the most NAKs


class NakCounts:
    """Measurements of at most `limit` ranges of one session on one segment, each for `lasts_ns`."""

    def __init__(self, lasts_ns: int, limit: int) -> None:
        self._lasts_ns = lasts_ns
        self._limit = limit
        self._measurements: TimedRanges[_Measurement] = TimedRanges()

    def note(self, spans: Iterable[Span], now_ns: int) -> NakTally:
        """Count a NAK, and return its tally."""
        for expired in self._measurements.take_due(now_ns):
            self._measurements.remove(expired)
        is_new, counts = False, [0]
        for first, end in spans:
            for measurement in self._measurements.within(first, end):
                counts.append(measurement.naks)
                measurement.naks += 1
            for low, high in self._measurements.uncovered(first, end):
                is_new = True
                self._measurements.arm(self._measurements.add(_Measurement(low, high)), now_ns + self._lasts_ns)
        while len(self._measurements) > self._limit:
            oldest = self._measurements.oldest
            assert oldest is not None
            self._measurements.remove(oldest)
        return NakTally(is_new, 1 in counts, max(counts))

    def discard(self, first: int, end: int) -> None:
        """Forget the counts of these sqns, whose repair state is gone."""
        self._measurements.discard(first, end)
