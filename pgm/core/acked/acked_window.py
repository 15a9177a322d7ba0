"""Window of a source with an acknowledged stream (flow = "acked").

The lower edge of the window is the sqn that all members have. The size is fixed. A source with a full window waits. The
window bounds original packets and repairs, so receivers hold at most one window, and no rate must be guessed
(JG-01 - JG-07).

Without members the source waits for no ack: the stream runs at its rate, and no packet is stable.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from pgm.core.acked.ack_collector import AckCollector, AckReport
from pgm.core.acked.ack_terms import AckTerms
from pgm.core.effects import NOTHING, Effects
from pgm.core.named_children import NO_CHILDREN, NamedChildren
from pgm.core.segment import Segment
from pgm.core.session_context import SessionContext
from pgm.core.status import SessionStatus
from pgm.units import MICROSECOND, NEVER
from pgm.wire.control_packets import Ack, Nak
from pgm.wire.formats import Nla
from pgm.wire.options import Members, Options, find
from pgm.wire.sequence_numbers import unwrap


class AckedWindow:
    """Acks of one stream's members, and the limit that follows for its source."""

    has_feedback = True

    def __init__(
        self, context: SessionContext, segments: Sequence[Segment], first_sqn: int, named: NamedChildren = NO_CHILDREN
    ) -> None:
        parameters = context.parameters
        self._terms = AckTerms.of_parameters(parameters)
        self._counters = context.counters
        self._waits = parameters.ack_full == "wait"
        self._quorum = parameters.ack_quorum
        self._children = AckCollector(context, segments, named)
        self.stable = first_sqn - 1  # the newest sqn that all members have
        self._full_since_ns = NEVER  # NEVER while there is room
        self._has_news = False  # `stable` has grown, so the deadline is now, to wake its waiters

    def spm_options(self) -> Options:
        """Return the options of an SPM: the terms."""
        return (self._terms.option,)

    def wants_spm(self, now_ns: int) -> bool:
        """Return False: acks are confirmed by packets of their own."""
        return False

    @property
    def members(self) -> int:
        """Return the number of receivers that the source waits for."""
        return self._children.table.members

    @property
    def holder(self) -> Nla:
        """Return the receiver that is furthest behind; empty without members."""
        return self._children.table.holder

    def with_status(self, row: SessionStatus) -> SessionStatus:
        """Return a status row with that of the acks."""
        return attrs.evolve(row, acked=self._children.status(self.stable, row.lead, self._terms))

    @property
    def _base(self) -> int:
        """Return the lower edge of the window. Packets that a new member missed before do not lower the edge."""
        return max(self.stable, self._children.table.low_or(self.stable))

    @property
    def unstable_from(self) -> int:
        """Return the oldest sqn that a member may still request; NEVER without members."""
        return self._base + 1 if len(self._children.table) else NEVER

    def room(self, lead: int, now_ns: int) -> int:
        """Return how many packets may be sent now; NEVER means no limit."""
        if not self._waits or not len(self._children.table):
            self._note_full(False, now_ns)
            return NEVER
        room = max(0, self._base + self._terms.window - lead)
        self._note_full(not room, now_ns)
        return room

    def _note_full(self, is_full: bool, now_ns: int) -> None:
        was_full = self._full_since_ns != NEVER
        if is_full and not was_full:
            self._full_since_ns = now_ns
            self._counters.window_blockings += 1
        elif was_full and not is_full:
            blocked_us = (now_ns - self._full_since_ns) // MICROSECOND
            self._counters.window_blocked_us += blocked_us
            self._counters.window_blocked_most_us = max(self._counters.window_blocked_most_us, blocked_us)
            self._full_since_ns = NEVER

    def data_sent(self, first: int, end: int, now_ns: int) -> None:
        """Do nothing: only acks move the window."""

    def on_nak(self, nak: Nak, lead: int, now_ns: int) -> bool:
        """Return False: NAKs are no feedback."""
        return False

    def on_ack(self, ack: Ack, lead: int, segment: Segment, peer: Nla, now_ns: int) -> Effects:
        """Take an ack of a child of the source, from any line."""
        said, acked = find(ack.options, Members), unwrap(ack.rx_max, lead)
        if said is None or said.confirms or acked > lead:
            self._counters.foreign_packets += 1
            return NOTHING
        effects = self._children.on_ack(AckReport(acked, said, lead), segment, peer, self._terms, now_ns)
        self._follow()
        if said.leaves:
            self._children.forget(segment, peer)
            self._follow()
        return effects

    def _follow(self) -> None:
        if not len(self._children.table):
            low = self._children.departed(self._quorum)  # the acks of the children that left count if no child remains
        else:
            low = self._base if self.members >= self._quorum else self.stable
        if low > self.stable:
            self.stable, self._has_news = low, True

    @property
    def deadline_ns(self) -> int:
        """Return when `handle_deadline` must be called."""
        return 0 if self._has_news else self._children.deadline_ns

    def handle_deadline(self, lead: int, now_ns: int) -> Effects:
        """Confirm acks, and forget silent and stuck members. Return confirmations and notices."""
        self._has_news = False
        if now_ns < self._children.deadline_ns:
            return NOTHING
        effects = self._children.handle_deadline(self._terms, lead, now_ns)
        self._follow()
        return effects
