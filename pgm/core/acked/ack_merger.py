"""Merged acks: an element acknowledges once for all receivers below it (JG-08).

The element's ack is the minimum of its children's acks. No packets are stored for that, so aggregators merge acks as
repairers do. An element that has just started or restarted does not know all its children. Until each child has had time
to send an ack, the element acknowledges no more than the trail. That also holds if all known children leave meanwhile.
"""

from __future__ import annotations

from pgm.core.acked.ack_collector import AckCollector, AckReport
from pgm.core.acked.ack_sender import AckSender
from pgm.core.acked.ack_terms import AckTerms
from pgm.core.congestion.reports import ReportRelay
from pgm.core.effects import NOTHING, Effect, Effects
from pgm.core.element.setup import ElementSetup
from pgm.core.recovery.nak_sender import HasRoutes
from pgm.core.recovery.parents import Parents
from pgm.core.segment import Channel
from pgm.core.session.state import SessionState
from pgm.core.session_context import SessionContext
from pgm.core.status import AckStatus
from pgm.units import NEVER
from pgm.wire.control_packets import Ack, Nak, Spm
from pgm.wire.formats import Nla
from pgm.wire.options import Flow, Members, PgmccFeedback, find

_SETTLED = -1
_SETTLES = 2  # keepalive intervals in which every child is expected to send an ack


class AckMerger:
    """Acks that pass one element in one session.

    Idle until an SPM announces an acknowledged stream.
    """

    def __init__(self, context: SessionContext, state: SessionState, parents: Parents, setup: ElementSetup) -> None:
        self._context = context
        self._state = state
        self._parents = parents
        self._setup = setup
        self._counters = context.counters
        self.routes: HasRoutes | None = None  # None: all parents are on one segment
        self._below: AckCollector | None = None
        self._above: AckSender | None = None
        self.reports = ReportRelay(state, parents, setup.up, context.counters)
        self._settles_ns: int | None = None  # until then a child may be unknown, and _SETTLED after that

    @property
    def status(self) -> AckStatus | None:
        """Return the status for operators; None if the stream is not acknowledged."""
        if self._below is None or self._above is None:
            return None
        low = self._below.table.low
        stable = self._state.lead if low is None else low
        return self._below.status(stable, self._above.terms, self._above.parent or "")

    @property
    def deadline_ns(self) -> int:
        """Return when `handle_deadline` must be called."""
        if self._below is None or self._above is None:
            return NEVER
        settles_ns = self._settles_ns
        if settles_ns is None or settles_ns == _SETTLED:
            settles_ns = NEVER
        return min(self._below.deadline_ns, self._above.deadline_ns, settles_ns)

    def on_spm(self, spm: Spm, now_ns: int) -> None:
        """Take the terms of an acknowledged stream from an SPM."""
        self.reports.on_spm(spm)
        flow = find(spm.options, Flow)
        if flow is None:
            return
        terms = AckTerms.of_option(flow)
        if self._above is not None:
            self._above.follow(terms, now_ns)
            return
        self._below = AckCollector(self._context, self._setup.downs)
        self._above = AckSender(self._context, self._state, self._parents, self._setup.up, terms, is_element=True)
        self._above.routes = self.routes

    def on_packet(self, ack: Ack, channel: Channel, peer: Nla, now_ns: int) -> Effects:
        """Take an ack of a child, or a confirmation of the parent."""
        feedback = find(ack.options, PgmccFeedback)
        if feedback is not None and channel.segment.downstream and not channel.is_group:
            return self.reports.on_ack(ack, feedback)
        said, below, above = find(ack.options, Members), self._below, self._above
        if said is None or below is None or above is None or not self._state.has_edges:
            self._counters.foreign_packets += 1
            return NOTHING
        segment = channel.segment
        if said.confirms:
            return above.on_confirmation(peer, now_ns, is_for_us=said.joins) if segment.upstream else NOTHING
        acked = self._state.unwrap(ack.rx_max)
        if channel.is_group or not segment.downstream or not self._state.reveals(acked + 1):
            self._counters.foreign_packets += 1
            return NOTHING
        if self._settles_ns is None and not len(below.table):
            self._settles_ns = now_ns + _SETTLES * above.terms.keepalive
        effects = below.on_ack(AckReport(acked, said, self._state.lead), segment, peer, above.terms, now_ns)
        self._follow(above, below, now_ns)
        if said.leaves:
            below.forget(segment, peer)
            self._follow(above, below, now_ns)
        return effects

    def came(self, first: int, end: int) -> None:
        """Note ODATA from above."""
        if self.reports.wanted is not None:
            self.reports.links.above.came(first, end)

    def on_nak(self, nak: Nak) -> Effects:
        """Return a NAK's congestion report, for the nodes above."""
        return self.reports.on_nak(nak) if nak.options else NOTHING

    def _follow(self, above: AckSender, below: AckCollector, now_ns: int) -> None:
        low = below.table.low
        if self._is_settling(now_ns):
            least = self._state.trail - 1  # an unknown child has at least this
            low = least if low is None else min(low, least)
        if low is None:
            departed = below.departed()
            if above.acked is not None and departed > above.acked:
                above.reached(departed, now_ns)  # the children that left had this, and the others are gone
            above.leave(now_ns)
            return
        above.stay(now_ns)
        above.reached(low, now_ns)

    def _is_settling(self, now_ns: int) -> bool:
        """Return whether a child may still be unknown.

        This may be so even if all known children have left.
        """
        return self._settles_ns is not None and now_ns < self._settles_ns

    def _members(self, below: AckCollector, acked: int, now_ns: int) -> int:
        """Return how many receivers an ack speaks for.

        A goodbye speaks for the receivers below that said goodbye and had acknowledged `acked`.
        """
        is_goodbye = not len(below.table) and not self._is_settling(now_ns)
        return below.goodbyes(acked) if is_goodbye else below.table.members

    def handle_deadline(self, now_ns: int) -> list[Effect]:
        """Return confirmations, notices of removed children, and the ack of this element."""
        below, above = self._below, self._above
        if below is None or above is None or self.deadline_ns > now_ns:
            return []
        effects = below.handle_deadline(above.terms, self._state.lead, now_ns)
        if self._settles_ns is not None and now_ns >= self._settles_ns:
            self._settles_ns = _SETTLED
        if above.acked is not None:
            self._follow(above, below, now_ns)
        if above.deadline_ns <= now_ns:
            members = 0 if above.acked is None else self._members(below, above.acked, now_ns)
            effects += above.handle_deadline(now_ns, members, below.table.holder)
        return effects
