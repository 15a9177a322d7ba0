"""Gaps in the data that a relay received and relayed, without keeping any packet."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from pgm.core.structures.ranges import Span, TimedRange, TimedRanges
from pgm.parameters import Parameters
from pgm.units import NEVER, SECOND

# While more gaps wait, the sqns that may be outstanding are requested in this many waves. Each wave costs a NAK, an NCF
# and an upstream wake-up.
_WAVES = 4


@attrs.define(eq=False)
class _Gap(TimedRange):
    """Gap, or part of one with its own timer, which runs while it may be mere reordering or an answer is awaited."""

    is_requested: bool = False  # requested, and an answer may still come


class OwnGaps:
    """The gaps in relayed data. Each gap is requested once, oldest first.

    A gap is requested when it cannot be mere reordering. Answers drive the requests: up to `ne_nak_max_outstanding`
    sqns are outstanding, and each answer makes room for more. An unanswered request makes room after a repeat interval,
    so that a relay whose own socket overflows sends few NAKs.
    """

    def __init__(self, parameters: Parameters) -> None:
        self._parameters = parameters
        self._repeat_ivl = SECOND // parameters.ne_nak_rpt_rte
        self.may_ask = True  # off while the parent cannot be heard
        self._end: int | None = None  # after the newest sqn that was relayed, or should have been
        self._forget()

    def _forget(self) -> None:
        self._gaps: TimedRanges[_Gap] = TimedRanges()
        self._missing_end = -NEVER  # gaps before this cannot be mere reordering
        self._requested_end = -NEVER  # gaps before this were requested
        self._waiting = 0  # sqns of the gaps in between
        self._outstanding = 0  # sqns that were requested and may still be answered

    @property
    def deadline_ns(self) -> int:
        """When a gap is no mere reordering any more; 0 if a wave can be sent now, NEVER while none may."""
        if not self.may_ask:
            return NEVER
        return 0 if self.has_room else self._gaps.find_deadline_ns()

    @property
    def has_room(self) -> bool:
        """Whether gaps wait and may be requested: all of them, or a full wave."""
        most = self._parameters.ne_nak_max_outstanding
        return self._waiting > 0 and most - self._outstanding >= min(self._waiting, most // _WAVES)

    def restart(self, end: int) -> None:
        """Stop relaying for now, and forget all gaps. Data before `end` is no gap of this relay."""
        self._forget()
        self._end = end if self._end is None else max(self._end, end)

    def passed(self, first: int, end: int, now_ns: int) -> None:
        """Note that ODATA `first` to `end - 1` is relayed; `first == end`: an SPM says all before was sent."""
        if self._end is None:
            self._end = first
        if first > self._end and len(self._gaps) < self._parameters.repair_states:
            gap = self._gaps.add(_Gap(self._end, first))
            self._gaps.arm(gap, now_ns + self._parameters.reorder_ivl)
        self._end = max(self._end, end)
        self.filled(first, end)

    def filled(self, first: int, end: int) -> list[Span]:
        """Fill gaps, and return which of these sqns were gaps."""
        gaps = self._gaps.discard(first, end)
        for gap in gaps:
            if gap.is_requested:
                self._outstanding -= gap.count
            elif self._requested_end <= gap.first < self._missing_end:
                self._waiting -= gap.count
        return [(gap.first, gap.end) for gap in gaps]

    def cover(self, spans: Sequence[Span]) -> bool:
        """Return whether all these sqns are gaps: no node below can have them."""
        return all(not self._gaps.uncovered(first, end) for first, end in spans)

    def take_missing(self, now_ns: int) -> list[Span]:
        """Return new gaps that cannot be mere reordering any more, once each."""
        missing: list[Span] = []
        for gap in self._gaps.take_due(now_ns):
            if gap.is_requested:
                gap.is_requested = False
                self._outstanding -= gap.count
            else:
                missing.append((gap.first, gap.end))
                self._missing_end = gap.end
                self._waiting += gap.count
        return missing

    def take_wave(self, now_ns: int) -> list[Span]:
        """Return the gaps to request now, oldest first. A gap stays until it is filled."""
        if not (self.may_ask and self.has_room):
            return []
        wave: list[_Gap] = []
        room = self._parameters.ne_nak_max_outstanding - self._outstanding
        while room and self._waiting:
            oldest = next(self._gaps.reaching(self._requested_end))
            [gap] = self._gaps.within(oldest.first, min(oldest.end, oldest.first + room))
            gap.is_requested = True
            wave.append(gap)
            room -= gap.count
            self._outstanding += gap.count
            self._waiting -= gap.count
            self._requested_end = gap.end
        self._gaps.arm_each(wave, now_ns + self._repeat_ivl)
        return [(gap.first, gap.end) for gap in wave]

    def drop_before(self, trail: int) -> None:
        """Forget gaps before the trail of the source's window."""
        oldest = self._gaps.oldest
        if oldest is not None and oldest.first < trail:
            self.filled(oldest.first, trail)
