"""Repair state of a network element (RFC 7.2 - 7.5).

The state records which segments requested which sqns, and the answers from upstream. A range is PENDING from the first
NAK until an NCF, and the NAK is repeated at NAK_RPT_RTE for NAK_RPT_IVL. The range is then OUTSTANDING until its RDATA,
or for NAK_RDATA_IVL after the last confirmation.

Duplicates of an outstanding NAK are eliminated for NAK_ELIM_IVL. The first duplicate after that time is forwarded like
a new NAK. An upstream NCF without a NAK from downstream makes an outstanding range without segments (anticipation).
RDATA for such a range goes nowhere until a NAK adds a segment.

ODATA changes nothing here (NE-15); only RDATA ends a repair.
"""

from __future__ import annotations

import enum
import itertools
from collections.abc import Callable, Iterable, Iterator

import attrs

from pgm.core.recovery.parents import Parents
from pgm.core.session_context import SessionContext
from pgm.core.structures.ranges import Span, TimedRange, TimedRanges
from pgm.units import NEVER
from pgm.wire.formats import Nla


class ElementState(enum.Enum):
    """States of a repair at an element (RFC 7.3)."""

    PENDING = "asked for, not confirmed"
    OUTSTANDING = "confirmed"


@attrs.define(eq=False)
class Repair(TimedRange):
    """Repair state of a range of sqns.

    `segments` has one bit for each downstream segment that sent a NAK.
    """

    state: ElementState = ElementState.PENDING
    segments: int = 0
    joiner: Nla | None = None  # the late joiner that sent the only NAKs
    is_history: bool = False  # only late joiners sent NAKs
    route: Parents | None = None  # the targets in order, for the segment of the first NAK
    target: Nla | None = None
    asked_ns: int = 0
    repeats: int = 0
    retries: int = 0  # targets that did not answer
    repeat_until_ns: int = 0
    elim_until_ns: int = NEVER  # duplicates are not forwarded before this time; NEVER while pending
    lives_until_ns: int = NEVER


@attrs.define
class Repeat:
    """NAKs to repeat: their target and their sqns."""

    target: Nla
    is_history: bool
    spans: list[Span]


class Elimination:
    """Repair state of one session at one element."""

    def __init__(self, context: SessionContext) -> None:
        self._parameters = context.parameters
        self._counters = context.counters
        self.repairs: TimedRanges[Repair] = TimedRanges()

    @property
    def deadline_ns(self) -> int:
        """When `handle_deadline` has something to do."""
        return self.repairs.find_deadline_ns()

    def admit(
        self,
        spans: Iterable[Span],
        segment_bit: int,
        route: Parents,
        now_ns: int,
        joiner: Nla | None = None,
        *,
        is_history: bool = False,
    ) -> Nla | None:
        """Take a NAK, and return the target to forward it to (NE-20, NE-21, NE-28).

        Return None if all sqns of the NAK are in flight. `joiner` is a late joiner that alone requests history on its
        segment.
        """
        forward_to: Nla | None = None
        for first, end in spans:
            for repair in self.repairs.within(first, end):
                repair.joiner = joiner if repair.segments in (0, segment_bit) and joiner == repair.joiner else None
                repair.is_history = repair.is_history and is_history
                repair.segments |= segment_bit
                if now_ns >= repair.elim_until_ns:
                    forward_to = self._ask(repair, route, now_ns) or forward_to
            for low, high in self.repairs.uncovered(first, end):
                if len(self.repairs) >= self._parameters.repair_states:
                    self._counters.states_refused += 1
                    continue
                repair = self.repairs.add(Repair(low, high, segments=segment_bit, joiner=joiner, is_history=is_history))
                forward_to = self._ask(repair, route, now_ns) or forward_to
        self._keep_bound()
        return forward_to

    def _keep_bound(self) -> None:
        """Drop the oldest ranges if cuts made more than allowed.

        A node that still needs a dropped range sends its NAK again.
        """
        while len(self.repairs) > self._parameters.repair_states:
            oldest = self.repairs.oldest
            assert oldest is not None
            self.repairs.remove(oldest)
            self._counters.states_refused += 1

    def segments_of(self, spans: Iterable[Span]) -> int:
        """Return the bits of the segments that requested any of these sqns."""
        bits = 0
        for first, end in spans:
            for repair in self._overlapping(first, end):
                bits |= repair.segments
        return bits

    def has_asked(self, target: Nla, spans: Iterable[Span]) -> bool:
        """Return whether this target was asked for any of these sqns."""
        return any(repair.target == target for first, end in spans for repair in self._overlapping(first, end))

    def unasked(self, first: int, end: int, now_ns: int) -> list[Span]:
        """Return the spans that `admit` would request now.

        The result has new spans, and spans confirmed longer than NAK_ELIM_IVL ago.
        """
        again = [
            (max(first, repair.first), min(end, repair.end))
            for repair in self._overlapping(first, end)
            if now_ns >= repair.elim_until_ns
        ]
        return sorted([*self.repairs.uncovered(first, end), *again])

    def covers(self, spans: Iterable[Span]) -> bool:
        """Return whether there is repair state for all of these sqns."""
        return not any(self.repairs.uncovered(first, end) for first, end in spans)

    def are_uniform(self, spans: Iterable[Span], now_ns: int) -> bool:
        """Return whether all of these sqns are new, or all are in flight.

        A train of NAKs for these sqns can then be forwarded as a whole or not at all.
        """
        overlapping = [repair for first, end in spans for repair in self._overlapping(first, end)]
        if not overlapping:
            return True
        is_under_way = all(now_ns < repair.elim_until_ns for repair in overlapping)
        return is_under_way and self.covers(spans)

    def _overlapping(self, first: int, end: int) -> Iterator[Repair]:
        return itertools.takewhile(lambda repair: repair.first < end, self.repairs.reaching(first))

    def redirect_up(self, spans: Iterable[Span], asker: Nla, upstream: Parents, now_ns: int) -> None:
        """Redirect a repairer's own NAK upstream (DLR-34, DLR-36).

        The repairer itself was asked for these sqns.
        """
        for first, end in spans:
            for repair in self.repairs.within(first, end):
                if repair.route is not upstream and repair.target == asker:
                    repair.elim_until_ns = now_ns
                    repair.state = ElementState.OUTSTANDING
        self._keep_bound()

    def _ask(self, repair: Repair, route: Parents, now_ns: int) -> Nla | None:
        """Make a range pending at the route's present target."""
        route.before_asking(now_ns)
        repair.state, repair.elim_until_ns = ElementState.PENDING, NEVER
        repair.route, repair.target, repair.retries = route, route.current, 0
        self._start_repeating(repair, route, now_ns)
        return repair.target

    def _start_repeating(self, repair: Repair, route: Parents, now_ns: int) -> None:
        """Repeat at NAK_RPT_RTE for NAK_RPT_IVL.

        The repeats are slower and longer while the target takes longer to confirm.
        """
        repair.asked_ns, repair.repeats = now_ns, 0
        repair.repeat_until_ns = now_ns + self._parameters.ne_nak_rpt_ivl * route.response_timeout.retries
        self._repeat_later(repair, route, now_ns)

    def _repeat_later(self, repair: Repair, route: Parents, now_ns: int) -> None:
        self.repairs.arm(repair, min(now_ns + route.response_timeout.ivl_ns, repair.repeat_until_ns))

    def confirm(
        self, spans: Iterable[Span], now_ns: int, answers: Callable[[Repair], bool], *, anticipate: bool
    ) -> None:
        """Take an NCF: matching repairs become outstanding, and their times restart.

        The rules are NE-13, NE-22 and NE-25. With `anticipate`, unknown sqns become outstanding without a segment.
        """
        for first, end in spans:
            for repair in self.repairs.within(first, end):
                if answers(repair):
                    self._confirmed(repair, now_ns)
            if not anticipate:
                continue
            for low, high in self.repairs.uncovered(first, end):
                if len(self.repairs) >= self._parameters.repair_states:
                    self._counters.states_refused += 1
                    continue
                self._confirmed(self.repairs.add(Repair(low, high)), now_ns)
        self._keep_bound()

    def _confirmed(self, repair: Repair, now_ns: int) -> None:
        if repair.route is not None and repair.state is ElementState.PENDING and not repair.repeats:
            repair.route.response_timeout.answered(now_ns - repair.asked_ns)
        repair.state = ElementState.OUTSTANDING
        repair.elim_until_ns = now_ns + self._parameters.nak_elim_ivl
        repair.lives_until_ns = now_ns + self._parameters.ne_nak_rdata_ivl
        self.repairs.arm(repair, repair.lives_until_ns)

    def repaired_from_above(self, first: int, end: int) -> list[Repair]:
        """End the repair of sqns whose RDATA came from upstream (NE-30, NE-31).

        Return the repairs that were requested, with their segments.
        """
        repaired = self.repairs.discard(first, end)
        self._keep_bound()
        return repaired

    def repaired_below(self, first: int, end: int, segment_bit: int) -> None:
        """End a segment's part of a repair: a local repairer sent RDATA there."""
        for repair in self.repairs.within(first, end):
            repair.segments &= ~segment_bit
            if not repair.segments:
                self.repairs.remove(repair)
        self._keep_bound()

    def drop_pending(self) -> None:
        """Drop repairs that are not confirmed yet, because no target can be asked now."""
        for repair in self.repairs:
            if repair.state is ElementState.PENDING:
                self.repairs.remove(repair)

    def handle_deadline(self, now_ns: int) -> list[Repeat]:
        """Repeat pending NAKs, try the next target, and drop expired repairs.

        The rules are NE-11, NE-12, NE-14 and DLR-35.
        """
        repeats: dict[tuple[Nla, bool], Repeat] = {}
        for repair in self.repairs.take_due(now_ns):
            route = repair.route
            if repair.state is ElementState.OUTSTANDING or route is None:
                self.repairs.remove(repair)
                continue
            repair.repeats += 1
            route.response_timeout.timed_out(now_ns)
            if now_ns >= repair.repeat_until_ns and not self._try_next(repair, route, now_ns):
                self.repairs.remove(repair)
                continue
            self._repeat_later(repair, route, now_ns)
            if repair.target is not None:
                key = (repair.target, repair.is_history)
                repeat = repeats.setdefault(key, Repeat(*key, []))
                repeat.spans.append((repair.first, repair.end))
        return list(repeats.values())

    def _try_next(self, repair: Repair, route: Parents, now_ns: int) -> bool:
        """Move to the next target. Return False when all targets have failed."""
        if repair.target is None:
            return False
        repair.retries += 1
        following = route.failed(repair.target, now_ns)
        if following is None or repair.retries >= len(route.all):
            return False
        repair.target = following
        repair.repeat_until_ns = now_ns + self._parameters.ne_nak_rpt_ivl
        return True
