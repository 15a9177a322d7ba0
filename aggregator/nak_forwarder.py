"""Forwarded requests of an element: states, repeats, and targets (RFC 7.3).

A request is PENDING from the first NAK until an NCF, and the NAK is repeated at NAK_RPT_RTE for NAK_RPT_IVL. The request
is then OUTSTANDING until its RDATA, or for NAK_RDATA_IVL after the last confirmation. Duplicates of an outstanding NAK
are eliminated for NAK_ELIM_IVL.
"""

from __future__ import annotations

import enum
from typing import Generic, TypeVar

import attrs

from pgm.core.recovery.parents import Parents
from pgm.core.session_context import SessionContext
from pgm.core.structures.ranges import TimedRange, TimedRanges
from pgm.units import NEVER
from pgm.wire.formats import Nla

NOBODY: Nla = ""  # instead of an address: no target is known


class ElementState(enum.Enum):
    """States of a repair at an element (RFC 7.3)."""

    PENDING = "asked for, not confirmed"
    OUTSTANDING = "confirmed"


@attrs.define(eq=False)
class ForwardedRange(TimedRange):
    """Forwarding state of a range. Subclasses add what was requested."""

    route: Parents  # the targets in order, for the segment of the first NAK
    state: ElementState = ElementState.OUTSTANDING
    target: Nla = NOBODY
    asked_ns: int = 0
    repeats: int = 0
    retries: int = 0  # targets that did not answer
    repeat_until_ns: int = 0
    elim_until_ns: int = NEVER  # duplicates are not forwarded before this time; NEVER while pending


R = TypeVar("R", bound=ForwardedRange)


class NakForwarder(Generic[R]):
    """Forwarded requests of one session at one element."""

    def __init__(self, context: SessionContext) -> None:
        self._parameters = context.parameters
        self._counters = context.counters
        self.repairs: TimedRanges[R] = TimedRanges()
        self.no_route = Parents(context, ())  # of a repair that only an NCF has announced

    @property
    def deadline_ns(self) -> int:
        """When `take_repeats` has something to do."""
        return self.repairs.find_deadline_ns()

    def admits(self) -> bool:
        """Return whether there is room for another repair. Count a refusal."""
        has_room = len(self.repairs) < self._parameters.repair_states
        self._counters.states_refused += not has_room
        return has_room

    def keep_bound(self) -> None:
        """Drop the oldest ranges if cuts made more than allowed. A node in need of one sends its NAK again."""
        while len(self.repairs) > self._parameters.repair_states:
            self.repairs.remove(next(self.repairs.reaching(-NEVER)))
            self._counters.states_refused += 1

    def ask(self, repair: R, route: Parents, now_ns: int) -> Nla:
        """Make a range pending. Return the route's target; repeats are slower and longer while it confirms late."""
        route.before_asking(now_ns)
        repair.state, repair.elim_until_ns = ElementState.PENDING, NEVER
        repair.route, repair.target, repair.retries = route, route.current or NOBODY, 0
        repair.asked_ns, repair.repeats = now_ns, 0
        repair.repeat_until_ns = now_ns + self._parameters.ne_nak_rpt_ivl * route.response_timeout.retries
        self._repeat_later(repair, now_ns)
        return repair.target

    def _repeat_later(self, repair: R, now_ns: int) -> None:
        self.repairs.arm(repair, min(now_ns + repair.route.response_timeout.ivl_ns, repair.repeat_until_ns))

    def confirm(self, repair: R, now_ns: int) -> None:
        """Make a range outstanding, and restart its times."""
        if repair.state is ElementState.PENDING and not repair.repeats:
            repair.route.response_timeout.answered(now_ns - repair.asked_ns)
        repair.state = ElementState.OUTSTANDING
        repair.elim_until_ns = now_ns + self._parameters.nak_elim_ivl
        self.repairs.arm(repair, now_ns + self._parameters.ne_nak_rdata_ivl)

    def redirect_up(self, first: int, end: int, asker: Nla, upstream: Parents, now_ns: int) -> None:
        """Redirect a repairer's own NAK upstream (DLR-34, DLR-36). The repairer itself was asked for these sqns."""
        for repair in self.repairs.within(first, end):
            if repair.route is not upstream and repair.target == asker:
                repair.state, repair.elim_until_ns = ElementState.OUTSTANDING, now_ns

    def drop_pending(self) -> None:
        """Drop repairs that are not confirmed yet, because no target can be asked now."""
        for repair in self.repairs:
            if repair.state is ElementState.PENDING:
                self.repairs.remove(repair)

    def take_repeats(self, now_ns: int) -> list[R]:
        """Return pending repairs to request again, and drop expired ones (NE-11, NE-12, NE-14, DLR-35)."""
        repeats: list[R] = []
        unanswered: dict[tuple[int, Nla], Parents] = {}  # one NAK may have listed many ranges
        for repair in self.repairs.take_due(now_ns):
            if repair.state is ElementState.OUTSTANDING:
                self.repairs.remove(repair)
                continue
            repair.repeats += 1
            repair.route.response_timeout.timed_out(now_ns)
            if now_ns >= repair.repeat_until_ns:
                unanswered[id(repair.route), repair.target] = repair.route
            if now_ns >= repair.repeat_until_ns and not self._try_next(repair, now_ns):
                self.repairs.remove(repair)
                continue
            self._repeat_later(repair, now_ns)
            if repair.target:
                repeats.append(repair)
        for (_, target), route in unanswered.items():
            route.unanswered(target, now_ns)
        return repeats

    def _try_next(self, repair: R, now_ns: int) -> bool:
        """Move this repair to the next target. Return False when all targets have failed."""
        if not repair.target:
            return False
        repair.retries += 1
        following = repair.route.after(repair.target) or NOBODY
        if repair.retries >= len(repair.route.all):
            return False
        repair.target = following
        repair.repeat_until_ns = now_ns + self._parameters.ne_nak_rpt_ivl
        return True
