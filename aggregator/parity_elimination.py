"""Repair state for parity: per group how many packets each segment asked for, and the most that anybody did (RFC 11.6).

What a NAK or NCF says is "so many packets of this group", so a request is under way for another if it asks for as many or more.
Each parity RDATA counts down. States and timers are those of `aggregator.elimination`.
"""

from __future__ import annotations

import attrs

from aggregator.elimination import ElementState
from pgm.core.counters import Counters
from pgm.core.recovery.parents import Parents
from pgm.core.structures.ranges import TimedRange, TimedRanges
from pgm.parameters import Parameters
from pgm.wire.formats import Nla


@attrs.define(eq=False)
class ParityRepair(TimedRange):
    """One group, whose first sqn is `first`. `counts` are the known packet counts by segment."""

    counts: dict[int, int] = attrs.field(factory=dict)
    largest: int = 0  # of all segments and NCFs
    state: ElementState = ElementState.PENDING
    route: Parents | None = None
    target: Nla | None = None
    asked_ns: int = 0
    repeats: int = 0
    retries: int = 0
    repeat_until_ns: int = 0
    elim_until_ns: int = 0


Request = tuple[Nla, int, int]  # whom to ask, group, packets


class ParityElimination:
    """The parity repair state of one session at one element. There is one range for each group, a single sqn long."""

    def __init__(self, parameters: Parameters, counters: Counters) -> None:
        self._parameters = parameters
        self._counters = counters
        self.repairs: TimedRanges[ParityRepair] = TimedRanges()

    @property
    def deadline_ns(self) -> int:
        """When `handle_deadline` has something to do."""
        return self.repairs.next_deadline_ns

    def known(self, group: int, segment: int) -> int:
        """The packets that a segment is known to lack of a group."""
        found = self.repairs.at(group)
        return 0 if found is None else found.counts.get(segment, 0)

    def largest(self, group: int) -> int:
        """The most packets of a group that are asked for."""
        found = self.repairs.at(group)
        return 0 if found is None else found.largest

    def is_asked(self, group: int, target: Nla) -> bool:
        """Whether this target was asked for packets of a group."""
        found = self.repairs.at(group)
        return found is not None and found.target == target

    def admit(self, group: int, count: int, segment: int, route: Parents, now_ns: int) -> Request | None:
        """Take a NAK in; returns what to ask of whom, or None if as much is under way (FEC-42, FEC-43)."""
        found = self.repairs.at(group)
        if found is None:
            found = self._new(group)
            if found is None:
                return None
            found.counts[segment], found.largest = count, count
            return self._ask(found, route, now_ns)
        found.counts[segment] = max(count, found.counts.get(segment, 0))
        is_more = count > found.largest
        found.largest = max(count, found.largest)
        is_over = found.state is ElementState.OUTSTANDING and now_ns >= found.elim_until_ns
        return self._ask(found, route, now_ns) if is_more or is_over else None

    def _new(self, group: int) -> ParityRepair | None:
        if len(self.repairs) >= self._parameters.repair_states:
            self._counters.states_refused += 1
            return None
        return self.repairs.add(ParityRepair(group, group + 1))

    def redirect_up(self, group: int, asker: Nla, upstream: Parents, now_ns: int) -> None:
        """A repairer asks for what it was asked for itself: it goes upstream now (DLR-34, DLR-36)."""
        found = self.repairs.at(group)
        if found is not None and found.route is not upstream and found.target == asker:
            found.state, found.elim_until_ns = ElementState.OUTSTANDING, now_ns

    def _ask(self, repair: ParityRepair, route: Parents, now_ns: int) -> Request | None:
        route.before_asking(now_ns)
        repair.state = ElementState.PENDING
        repair.route, repair.target, repair.retries = route, route.current, 0
        repair.asked_ns, repair.repeats = now_ns, 0
        repair.repeat_until_ns = now_ns + self._parameters.ne_nak_rpt_ivl * route.response_timeout.retries
        self._repeat_later(repair, route, now_ns)
        return None if repair.target is None else (repair.target, repair.first, repair.largest)

    def _repeat_later(self, repair: ParityRepair, route: Parents, now_ns: int) -> None:
        self.repairs.arm(repair, min(now_ns + route.response_timeout.ivl_ns, repair.repeat_until_ns))

    def confirm(self, group: int, count: int, now_ns: int, of: Nla | None = None) -> None:
        """Take an NCF (FEC-46, FEC-47): it cancels a request for as many packets or fewer.

        One from above, `of` nobody else, stands for a request of its own count too.
        """
        found = self.repairs.at(group)
        if found is None:
            new = self._new(group) if of is None else None
            if new is not None:
                new.largest = count
                self._confirmed(new, now_ns)
            return
        if of in (None, found.target) and count >= found.largest:
            self._confirmed(found, now_ns)
        if of is None:
            found.largest = max(found.largest, count)

    def _confirmed(self, repair: ParityRepair, now_ns: int) -> None:
        if repair.route is not None and repair.state is ElementState.PENDING and not repair.repeats:
            repair.route.response_timeout.answered(now_ns - repair.asked_ns)
        repair.state = ElementState.OUTSTANDING
        repair.elim_until_ns = now_ns + self._parameters.nak_elim_ivl
        self.repairs.arm(repair, now_ns + self._parameters.ne_nak_rdata_ivl)

    def repaired(self, group: int, offset: int) -> list[int] | None:
        """A parity RDATA came from above: the segments that it goes to; None without repair state (FEC-44).

        `offset` is by how much the group is short: whoever asked for no more than that has all it needs (FEC-45).
        """
        found = self.repairs.at(group)
        if found is None:
            return None
        segments = sorted(found.counts)
        found.largest -= 1
        for segment in segments:
            self._count_down(found, segment, offset)
        self._drop_if_done(found, had_segments=bool(segments), offset=offset)
        return segments

    def repaired_below(self, group: int, segment: int, offset: int) -> None:
        """A local repairer sent a parity RDATA on a segment: one less is missing there."""
        found = self.repairs.at(group)
        if found is not None and segment in found.counts:
            self._count_down(found, segment, offset)
            self._drop_if_done(found, had_segments=True, offset=offset)

    @staticmethod
    def _count_down(found: ParityRepair, segment: int, offset: int) -> None:
        found.counts[segment] -= 1
        if found.counts[segment] <= offset:
            del found.counts[segment]

    def _drop_if_done(self, found: ParityRepair, *, had_segments: bool, offset: int) -> None:
        if not found.counts and (had_segments or found.largest <= offset):
            self.repairs.remove(found)

    def drop_pending(self) -> None:
        """Stop repeating whatever is not confirmed yet: nobody can be asked now."""
        for repair in self.repairs:
            if repair.state is ElementState.PENDING:
                self.repairs.remove(repair)

    def handle_deadline(self, now_ns: int) -> list[Request]:
        """Repeat pending NAKs, try the next target, drop what is over."""
        requests: list[Request] = []
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
                requests.append((repair.target, repair.first, repair.largest))
        return requests

    def _try_next(self, repair: ParityRepair, route: Parents, now_ns: int) -> bool:
        if repair.target is None:
            return False
        repair.retries += 1
        following = route.failed(repair.target, now_ns)
        if following is None or repair.retries >= len(route.all):
            return False
        repair.target = following
        repair.repeat_until_ns = now_ns + self._parameters.ne_nak_rpt_ivl
        return True
