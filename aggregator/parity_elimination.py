"""Repair state for parity (RFC 11.6): requested packets by group and segment.

A parity NAK or NCF names a number of packets of one group. A pending request therefore covers another request for as
many or fewer packets. Each parity RDATA decrements the counts. States and timers are those of `aggregator.elimination`.
"""

from __future__ import annotations

import attrs

from aggregator.elimination import ElementState
from pgm.core.recovery.parents import Parents
from pgm.core.session_context import SessionContext
from pgm.core.structures.ranges import TimedRange, TimedRanges
from pgm.wire.formats import Nla


@attrs.define(eq=False)
class ParityRepair(TimedRange):
    """Repair state of one group, whose first sqn is `first`.

    `counts` holds the known packet counts by segment.
    """

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


Request = tuple[Nla, int, int]  # target, group, number of packets


class ParityElimination:
    """Parity repair state of one session at one element.

    Each group has one range, a single sqn long.
    """

    def __init__(self, context: SessionContext) -> None:
        self._parameters = context.parameters
        self._counters = context.counters
        self.repairs: TimedRanges[ParityRepair] = TimedRanges()

    @property
    def deadline_ns(self) -> int:
        """When `handle_deadline` has something to do."""
        return self.repairs.find_deadline_ns()

    def known(self, group: int, segment: int) -> int:
        """Return the number of packets that a segment is known to lack of a group."""
        repair = self.repairs.at(group)
        return 0 if repair is None else repair.counts.get(segment, 0)

    def largest(self, group: int) -> int:
        """Return the largest number of packets that is requested of a group."""
        repair = self.repairs.at(group)
        return 0 if repair is None else repair.largest

    def is_asked(self, group: int, target: Nla) -> bool:
        """Return whether this target was asked for packets of a group."""
        repair = self.repairs.at(group)
        return repair is not None and repair.target == target

    def admit(self, group: int, count: int, segment: int, route: Parents, now_ns: int) -> Request | None:
        """Take a NAK, and return the request to send (FEC-42, FEC-43).

        Return None if as many packets are in flight.
        """
        repair = self.repairs.at(group)
        if repair is None:
            repair = self._new(group)
            if repair is None:
                return None
            repair.counts[segment], repair.largest = count, count
            return self._ask(repair, route, now_ns)
        repair.counts[segment] = max(count, repair.counts.get(segment, 0))
        is_more = count > repair.largest
        repair.largest = max(count, repair.largest)
        is_over = repair.state is ElementState.OUTSTANDING and now_ns >= repair.elim_until_ns
        return self._ask(repair, route, now_ns) if is_more or is_over else None

    def _new(self, group: int) -> ParityRepair | None:
        if len(self.repairs) >= self._parameters.repair_states:
            self._counters.states_refused += 1
            return None
        return self.repairs.add(ParityRepair(group, group + 1))

    def redirect_up(self, group: int, asker: Nla, upstream: Parents, now_ns: int) -> None:
        """Redirect a repairer's own NAK upstream (DLR-34, DLR-36).

        The repairer itself was asked for this group.
        """
        repair = self.repairs.at(group)
        if repair is not None and repair.route is not upstream and repair.target == asker:
            repair.state, repair.elim_until_ns = ElementState.OUTSTANDING, now_ns

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
        """Take an NCF (FEC-46, FEC-47).

        The NCF cancels a request for as many packets or fewer. An NCF from upstream, with `of` None, also stands for a
        request of its own count.
        """
        repair = self.repairs.at(group)
        if repair is None:
            new = self._new(group) if of is None else None
            if new is not None:
                new.largest = count
                self._confirmed(new, now_ns)
            return
        if of in (None, repair.target) and count >= repair.largest:
            self._confirmed(repair, now_ns)
        if of is None:
            repair.largest = max(repair.largest, count)

    def _confirmed(self, repair: ParityRepair, now_ns: int) -> None:
        if repair.route is not None and repair.state is ElementState.PENDING and not repair.repeats:
            repair.route.response_timeout.answered(now_ns - repair.asked_ns)
        repair.state = ElementState.OUTSTANDING
        repair.elim_until_ns = now_ns + self._parameters.nak_elim_ivl
        self.repairs.arm(repair, now_ns + self._parameters.ne_nak_rdata_ivl)

    def repaired(self, group: int, offset: int) -> list[int] | None:
        """Return the segments that get a parity RDATA from upstream (FEC-44).

        Return None without repair state. `offset` is the number of packets by which the group is short. A segment that
        requested no more than `offset` packets has all it needs (FEC-45).
        """
        repair = self.repairs.at(group)
        if repair is None:
            return None
        segments = sorted(repair.counts)
        repair.largest -= 1
        for segment in segments:
            self._count_down(repair, segment, offset)
        self._drop_if_done(repair, had_segments=bool(segments), offset=offset)
        return segments

    def repaired_below(self, group: int, segment: int, offset: int) -> None:
        """Note that a local repairer sent one parity RDATA on a segment."""
        repair = self.repairs.at(group)
        if repair is not None and segment in repair.counts:
            self._count_down(repair, segment, offset)
            self._drop_if_done(repair, had_segments=True, offset=offset)

    @staticmethod
    def _count_down(repair: ParityRepair, segment: int, offset: int) -> None:
        repair.counts[segment] -= 1
        if repair.counts[segment] <= offset:
            del repair.counts[segment]

    def _drop_if_done(self, repair: ParityRepair, *, had_segments: bool, offset: int) -> None:
        if not repair.counts and (had_segments or repair.largest <= offset):
            self.repairs.remove(repair)

    def drop_pending(self) -> None:
        """Drop repairs that are not confirmed yet, because no target can be asked now."""
        for repair in self.repairs:
            if repair.state is ElementState.PENDING:
                self.repairs.remove(repair)

    def handle_deadline(self, now_ns: int) -> list[Request]:
        """Repeat pending NAKs, try the next target, and drop expired repairs."""
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
