"""Admission of requests: which missing ranges may be requested now.

The ranges whose back-off is over are requested within three limits: the sqns outstanding at a time, the rate of a
receiver with excessive NAKs, and the limit on transmission groups. All other ranges are parked, without a timer: timers of
tens of thousands of ranges would take all processor time. Parked ranges are considered in order once there may be room.
A parked range uses up no retries.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from pgm.core.pacing.token_bucket import TokenBucket, unlimited
from pgm.core.recovery.group_limit import GroupRule
from pgm.core.recovery.missing_range import MissingRange, parked_in
from pgm.core.recovery.outstanding_limit import OutstandingLimit
from pgm.core.recovery.repair_table import RepairState
from pgm.core.session_context import SessionContext
from pgm.core.structures.ranges import TimedRanges
from pgm.units import NEVER
from pgm.wire.naks import LIST_SQNS

_SEVERAL_LISTS = 4  # room for so many NAK lists is used for whole lists only


class RequestAdmission:
    """Admission of one session's requests. `groups` is the rule for sessions with parity."""

    def __init__(self, context: SessionContext, missing: TimedRanges[MissingRange]) -> None:
        self._missing = missing
        self._rxw_gaps = context.parameters.rxw_gaps
        self._retry_ivl = context.parameters.nak_rpt_ivl
        self.limit = OutstandingLimit(context)
        self.groups = GroupRule()
        self._waits_for_group = False  # parked ranges wait for the group rule alone
        self.outstanding = 0  # sqns in WAIT_NCF and WAIT_DATA
        self.at_ns = NEVER  # when to look for room for parked ranges, NEVER without any
        self.budget = unlimited()
        self._affordable = NEVER  # sqns that the budget allows now

    def limit_rate(self, budget: TokenBucket) -> None:
        """Limit the rate of requested sqns, for a receiver with excessive NAKs."""
        self.budget, self._affordable = budget, NEVER

    @property
    def is_full(self) -> bool:
        """Return whether a cut would exceed the limit on ranges, `rxw_gaps`."""
        return len(self._missing) >= self._rxw_gaps

    @property
    def _room(self) -> int:
        """Return how many more sqns may be requested now."""
        return min(self.limit.sqns - self.outstanding, self._affordable)

    @property
    def _has_worthwhile_room(self) -> bool:
        return self._room >= self.limit.worthwhile(self._missing.sqns - self.outstanding, self.budget)

    def admit(
        self, ready: list[MissingRange], now_ns: int, trail: int
    ) -> tuple[list[MissingRange], list[MissingRange]]:
        """Return the ranges of `ready`, past their back-off, to request now, oldest first, and the ranges dropped."""
        self._affordable = self.budget.available(now_ns)
        if self.at_ns != NEVER:
            if now_ns < self.at_ns and not self._has_worthwhile_room:
                return [], []  # parked ranges come before the ranges that are ready now
            self.limit.begin_wave()  # changes the limit, so it must precede the computation of the room
            self.groups.review(self._missing, trail)
            ready = self.in_order(self._parked(trail), trail)
        elif ready:
            self.limit.begin_wave()
            self.groups.review(self._missing, trail)
        ready = self.groups.askable(self._missing, ready, trail, self._room, self._rxw_gaps - len(self._missing))
        self._waits_for_group = self.groups.holds_back(self._missing, ready)
        self.at_ns = now_ns + self._retry_ivl if self._waits_for_group else NEVER
        admitted: list[MissingRange] = []
        dropped: list[MissingRange] = []
        room, taken = self._room, 0
        if sum([missing.end - missing.first for missing in ready]) <= room:
            admitted, ready = ready, []
        for missing in ready:
            if room < self.limit.worthwhile(missing.count, self.budget):
                self.at_ns, self._waits_for_group = now_ns + self._retry_ivl, False
                break
            if missing.count > room:
                self.at_ns, self._waits_for_group = now_ns + self._retry_ivl, False
                if self.is_full and not admitted and not self.outstanding:
                    admitted, dropped = self._instead_of_part(missing, room)
                if self.is_full:
                    break  # answers to outstanding requests will free places in the table
                # With room for several lists only whole lists are used, since a remainder would take a NAK of its own each time.
                rest = (room + taken) % LIST_SQNS if room >= _SEVERAL_LISTS * LIST_SQNS else 0
                self._missing.within(missing.first, missing.first + room - rest)
                room = missing.count
            room -= missing.count
            taken += missing.count
            admitted.append(missing)
        self.budget.charge(sum([missing.end - missing.first for missing in admitted]), now_ns)
        return admitted, dropped

    def _instead_of_part(self, missing: MissingRange, room: int) -> tuple[list[MissingRange], list[MissingRange]]:
        """Return small parked ranges to request whole, in place of a part of `missing`.

        The table is full, so `missing` cannot be cut. No request is outstanding either, so no answer will free a place.
        The result is empty while all small ranges are still in back-off. Without any small range the oldest other range
        is dropped, and returned too. The drop frees a place for a cut.
        """
        worthwhile = self.limit.worthwhile(room, self.budget)
        small = [other for other in self._missing if other.count <= (room if other.is_parked else worthwhile)]
        dropped = [] if small else [next(other for other in self._missing if other is not missing)]
        for oldest in dropped:
            self._missing.remove(oldest)
        return parked_in(small, room), dropped

    def learnt_group(self, now_ns: int) -> None:
        """Note that a group proved short. Ranges that wait for the end of the group may now be admitted."""
        if self._waits_for_group and self.groups.is_freed_by_end and self._has_worthwhile_room:
            self.at_ns = min(self.at_ns, now_ns)

    def arrived(self, arrived: list[MissingRange], now_ns: int) -> None:
        """Note the arrival of ranges. Answers are the clock: parked ranges with room need not wait for a timer."""
        if now_ns < self.at_ns < NEVER and self._has_room_after(arrived):
            self.at_ns = now_ns

    def _has_room_after(self, arrived: list[MissingRange]) -> bool:
        if self._waits_for_group:
            return self.groups.is_freed(self._missing, arrived) and (
                not self.groups.is_freed_by_end or self._has_worthwhile_room
            )
        return self._has_worthwhile_room

    def _parked(self, trail: int) -> list[MissingRange]:
        """Return the first parked ranges, from `trail` on first: enough to exceed the room, one at least if any."""
        parked: list[MissingRange] = []
        room, sqns, groups = self._room, 0, self.groups
        for missing in itertools.chain(self._askable(trail), self._askable()):
            # `is_parked` written out: most ranges take this branch while much is outstanding, and a call is slow.
            if missing.deadline_ns != NEVER or missing.state is not RepairState.BACK_OFF:
                continue
            if groups.is_held(self._missing, missing, trail):
                continue
            if parked and (sqns > room or missing is parked[0]):
                break
            parked.append(missing)
            sqns += missing.end - missing.first
        return parked

    def _askable(self, sqn: int = -NEVER) -> Iterator[MissingRange]:
        """Return the ranges from the one at `sqn` on, within the group limit."""
        ranges, end = self._missing.reaching(sqn), self.groups.end_sqn
        return ranges if end == NEVER else itertools.takewhile(lambda missing: missing.first < end, ranges)

    def in_order(self, due: list[MissingRange], trail: int) -> list[MissingRange]:
        """Sort ranges by age (RCV-41), but those below the trail last.

        Only a cache can have the data of the latter. While NAKs for the latter remain without repair, more packets
        would leave the source's window.
        """
        for missing in tuple(due):
            if missing.first < trail < missing.end and not self.is_full:
                self._missing.within(missing.first, trail)
                rest = self._missing.at(trail)
                assert rest is not None
                due.append(rest)
        return sorted(due, key=lambda missing: (missing.first < trail, missing.first))
