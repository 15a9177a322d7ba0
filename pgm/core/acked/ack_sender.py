"""Acks of one node to its parent: their times, and the choice of the parent.

An ack is due after `every` packets, or an interval after the first packet without an ack, whichever is sooner. Keepalive
acks come in addition. The parent confirms the first ack by unicast, so that the child knows of its adoption. After that
the parent's confirmations to all its children are enough.

A child changes to the next parent after half of `ack_expiry` without a confirmation. A parent that never answers is left
after `AckTerms.search`. The change is complete before the nodes above forget the old parent, so no packet that the child
lacks is released meanwhile.
"""

from __future__ import annotations

from pgm.core.acked.ack_terms import AckTerms, ack_packet
from pgm.core.effects import NOTHING, Effect, Effects, control
from pgm.core.recovery.nak_sender import HasRoutes
from pgm.core.recovery.parents import Parents
from pgm.core.segment import Segment
from pgm.core.session.state import SessionState
from pgm.core.session_context import SessionContext
from pgm.core.status import AckStatus
from pgm.units import NEVER
from pgm.wire.formats import Nla
from pgm.wire.options import Members

_MOST_DOUBLINGS = 16  # far beyond any keepalive
_FAREWELLS = 16  # acks with a goodbye until one is confirmed: enough to try two parents


class AckSender:
    """Acks of one node in one session.

    With `is_element` the node speaks for receivers below it.
    """

    def __init__(
        self,
        context: SessionContext,
        state: SessionState,
        parents: Parents,
        segment: Segment,
        terms: AckTerms,
        *,
        is_element: bool = False,
    ) -> None:
        self._terms = terms
        self._state = state
        self._parents = parents
        self._segment = segment
        self._parameters = context.parameters
        self._counters = context.counters
        self._is_element = is_element
        self.routes: HasRoutes | None = None  # None: all parents are on one segment
        self._rng = context.rng
        self._draw()
        self._acked: int | None = None
        self._sent = -1
        self._mark = 0  # an ack is due when this sqn is reached
        self._due_ns = NEVER
        self.parent: Nla | None = None
        self._is_adopted = False
        self._tries = 0  # acks to this parent without an adoption
        self._heard_ns = 0  # when the parent last confirmed, or the first ack to it
        self._former: Nla | None = None  # the old parent, which gets a goodbye once the new one has adopted this node
        self._retry_ns = 0  # when a better parent may be tried again
        self._farewells = 0

    def _draw(self) -> None:
        """Draw the interval and the mark of acks at random.

        Thousands of receivers get the same train at the same time, and their acks must not coincide.
        """
        self._ivl = self._rng.randint(self._terms.ivl // 2, self._terms.ivl)
        self._mark_by = self._rng.randint(1, self._terms.every)

    @property
    def terms(self) -> AckTerms:
        """Return the source's terms, from its last SPM."""
        return self._terms

    def follow(self, terms: AckTerms, now_ns: int) -> None:
        """Take the terms of an SPM.

        The next SPM of the source thereby corrects a forged one.
        """
        if terms == self._terms:
            return
        self._counters.ack_terms_changes += 1
        self._terms = terms
        self._draw()
        if self._acked is not None and self._due_ns != NEVER:
            self._mark = min(self._mark, max(self._sent, 0) + terms.every)
            self._due_ns = min(self._due_ns, now_ns + self._ivl)

    @property
    def deadline_ns(self) -> int:
        """Return when an ack is due."""
        return self._due_ns

    @property
    def acked(self) -> int | None:
        """Return the newest sqn up to which no packet is missing here and below.

        Return None before the first ack.
        """
        return self._acked

    @property
    def status(self) -> AckStatus:
        """Return the status of a receiver's acks, for operators."""
        stable = -1 if self._acked is None else self._acked
        return AckStatus(stable=stable, members=1, parent=self.parent or "", window=self.terms.window)

    def reached(self, acked: int, now_ns: int | None = None) -> None:
        """Note the newest sqn without a gap below it.

        The sqn falls when an element adopts a slower child.
        """
        if acked == self._acked:
            return
        now_ns = self._state.heard_at_ns if now_ns is None else now_ns
        if self._acked is None:
            self._mark = acked + self._mark_by
            self._due_ns = now_ns
        elif acked >= self._mark or acked < self._sent:
            self._due_ns = now_ns
        else:
            self._due_ns = min(self._due_ns, now_ns + self._ivl)
        self._acked = acked

    def leave(self, now_ns: int | None = None) -> None:
        """Say goodbye at once, because no receiver here or below counts any more."""
        if self._acked is not None and self.parent is not None and not self._farewells:
            self._farewells = _FAREWELLS
            self._due_ns = self._state.heard_at_ns if now_ns is None else now_ns

    def stay(self, now_ns: int) -> None:
        """Cancel a goodbye, because a receiver counts again."""
        if self._farewells or self._acked is None:
            self._farewells, self._is_adopted, self._acked = 0, False, None
            self._due_ns = now_ns

    def handle_deadline(self, now_ns: int, members: int = 1, holder: Nla = "") -> Effects:
        """Return the ack that is due."""
        if now_ns < self._due_ns:
            return NOTHING
        terms = self.terms
        is_silent = now_ns - self._state.heard_at_ns >= self._parameters.peer_expiry
        if self._acked is None or is_silent or not self._find_parent(now_ns):
            self._due_ns = now_ns + terms.keepalive
            return NOTHING
        self._sent, self._mark = self._acked, self._acked + terms.every
        leaves = self._farewells > 0
        if leaves:
            self._farewells -= 1
        is_last = leaves and not self._farewells
        self._due_ns = NEVER if is_last else now_ns + (terms.keepalive if self._is_adopted else self._next_try())
        if is_last:
            self._acked = None
        return (self._ack(self._sent, members, holder, self.parent, leaves=leaves),)

    def _next_try(self) -> int:
        """Return the wait for a parent without an answer, which doubles with each try.

        A forged SPM may name any address, and all receivers would send acks to that address.
        """
        self._tries += 1
        return max(self._ivl, min(self.terms.keepalive, self._ivl << min(self._tries - 1, _MOST_DOUBLINGS)))

    def _ack(self, acked: int, members: int, holder: Nla, to: Nla | None, *, leaves: bool = False) -> Effect:
        self._counters.ack_packets += 1
        segment = self._segment if self.routes is None else self.routes.route(to, self._segment)[0]
        said = Members(
            members=members,
            holder=holder or segment.address,
            is_element=self._is_element,
            leaves=leaves,
            joins=not self._is_adopted,
        )
        return control(segment, ack_packet(self._state.tsi, self._state.data_port, acked, said), to=to)

    def _find_parent(self, now_ns: int) -> bool:
        """Choose the parent for the next ack, and leave a silent one.

        Return False without any parent.
        """
        order = self._parents.all
        if not order:
            return False
        if self.parent not in order:
            self._go_to(order[0], now_ns)
        elif now_ns - self._heard_ns >= (self.terms.response_timeout if self._is_adopted else self.terms.search):
            at = order.index(self.parent)
            self._retry_ns = now_ns + self.terms.expiry
            self._go_to(order[(at + 1) % len(order)], now_ns)
        return True

    def _go_to(self, parent: Nla, now_ns: int) -> None:
        if parent != self.parent:
            self._tries = 0
        if parent != self.parent and self.parent is not None:
            self._counters.ack_parent_changes += 1
            if self._is_adopted:
                self._former = self.parent
        self.parent, self._is_adopted, self._heard_ns = parent, False, now_ns

    def on_confirmation(self, peer: Nla, now_ns: int, *, is_for_us: bool) -> Effects:
        """Take a parent's confirmation.

        With `is_for_us` it came by unicast and confirms this node's own ack.
        """
        order = self._parents.all
        if peer != self.parent:
            is_better = peer in order and self.parent in order and order.index(peer) < order.index(self.parent)
            if is_better and now_ns >= self._retry_ns and self._due_ns != NEVER:
                self._retry_ns = now_ns + self.terms.expiry
                self._go_to(peer, now_ns)
                self._due_ns = now_ns
            return NOTHING
        if self._is_adopted or is_for_us:
            self._heard_ns = now_ns
        if not is_for_us:
            return NOTHING
        if self._farewells:
            self._farewells, self._acked, self._due_ns = 0, None, NEVER
            return NOTHING
        former, self._former, self._is_adopted, self._tries = self._former, None, True, 0
        if former is None or former == peer or self._acked is None:
            return NOTHING
        return (self._ack(self._acked, 0, "", former, leaves=True),)
