"""What a relay never sent down, since it never got it: known without keeping a single packet."""

from __future__ import annotations

from pgm.core.ranges import Span, TimedRange, TimedRanges
from pgm.parameters import Parameters
from pgm.units import SECOND


class Gaps:
    """The gaps in what went down. Each is asked for once, when it cannot merely be out of order."""

    def __init__(self, parameters: Parameters) -> None:
        self._parameters = parameters
        self._gaps: TimedRanges[TimedRange] = TimedRanges()
        self._end: int | None = None  # behind the newest sqn that went down, or should have

    @property
    def deadline_ns(self) -> int:
        """When the next gap is to be asked for."""
        return self._gaps.next_deadline_ns

    def restart(self, end: int) -> None:
        """Nothing goes down from here for now: whatever happens is not this relay's gap."""
        self._gaps = TimedRanges()
        self._end = end

    def passed(self, first: int, end: int, now_ns: int) -> None:
        """ODATA `first` to `end - 1` goes down, or an SPM says that everything before `first` was sent."""
        if self._end is None:
            self._end = first
        if first > self._end and len(self._gaps) < self._parameters.repair_states:
            gap = self._gaps.add(TimedRange(self._end, first))
            self._gaps.arm(gap, now_ns + self._parameters.reorder_ivl)
        self._end = max(self._end, end)
        self.filled(first, end)

    def filled(self, first: int, end: int) -> list[Span]:
        """Which of these sqns were a gap; they are none any more."""
        return [(one.first, one.end) for one in self._gaps.discard(first, end)]

    def take_due(self, now_ns: int) -> list[Span]:
        """Gaps to ask for now, oldest first, `nak_max_outstanding` sqns at a time. They stay gaps until they are filled.

        After an outage, or an SPM that promises too much, all at once would be a storm.
        """
        spans: list[Span] = []
        room = self._parameters.nak_max_outstanding
        for due in self._gaps.take_due(now_ns):
            gaps = self._gaps.within(due.first, min(due.end, due.first + room)) if room else []
            spans += [(one.first, one.end) for one in gaps]
            room -= sum(one.count for one in gaps)
            rest = self._gaps.at(gaps[-1].end if gaps else due.first)
            if rest is not None and rest.first < due.end:
                self._gaps.arm(rest, now_ns + SECOND // self._parameters.ne_nak_rpt_rte)
        return spans

    def drop_before(self, trail: int) -> None:
        """Forget what the source's window has left behind."""
        oldest = self._gaps.oldest
        if oldest is not None and oldest.first < trail:
            self._gaps.discard(oldest.first, trail)
