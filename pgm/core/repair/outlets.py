"""Outlets for the repairs that one session owes to segments or single nodes."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import attrs

from pgm.core.effects import Send
from pgm.core.named_children import NO_CHILDREN, NamedChildren
from pgm.core.pacing.pacer import Pacer
from pgm.core.repair.lone_askers import LoneAskers, Responders
from pgm.core.repair.responder import RepairStore, Responder
from pgm.core.segment import Segment
from pgm.core.session_context import SessionContext
from pgm.core.structures.ranges import Span
from pgm.units import NEVER
from pgm.wire.formats import Nla

TO_ALL: Nla | None = None  # repairs for a segment, not for one node of the segment
TO_JOINERS: Nla = "late joiners"  # instead of an address: history that several joiners of a segment want
_MOST_SINGLE = 16  # nodes that get repairs by unicast: more parents than a session has


@attrs.frozen
class Outlet:
    """Repairs owed to one downstream segment or node, and the rate of sending them."""

    responder: Responder
    pacers: tuple[Pacer, ...]

    @property
    def ready_ns(self) -> int:
        """When a repair may be sent; NEVER when none is owed."""
        due_ns = self.responder.deadline_ns
        if due_ns == NEVER:
            return NEVER
        octets = self.responder.next_octets()
        for pacer in self.pacers:
            due_ns = max(due_ns, pacer.repair_ready_at(octets))
        return due_ns

    def next_train(self, trail: int, now_ns: int) -> Send | None:
        """Return as many repairs as every limit allows."""
        octets = min(pacer.repair_room(now_ns) for pacer in self.pacers)
        packets = min(pacer.packet_room(now_ns) for pacer in self.pacers)
        send = self.responder.next_train(octets, trail, now_ns, packets)
        if send is not None:
            for pacer in self.pacers:
                pacer.repair_sent(len(send.octets), now_ns, len(send.octets) // send.stride)
        return send


class Outlets:
    """Outlets of one session: one for each downstream segment, more for late joiners and single nodes as needed."""

    def __init__(
        self,
        context: SessionContext,
        store: RepairStore,
        downs: Sequence[Segment],
        pacers: Sequence[Pacer],
        history_pacer: Callable[[Segment], Pacer],
        children: NamedChildren = NO_CHILDREN,
    ) -> None:
        self._context = context
        self._store = store
        self.pacers = {segment.index: pacer for segment, pacer in zip(downs, pacers, strict=True)}
        self._history_pacer = history_pacer
        self._counters = context.counters
        # By segment, node, and whether the repairs are history. A late joiner's own losses do not wait for its history.
        self._outlets: dict[tuple[int, Nla | None, bool], Outlet] = {
            (segment.index, TO_ALL, False): self._outlet(segment, TO_ALL, is_history=False) for segment in downs
        }
        self._lone_askers = {segment.index: LoneAskers(context, children, segment) for segment in downs}

    def _outlet(self, segment: Segment, to: Nla | None, *, is_history: bool) -> Outlet:
        only = None if to == TO_JOINERS else to
        responder = Responder(self._context, self._store, segment, only)
        pacer = self.pacers[segment.index]
        return Outlet(responder, (pacer, self._history_pacer(segment)) if is_history else (pacer,))

    def __len__(self) -> int:
        return len(self._outlets)

    @property
    def ready_ns(self) -> int:
        """When a repair may be sent; NEVER when none is owed."""
        earliest_ns = NEVER
        for outlet in self._outlets.values():  # a loop, as in `Timers`: a driver asks after each read
            if outlet.responder.deadline_ns < earliest_ns:
                earliest_ns = min(earliest_ns, outlet.ready_ns)
        return earliest_ns

    @property
    def pending_sqns(self) -> int:
        """Number of repairs owed."""
        return sum(outlet.responder.pending_sqns for outlet in self._outlets.values())

    def to_all(self, segment: Segment) -> Responder:
        """Return the responder for all nodes of a segment."""
        return self._outlets[segment.index, TO_ALL, False].responder

    def responder(self, segment: Segment, to: Nla | None, *, is_history: bool) -> Responder:
        """Return the responder for a segment, for its late joiners, or for one node."""
        key = segment.index, to, is_history
        outlet = self._outlets.get(key)
        if outlet is None:
            self._keep_bound()
            outlet = self._outlets[key] = self._outlet(segment, to, is_history=is_history)
        return outlet.responder

    def owes(self, first: int, end: int) -> bool:
        """Return whether any of `first` to `end - 1` is owed, other than as history."""
        return any(
            outlet.responder.owes(first, end) for (_, _, is_history), outlet in self._outlets.items() if not is_history
        )

    def take_alone(self, spans: list[Span], asked: int, segment: Segment, asker: Nla, now_ns: int) -> list[Span]:
        """Owe what a child alone requests by unicast; see `LoneAskers`. Return the spans that are for the segment."""
        lone_askers = self._lone_askers[segment.index]
        if not lone_askers.concerns(asked):
            return spans
        to_one = functools.partial(self.responder, segment, is_history=False)
        return lone_askers.take(spans, asker, Responders(self.to_all(segment), to_one), now_ns)

    def _keep_bound(self) -> None:
        """Bound the outlets to single nodes. Many addresses may claim to be a parent that searches for repairers."""
        single = [key for key in self._outlets if key[1] not in (TO_ALL, TO_JOINERS)]
        for key in single[: max(0, len(single) - _MOST_SINGLE + 1)]:
            self._counters.states_refused += self._outlets.pop(key).responder.pending_sqns > 0

    def next_train(self, trail: int, now_ns: int) -> Send | None:
        """Return one train of RDATA if one is due and the rate allows it."""
        outlet = min(self._outlets.values(), key=lambda outlet: outlet.ready_ns)
        return outlet.next_train(trail, now_ns) if outlet.ready_ns <= now_ns else None
