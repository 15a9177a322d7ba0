"""Repair state of a network element: which sqns were asked for, by which segments, and what was heard from above (RFC 7.2 - 7.5).

A range is PENDING from the first NAK until an NCF, repeated at NAK_RPT_RTE for NAK_RPT_IVL; then
OUTSTANDING until its RDATA, or for NAK_RDATA_IVL after the last confirmation. Outstanding, duplicates are
eliminated for NAK_ELIM_IVL; the first one after that is forwarded as if new. An NCF from above without
a NAK from below makes an outstanding range with no segments (anticipation): RDATA goes nowhere until a NAK
adds one.

ODATA changes nothing here (NE-15); only RDATA ends a repair.
"""

from __future__ import annotations

import enum
import itertools
from collections.abc import Callable, Iterable, Iterator

import attrs

from pgm.core.counters import Counters
from pgm.core.recovery.parents import Parents
from pgm.core.structures.ranges import Span, TimedRange, TimedRanges
from pgm.parameters import Parameters
from pgm.units import NEVER
from pgm.wire.formats import Nla


class ElementState(enum.Enum):
    """States of a repair at an element (RFC 7.3)."""

    PENDING = "asked for, not confirmed"
    OUTSTANDING = "confirmed"


@attrs.define(eq=False)
class Repair(TimedRange):
    """Repair state of a range of sqns. `segments` is a bit per downstream segment that asked."""

    state: ElementState = ElementState.PENDING
    segments: int = 0
    joiner: Nla | None = None  # the late joiner that alone asked
    is_history: bool = False  # nobody but late joiners asked
    route: Parents | None = None  # the targets in order, for the segment that asked first
    target: Nla | None = None
    asked_ns: int = 0
    repeats: int = 0
    retries: int = 0  # targets that did not answer
    repeat_until_ns: int = 0
    elim_until_ns: int = NEVER  # duplicates are not forwarded until then; never while pending
    lives_until_ns: int = NEVER


@attrs.define
class Repeat:
    """NAKs to repeat: to whom, and for which sqns."""

    target: Nla
    is_history: bool
    spans: list[Span]


class Elimination:
    """The repair state of one session at one element."""

    def __init__(self, parameters: Parameters, counters: Counters) -> None:
        self._parameters = parameters
        self._counters = counters
        self.repairs: TimedRanges[Repair] = TimedRanges()

    @property
    def deadline_ns(self) -> int:
        """When `handle_deadline` has something to do."""
        return self.repairs.next_deadline_ns

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
        """Take a NAK in; returns whom to forward it to, or None if all its sqns are under way (NE-20, NE-21, NE-28).

        `joiner` is a late joiner that alone wants history on its segment.
        """
        forward_to: Nla | None = None
        for first, end in spans:
            for found in self.repairs.within(first, end):
                found.joiner = joiner if found.segments in (0, segment_bit) and joiner == found.joiner else None
                found.is_history = found.is_history and is_history
                found.segments |= segment_bit
                if now_ns >= found.elim_until_ns:
                    forward_to = self._ask(found, route, now_ns) or forward_to
            for low, high in self.repairs.uncovered(first, end):
                if len(self.repairs) >= self._parameters.repair_states:
                    self._counters.states_refused += 1
                    continue
                new = self.repairs.add(Repair(low, high, segments=segment_bit, joiner=joiner, is_history=is_history))
                forward_to = self._ask(new, route, now_ns) or forward_to
        self._keep_bound()
        return forward_to

    def _keep_bound(self) -> None:
        """Ranges that were cut may be more than allowed: the oldest go, whoever still needs them asks again."""
        while len(self.repairs) > self._parameters.repair_states:
            oldest = self.repairs.oldest
            assert oldest is not None
            self.repairs.remove(oldest)
            self._counters.states_refused += 1

    def segments_of(self, spans: Iterable[Span]) -> int:
        """The bits of the segments that have asked for any of these sqns."""
        bits = 0
        for first, end in spans:
            for found in self._overlapping(first, end):
                bits |= found.segments
        return bits

    def has_asked(self, target: Nla, spans: Iterable[Span]) -> bool:
        """Whether this target was asked for any of these sqns."""
        return any(found.target == target for first, end in spans for found in self._overlapping(first, end))

    def unasked(self, first: int, end: int, now_ns: int) -> list[Span]:
        """What `admit` asks for of these sqns: what is new, and what was confirmed longer than NAK_ELIM_IVL ago."""
        again = [
            (max(first, one.first), min(end, one.end))
            for one in self._overlapping(first, end)
            if now_ns >= one.elim_until_ns
        ]
        return sorted([*self.repairs.uncovered(first, end), *again])

    def covers(self, spans: Iterable[Span]) -> bool:
        """Whether there is repair state for all of these sqns."""
        return not any(self.repairs.uncovered(first, end) for first, end in spans)

    def are_alike(self, spans: Iterable[Span], now_ns: int) -> bool:
        """Whether all of these sqns are new, or all under way, so that a train of NAKs for them is forwarded whole or not at all."""
        found = [one for first, end in spans for one in self._overlapping(first, end)]
        if not found:
            return True
        is_under_way = all(now_ns < one.elim_until_ns for one in found)
        return is_under_way and self.covers(spans)

    def _overlapping(self, first: int, end: int) -> Iterator[Repair]:
        return itertools.takewhile(lambda found: found.first < end, self.repairs.reaching(first))

    def redirect_up(self, spans: Iterable[Span], asker: Nla, upstream: Parents, now_ns: int) -> None:
        """A repairer asks for sqns that it was asked for itself: those go upstream only (DLR-34, DLR-36)."""
        for first, end in spans:
            for found in self.repairs.within(first, end):
                if found.route is not upstream and found.target == asker:
                    found.elim_until_ns = now_ns
                    found.state = ElementState.OUTSTANDING
        self._keep_bound()

    def _ask(self, repair: Repair, route: Parents, now_ns: int) -> Nla | None:
        """Make a range pending at the route's present target."""
        route.before_asking(now_ns)
        repair.state, repair.elim_until_ns = ElementState.PENDING, NEVER
        repair.route, repair.target, repair.retries = route, route.current, 0
        self._start_repeating(repair, route, now_ns)
        return repair.target

    def _start_repeating(self, repair: Repair, route: Parents, now_ns: int) -> None:
        """Repeat at NAK_RPT_RTE for NAK_RPT_IVL, or slower and longer while the target takes longer to confirm."""
        repair.asked_ns, repair.repeats = now_ns, 0
        repair.repeat_until_ns = now_ns + self._parameters.ne_nak_rpt_ivl * route.response_timeout.retries
        self._repeat_later(repair, route, now_ns)

    def _repeat_later(self, repair: Repair, route: Parents, now_ns: int) -> None:
        self.repairs.arm(repair, min(now_ns + route.response_timeout.ivl_ns, repair.repeat_until_ns))

    def confirm(
        self, spans: Iterable[Span], now_ns: int, answers: Callable[[Repair], bool], *, anticipate: bool
    ) -> None:
        """Take an NCF: matching repairs become outstanding and their times start anew (NE-13, NE-22, NE-25)."""
        for first, end in spans:
            for found in self.repairs.within(first, end):
                if answers(found):
                    self._confirmed(found, now_ns)
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
        """RDATA came from above: the repair is over. Returns what was asked for, and by which segments (NE-30, NE-31)."""
        repaired = self.repairs.discard(first, end)
        self._keep_bound()
        return repaired

    def repaired_below(self, first: int, end: int, segment_bit: int) -> None:
        """A local repairer sent RDATA on a segment: that segment's part of the repair is over."""
        for found in self.repairs.within(first, end):
            found.segments &= ~segment_bit
            if not found.segments:
                self.repairs.remove(found)
        self._keep_bound()

    def drop_pending(self) -> None:
        """Stop repeating whatever is not confirmed yet: nobody can be asked now."""
        for repair in self.repairs:
            if repair.state is ElementState.PENDING:
                self.repairs.remove(repair)

    def handle_deadline(self, now_ns: int) -> list[Repeat]:
        """Repeat pending NAKs, try the next target, drop what is over (NE-11, NE-12, NE-14, DLR-35)."""
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
        """Go on to the next target; False when all have failed."""
        if repair.target is None:
            return False
        repair.retries += 1
        following = route.failed(repair.target, now_ns)
        if following is None or repair.retries >= len(route.all):
            return False
        repair.target = following
        repair.repeat_until_ns = now_ns + self._parameters.ne_nak_rpt_ivl
        return True
