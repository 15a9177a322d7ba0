"""Repair state for parity (RFC 11.6): requested packets by group and segment.

A parity NAK or NCF names a number of packets of one group. A pending request therefore covers another request for as
many or fewer packets. Each parity RDATA decrements the counts. States and timers are those of `aggregator.nak_forwarder`.
"""

from __future__ import annotations

import attrs

from aggregator.nak_forwarder import NOBODY, ForwardedRange, NakForwarder
from pgm.core.recovery.parents import Parents
from pgm.core.session_context import SessionContext
from pgm.units import NEVER
from pgm.wire.formats import Nla


@attrs.define(eq=False)
class ParityRepair(ForwardedRange):
    """Repair state of one group, whose first sqn is `first`. `counts` holds the known packet counts by segment."""

    counts: dict[int, int] = attrs.field(factory=dict)
    largest: int = 0  # of all segments and NCFs


Request = tuple[Nla, int, int]  # target, group, number of packets


class ParityElimination:
    """Parity repair state of one session at one element. Each group has one range, a single sqn long."""

    def __init__(self, context: SessionContext) -> None:
        self.forwarder: NakForwarder[ParityRepair] = NakForwarder(context)
        self.repairs = self.forwarder.repairs
        self._unknown = ParityRepair(NEVER, NEVER, self.forwarder.no_route)  # of a group without repair state

    def _at(self, group: int) -> ParityRepair:
        return self.repairs.at(group) or self._unknown

    def known(self, group: int, segment: int) -> int:
        """Return the number of packets that a segment is known to lack of a group."""
        return self._at(group).counts.get(segment, 0)

    def largest(self, group: int) -> int:
        """Return the largest number of packets that is requested of a group."""
        return self._at(group).largest

    def admit(self, group: int, count: int, segment: int, route: Parents, now_ns: int) -> list[Request]:
        """Take a NAK, and return the request to send (FEC-42, FEC-43); none if as many packets are in flight."""
        repair = self.repairs.at(group)
        if repair is None:
            if not self.forwarder.admits():
                return []
            repair = self.repairs.add(ParityRepair(group, group + 1, route))
        repair.counts[segment] = max(count, repair.counts.get(segment, 0))
        is_more = count > repair.largest
        repair.largest = max(count, repair.largest)
        is_over = now_ns >= repair.elim_until_ns
        if not (is_more or is_over):
            return []
        target = self.forwarder.ask(repair, route, now_ns)
        return [(target, group, repair.largest)] if target else []

    def confirm(self, group: int, count: int, now_ns: int, of: Nla = NOBODY) -> None:
        """Take an NCF (FEC-46, FEC-47).

        The NCF cancels a request for as many packets or fewer. An NCF from upstream, without `of`, also stands for a
        request of its own count.
        """
        repair = self.repairs.at(group)
        if repair is None:
            if not of and self.forwarder.admits():
                new = ParityRepair(group, group + 1, self.forwarder.no_route, largest=count)
                self.forwarder.confirm(self.repairs.add(new), now_ns)
            return
        if of in (NOBODY, repair.target) and count >= repair.largest:
            self.forwarder.confirm(repair, now_ns)
        if not of:
            repair.largest = max(repair.largest, count)

    def has_state(self, group: int) -> bool:
        """Return whether there is repair state for a group."""
        return self._at(group) is not self._unknown

    def repaired(self, group: int, offset: int) -> list[int]:
        """Return the segments that get a parity RDATA from upstream (FEC-44).

        `offset` is the number of packets by which the group is short. A segment that
        requested no more than `offset` packets has all it needs (FEC-45).
        """
        repair = self._at(group)
        segments = sorted(repair.counts)
        repair.largest -= 1
        for segment in segments:
            self._count_down(repair, segment, offset)
        self._drop_if_done(repair, had_segments=bool(segments), offset=offset)
        return segments

    def repaired_below(self, group: int, segment: int, offset: int) -> None:
        """Note that a local repairer sent one parity RDATA on a segment."""
        repair = self._at(group)
        if segment in repair.counts:
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

    def take_repeats(self, now_ns: int) -> list[Request]:
        """Return the requests to repeat; see `NakForwarder.take_repeats`."""
        return [(repair.target, repair.first, repair.largest) for repair in self.forwarder.take_repeats(now_ns)]
