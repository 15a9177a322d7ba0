"""What a relay never sent down, since it never got it: known without keeping a single packet."""

from __future__ import annotations

import attrs

from pgm.core.structures.ranges import Span, TimedRange, TimedRanges
from pgm.parameters import Parameters
from pgm.units import NEVER, SECOND

# What may be asked for at a time is asked for in so many waves while there is more: each costs a NAK, an NCF and a wake-up above.
_WAVES = 4


@attrs.define(eq=False)
class _Gap(TimedRange):
    """A gap, or the part of one that was treated alike. The timer runs while it may merely be out of order, and while an answer is waited for."""

    is_asked: bool = False  # and may still be answered


class OwnGaps:
    """The gaps in what went down. Each is asked for once, oldest first, when it cannot merely be out of order.

    Answers are the clock: `ne_nak_max_outstanding` sqns are asked for at a time, and more as they come. What is not answered
    makes room after a repeat interval, so that a relay whose own socket overflows asks slowly.
    """

    def __init__(self, parameters: Parameters) -> None:
        self._parameters = parameters
        self._repeat_ivl = SECOND // parameters.ne_nak_rpt_rte
        self._end: int | None = None  # behind the newest sqn that went down, or should have
        self._forget()

    def _forget(self) -> None:
        self._gaps: TimedRanges[_Gap] = TimedRanges()
        self._missing_end = -NEVER  # the gaps before this cannot merely be out of order, ...
        self._asked_end = -NEVER  # ... and those before this were asked for
        self._waiting = 0  # sqns of the gaps in between
        self._outstanding = 0  # sqns that were asked for and may still be answered

    @property
    def deadline_ns(self) -> int:
        """When the next gap cannot be out of order any more, or there is room to ask for what waits: then at once."""
        return 0 if self.has_room else self._gaps.next_deadline_ns

    @property
    def has_room(self) -> bool:
        """Whether something waits that may be asked for: all of it, or a wave."""
        most = self._parameters.ne_nak_max_outstanding
        return self._waiting > 0 and most - self._outstanding >= min(self._waiting, most // _WAVES)

    def restart(self, end: int) -> None:
        """Nothing goes down from here for now: whatever happens before `end`, or what was known before, is not this relay's gap."""
        self._forget()
        self._end = end if self._end is None else max(self._end, end)

    def passed(self, first: int, end: int, now_ns: int) -> None:
        """ODATA `first` to `end - 1` goes down, or an SPM says that everything before `first` was sent."""
        if self._end is None:
            self._end = first
        if first > self._end and len(self._gaps) < self._parameters.repair_states:
            gap = self._gaps.add(_Gap(self._end, first))
            self._gaps.arm(gap, now_ns + self._parameters.reorder_ivl)
        self._end = max(self._end, end)
        self.filled(first, end)

    def filled(self, first: int, end: int) -> list[Span]:
        """Which of these sqns were a gap; they are none any more."""
        found = self._gaps.discard(first, end)
        for one in found:
            if one.is_asked:
                self._outstanding -= one.count
            elif self._asked_end <= one.first < self._missing_end:
                self._waiting -= one.count
        return [(one.first, one.end) for one in found]

    def take_missing(self, now_ns: int) -> list[Span]:
        """Gaps that cannot merely be out of order any more, once."""
        missing: list[Span] = []
        for one in self._gaps.take_due(now_ns):
            if one.is_asked:
                one.is_asked = False
                self._outstanding -= one.count
            else:
                missing.append((one.first, one.end))
                self._missing_end = one.end
                self._waiting += one.count
        return missing

    def take_wave(self, now_ns: int) -> list[Span]:
        """What of the missing is to be asked for now, oldest first. It stays a gap until it is filled."""
        if not self.has_room:
            return []
        wave: list[_Gap] = []
        room = self._parameters.ne_nak_max_outstanding - self._outstanding
        while room and self._waiting:
            oldest = next(self._gaps.reaching(self._asked_end))
            [gap] = self._gaps.within(oldest.first, min(oldest.end, oldest.first + room))
            gap.is_asked = True
            wave.append(gap)
            room -= gap.count
            self._outstanding += gap.count
            self._waiting -= gap.count
            self._asked_end = gap.end
        self._gaps.arm_each(wave, now_ns + self._repeat_ivl)
        return [(one.first, one.end) for one in wave]

    def drop_before(self, trail: int) -> None:
        """Forget what the source's window has left behind."""
        oldest = self._gaps.oldest
        if oldest is not None and oldest.first < trail:
            self.filled(oldest.first, trail)
