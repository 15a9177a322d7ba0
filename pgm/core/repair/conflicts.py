"""Different copies of one packet at an element that caches: dropped, requested again, and reported.

Without keys no node can know which copy is the source's, so a cache serves neither. The packet is missing again. Its next
copy comes from above by request, and is cached once more. If that copy differs from another again, the cache takes no
further copy.
"""

from __future__ import annotations

import attrs

from pgm.core.effects import NOTHING, Effects, Notice
from pgm.core.repair.cache import SessionCache
from pgm.core.session_context import SessionContext
from pgm.core.structures.packet_copies import differing
from pgm.core.structures.ranges import RangeTable, Span, SqnRange
from pgm.wire.formats import tsi_text
from pgm.wire.train import Run

# Report again after this many times as many conflicts: an attacker fills no log.
_REPORT_FACTOR = 2


@attrs.define(eq=False)
class _Mark(SqnRange):
    """Sqns that were in conflict. A barred one was twice."""

    is_barred: bool = False


class CacheConflicts:
    """Conflicts of one session's cache, of the newest `rxw_gaps` ranges."""

    def __init__(self, context: SessionContext, cache: SessionCache) -> None:
        self._tsi = context.tsi
        self._counters = context.counters
        self._most_marks = context.parameters.rxw_gaps
        self._cache = cache
        self._marks: RangeTable[_Mark] = RangeTable()
        self._is_signed = context.is_signed
        self._found = 0
        self._report_at = 1

    def compare(self, run: Run, spans: list[Span]) -> list[Span]:
        """Compare the `spans` of a run, which came before, with the cache. Return the sqns to request again.

        Packets that differ leave the cache. `take_notice` returns a report. In a signed stream the first copy stays:
        receivers know which one is false, and a hostile repairer must not empty the caches of others.
        """
        if self._is_signed:
            return []
        fresh: list[Span] = []
        for low, high in spans:
            for first, end in differing(self._cache.parts(low, high), run):
                self._cache.drop(first, end)
                self._found += end - first
                self._counters.conflict_sqns += end - first
                for mark in self._marks.within(first, end):
                    mark.is_barred = True
                for new_first, new_end in self._marks.uncovered(first, end):
                    self._marks.add(_Mark(new_first, new_end))
                    fresh.append((new_first, new_end))
        while (oldest := self._marks.oldest) is not None and len(self._marks) > self._most_marks:
            self._marks.remove(oldest)
        return fresh

    def cacheable(self, parts: list[Run]) -> list[Run]:
        """Return the parts of runs that may be cached."""
        if not self._marks:
            return parts
        return [part.part(first, end) for part in parts for first, end in self._unbarred(part.first, part.end)]

    def _unbarred(self, first: int, end: int) -> list[Span]:
        spans = self._marks.uncovered(first, end)
        spans += [(mark.first, mark.end) for mark in self._marks.within(first, end) if not mark.is_barred]
        return sorted(spans)

    def is_barred(self, sqn: int) -> bool:
        """Return whether a sqn is cached no more."""
        mark = self._marks.at(sqn)
        return mark is not None and mark.is_barred

    def take_notice(self) -> Effects:
        """Return a notice if many more conflicts were found since the last notice."""
        if self._found < self._report_at:
            return NOTHING
        self._report_at = _REPORT_FACTOR * self._found
        text = f"two copies of packets differ, {self._found:,} sqns so far: neither is served"
        return (Notice("conflict", f"session {tsi_text(self._tsi)}: {text}"),)
