"""What one session owes to the segments below, or to one node of them, and at which rate that leaves."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import attrs

from pgm.core.counters import Counters
from pgm.core.effects import Send
from pgm.core.pacing.pacer import Pacer
from pgm.core.repair.responder import Responder
from pgm.core.segment import Segment
from pgm.parameters import Parameters
from pgm.units import NEVER
from pgm.wire.formats import Nla
from repairer.cache import SessionCache

TO_ALL: Nla | None = None  # repairs for a segment, not for one node of it
TO_JOINERS: Nla = "late joiners"  # in place of an address: history that several of a segment want
_MOST_SINGLE = 16  # nodes that repairs go to by unicast: more parents than a session has


@attrs.frozen
class Outlet:
    """What one session owes to one segment below, and the rate at which repairs leave there."""

    responder: Responder
    pacers: tuple[Pacer, ...]

    @property
    def ready_ns(self) -> int:
        """When a repair may leave; NEVER when none is owed."""
        due_ns = self.responder.deadline_ns
        if due_ns == NEVER:
            return NEVER
        octets = self.responder.next_octets()
        return max(due_ns, *(pacer.repair_ready_at(octets) for pacer in self.pacers))

    def next_train(self, trail: int, now_ns: int) -> Send | None:
        """Repairs, as many as every limit allows."""
        octets = min(pacer.repair_room(now_ns) for pacer in self.pacers)
        packets = min(pacer.packet_room(now_ns) for pacer in self.pacers)
        send = self.responder.next_train(octets, trail, now_ns, packets)
        if send is not None:
            for pacer in self.pacers:
                pacer.repair_sent(len(send.octets), now_ns, len(send.octets) // send.stride)
        return send


class Outlets:
    """All lines of one session: one to each segment below, and those to single nodes as they are wanted."""

    def __init__(
        self,
        cache: SessionCache,
        downs: Sequence[Segment],
        pacers: Mapping[int, Pacer],
        history_pacer: Callable[[Segment], Pacer],
        parameters: Parameters,
        counters: Counters,
    ) -> None:
        self._cache = cache
        self._pacers = pacers
        self._history_pacer = history_pacer
        self._parameters = parameters
        self._counters = counters
        self._lines = {(segment.index, TO_ALL): self._line(segment, TO_ALL, is_history=False) for segment in downs}

    def _line(self, segment: Segment, to: Nla | None, *, is_history: bool) -> Outlet:
        only = None if to == TO_JOINERS else to
        responder = Responder(self._cache, segment, self._parameters, self._counters, only)
        pacer = self._pacers[segment.index]
        return Outlet(responder, (pacer, self._history_pacer(segment)) if is_history else (pacer,))

    def __len__(self) -> int:
        return len(self._lines)

    @property
    def ready_ns(self) -> int:
        """When a repair may leave; NEVER when none is owed."""
        return min(line.ready_ns for line in self._lines.values())

    @property
    def pending_sqns(self) -> int:
        """Repairs owed."""
        return sum(line.responder.pending_sqns for line in self._lines.values())

    def responder(self, segment: Segment, to: Nla | None, *, is_history: bool) -> Responder:
        """What answers for a segment, for the late joiners on it, or for one node."""
        line = self._lines.get((segment.index, to))
        if line is None:
            self._keep_bound()
            line = self._lines[segment.index, to] = self._line(segment, to, is_history=is_history)
        return line.responder

    def _keep_bound(self) -> None:
        """Lines to single nodes are few, however many addresses claim to be a parent that searches."""
        single = [key for key in self._lines if key[1] not in (TO_ALL, TO_JOINERS)]
        for key in single[: max(0, len(single) - _MOST_SINGLE + 1)]:
            self._counters.states_refused += self._lines.pop(key).responder.pending_sqns > 0

    def next_train(self, trail: int, now_ns: int) -> Send | None:
        """One train of RDATA, if one is due and the rate allows it."""
        line = min(self._lines.values(), key=lambda one: one.ready_ns)
        return line.next_train(trail, now_ns) if line.ready_ns <= now_ns else None
