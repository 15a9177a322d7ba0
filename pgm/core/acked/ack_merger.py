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
from pgm.core.recovery.parents import Parents
from pgm.core.recovery.redundant_lines import RedundantLines
from pgm.core.segment import Channel
from pgm.core.session.state import SessionState
from pgm.core.session_context import SessionContext
from pgm.core.status import AckStatus
from pgm.core.timers import Timers
from pgm.units import NEVER
from pgm.wire.control_packets import Ack, Nak, Spm
from pgm.wire.formats import Nla
from pgm.wire.options import Flow, Members, PgmccFeedback, find

_SETTLES = 2  # keepalive intervals in which every child is expected to send an ack


class _Settling:
    """Time in which a child may still be unknown, even if all known children have left."""

    def __init__(self) -> None:
        self.deadline_ns = NEVER
        self._ends_ns = NEVER

    def begin(self, ivl: int, now_ns: int) -> None:
        """Begin with the first ack of any child."""
        if self._ends_ns == NEVER:
            self._ends_ns = self.deadline_ns = now_ns + ivl

    def lasts(self, now_ns: int) -> bool:
        """Return whether a child may be unknown."""
        return now_ns < self._ends_ns


class AckMerger:
    """Acks through one element in one session; idle until an SPM. `routes` lead to parents on several segments."""

    def __init__(
        self,
        context: SessionContext,
        state: SessionState,
        parents: Parents,
        setup: ElementSetup,
        routes: RedundantLines | None = None,
    ) -> None:
        self._state = state
        self._counters = context.counters
        self._below = AckCollector(context, setup.downs, setup.children)
        self._above = AckSender(context, state, parents, setup.up, routes, is_element=True)
        self._settling = _Settling()
        self.reports = ReportRelay(state, parents, setup.up, context.counters)
        self._timers: Timers[AckMerger] = Timers(
            (self._below, AckMerger._review),
            (self._settling, AckMerger._settle),
            (self._above, AckMerger._send_ack),
        )

    @property
    def status(self) -> AckStatus | None:
        """Return the status for operators; None if the stream is not acknowledged."""
        if not self._above.is_wanted:
            return None
        lead = self._state.lead
        return self._below.status(self._below.table.low_or(lead), lead, self._above.terms, self._above.parent)

    @property
    def deadline_ns(self) -> int:
        """Return when `handle_deadline` must be called."""
        return self._timers.deadline_ns if self._above.is_wanted else NEVER  # at once for plain streams

    def on_spm(self, spm: Spm, now_ns: int) -> None:
        """Take the terms of an acknowledged stream from an SPM."""
        self.reports.on_spm(spm)
        flow = find(spm.options, Flow)
        if flow is not None:
            self._above.follow(AckTerms.of_option(flow), now_ns)

    def on_packet(self, ack: Ack, channel: Channel, peer: Nla, now_ns: int) -> Effects:
        """Take an ack of a child, or a confirmation of the parent."""
        feedback = find(ack.options, PgmccFeedback)
        if feedback is not None and channel.segment.downstream and not channel.is_group:
            return self.reports.on_ack(ack, feedback)
        said, below, above = find(ack.options, Members), self._below, self._above
        if said is None or not above.is_wanted or not self._state.has_edges:
            self._counters.foreign_packets += 1
            return NOTHING
        segment = channel.segment
        if said.confirms:
            return above.on_confirmation(peer, now_ns, is_for_us=said.joins) if segment.upstream else NOTHING
        acked = self._state.unwrap(ack.rx_max)
        if channel.is_group or not segment.downstream or not self._state.reveals(acked + 1):
            self._counters.foreign_packets += 1
            return NOTHING
        self._settling.begin(_SETTLES * above.terms.keepalive, now_ns)
        effects = below.on_ack(AckReport(acked, said, self._state.lead), segment, peer, above.terms, now_ns)
        self._follow(now_ns)
        if said.leaves:
            below.forget(segment, peer)
            self._follow(now_ns)
        return effects

    def came(self, first: int, end: int) -> None:
        """Note ODATA from above."""
        self.reports.came(first, end)

    def on_nak(self, nak: Nak) -> Effects:
        """Return a NAK's congestion report, for the nodes above."""
        return self.reports.on_nak(nak) if nak.options else NOTHING

    def _follow(self, now_ns: int) -> None:
        """Acknowledge what all receivers below have."""
        below, above = self._below, self._above
        if self._settling.lasts(now_ns):
            least = self._state.trail - 1  # an unknown child has at least this
            low = min(least, below.table.low_or(least))
        elif len(below.table):
            low = below.table.low_or(above.acked)
        else:
            departed = below.departed()
            if departed > above.acked and not above.is_idle:
                above.reached(departed, now_ns)  # the children that left had this, and the others are gone
            above.leave(now_ns)
            return
        above.stay()
        above.reached(low, now_ns)

    def _members(self, now_ns: int) -> int:
        """Return how many receivers an ack speaks for; a goodbye only for those below that left with equal packets."""
        is_goodbye = not len(self._below.table) and not self._settling.lasts(now_ns)
        return self._below.goodbyes(self._above.acked) if is_goodbye else self._below.table.members

    def handle_deadline(self, now_ns: int) -> list[Effect]:
        """Return confirmations, notices of removed children, and the ack of this element."""
        return self._timers.handle_deadline(self, now_ns)

    def _review(self, now_ns: int) -> Effects:
        effects = self._below.handle_deadline(self._above.terms, self._state.lead, now_ns)
        self._follow(now_ns)
        return effects

    def _settle(self, now_ns: int) -> Effects:
        self._settling.deadline_ns = NEVER
        self._follow(now_ns)
        return NOTHING

    def _send_ack(self, now_ns: int) -> Effects:
        self._follow(now_ns)
        return self._above.handle_deadline(now_ns, self._members(now_ns), self._below.table.holder)
