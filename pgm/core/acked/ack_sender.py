"""Acks of one node to its parent: when they are due, and what they say.

An ack is due after `every` packets, or an interval after the first packet without an ack, whichever is sooner. Keepalive
acks come in addition. The parent confirms the first ack by unicast, so that the child knows of its adoption. After that
the parent's confirmations to all its children are enough.
"""

from __future__ import annotations

from pgm.core.acked.ack_parent import AckParent
from pgm.core.acked.ack_terms import NOT_ACKED, AckTerms, ack_packet
from pgm.core.effects import NOTHING, Effect, Effects, control
from pgm.core.recovery.parents import Parents
from pgm.core.recovery.redundant_lines import RedundantLines
from pgm.core.segment import Segment
from pgm.core.session.state import SessionState
from pgm.core.session_context import SessionContext
from pgm.core.status import AckStatus
from pgm.units import NEVER
from pgm.wire.formats import Nla
from pgm.wire.options import Members

_FAREWELLS = 16  # acks with a goodbye until one is confirmed: enough to try two parents


class AckSender:
    """Acks of one node in one session; idle until an SPM asks. With `is_element` it speaks for receivers below it."""

    def __init__(
        self,
        context: SessionContext,
        state: SessionState,
        parents: Parents,
        segment: Segment,
        routes: RedundantLines | None = None,
        *,
        is_element: bool = False,
    ) -> None:
        """`routes` are for parents on several segments."""
        self.terms = NOT_ACKED  # from the source's last SPM
        self._state = state
        self._parent = AckParent(parents, context.counters)
        self._segment = segment
        self._peer_expiry = context.parameters.peer_expiry
        self._counters = context.counters
        self._is_element = is_element
        self._routes = routes
        self._rng = context.rng
        self.ivl = 0  # longest time before a new position is acknowledged
        self._mark_by = 0
        self._mark = 0  # an ack is due when this sqn is reached
        self._sent = -1
        self.acked = -1  # the newest sqn up to which no packet is missing here and below
        self.deadline_ns = NEVER  # when the next ack is due; NEVER before the first and after the last ack
        self._farewells = 0

    @property
    def is_wanted(self) -> bool:
        """Return whether an SPM has asked for acks."""
        return self.terms is not NOT_ACKED

    @property
    def is_idle(self) -> bool:
        """Return whether the first ack was not yet due, or the last one was sent."""
        return self.deadline_ns == NEVER

    @property
    def parent(self) -> Nla:
        """Return the node that receives the acks; empty before the first ack."""
        return self._parent.address

    def follow(self, terms: AckTerms, now_ns: int) -> None:
        """Take the terms of an SPM. The next SPM of the source thereby corrects a forged one."""
        if terms == self.terms:
            return
        self._counters.ack_terms_changes += self.is_wanted
        self.terms = terms
        # Thousands of receivers get the same train at the same time, and their acks must not coincide.
        self.ivl = self._rng.randint(terms.ivl // 2, terms.ivl)
        self._mark_by = self._rng.randint(1, terms.every)
        if not self.is_idle:
            self._mark = min(self._mark, max(self._sent, 0) + terms.every)
            self.deadline_ns = min(self.deadline_ns, now_ns + self.ivl)

    def status(self, delivered: int) -> AckStatus | None:
        """Return the status of a receiver's acks, for operators; None if the stream has no acks."""
        if not self.is_wanted:
            return None
        return AckStatus(
            stable=-1 if self.is_idle else self.acked,
            members=1,
            parent=self.parent,
            window=self.terms.window,
            lag=max(0, self._state.lead - self.acked),
            untaken=max(0, delivered - self.acked),
        )

    def reached(self, acked: int, now_ns: int) -> None:
        """Note the newest sqn without a gap below it. The sqn falls when an element adopts a slower child."""
        if self.is_idle:
            if not self.is_wanted:
                return
            self._mark = acked + self._mark_by
            self.deadline_ns = now_ns
        elif acked == self.acked:
            return
        elif acked >= self._mark or acked < self._sent:
            self.deadline_ns = now_ns
        else:
            self.deadline_ns = min(self.deadline_ns, now_ns + self.ivl)
        self.acked = acked

    def leave(self, now_ns: int) -> None:
        """Say goodbye at once, because no receiver here or below counts any more."""
        if self.parent and not self.is_idle and not self._farewells:
            self._farewells, self.deadline_ns = _FAREWELLS, now_ns

    def stop(self) -> None:
        """Send no further ack, and no goodbye: another receiver of this node goes on with the acks."""
        self._farewells, self.deadline_ns = 0, NEVER

    def stay(self) -> None:
        """Cancel a goodbye, because a receiver counts again: the next ack is a first one."""
        if self._farewells or self.is_idle:
            self._farewells, self._parent.has_adopted, self.deadline_ns = 0, False, NEVER

    def handle_deadline(self, now_ns: int, members: int = 1, holder: Nla = "") -> Effects:
        """Return the ack that is due."""
        if now_ns < self.deadline_ns:
            return NOTHING
        terms = self.terms
        is_silent = now_ns - self._state.heard_at_ns >= self._peer_expiry
        if is_silent or not self._parent.choose(terms, now_ns):
            self.deadline_ns = now_ns + terms.keepalive
            return NOTHING
        self._sent, self._mark = self.acked, self.acked + terms.every
        leaves = self._farewells > 0
        self._farewells -= leaves
        if leaves and not self._farewells:
            self.deadline_ns = NEVER
        elif self._parent.has_adopted:
            self.deadline_ns = now_ns + terms.keepalive
        else:
            self.deadline_ns = now_ns + self._parent.count_try(terms, self.ivl)
        return (self._ack(members, holder, self.parent, leaves=leaves),)

    def _ack(self, members: int, holder: Nla, to: Nla, *, leaves: bool) -> Effect:
        self._counters.ack_packets += 1
        segment = self._segment if self._routes is None else self._routes.route(to, self._segment)[0]
        said = Members(
            members=members,
            holder=holder or segment.address,
            is_element=self._is_element,
            leaves=leaves,
            joins=not self._parent.has_adopted,
        )
        return control(segment, ack_packet(self._state.tsi, self._state.data_port, self.acked, said), to=to)

    def on_confirmation(self, peer: Nla, now_ns: int, *, is_for_us: bool) -> Effects:
        """Take a parent's confirmation. With `is_for_us` it came by unicast and confirms this node's own ack."""
        if peer != self.parent:
            if not self.is_idle and self._parent.prefer(peer, self.terms, now_ns):
                self.deadline_ns = now_ns
            return NOTHING
        self._parent.confirmed(now_ns, is_for_us=is_for_us)
        if not is_for_us:
            return NOTHING
        if self._farewells:
            self._farewells, self.deadline_ns = 0, NEVER
            return NOTHING
        former = self._parent.adopt()
        return (self._ack(0, "", former, leaves=True),) if former and not self.is_idle else NOTHING
