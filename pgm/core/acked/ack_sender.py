"""Acks of one node to its parent: when, and to which one.

An ack is due after `every` packets, or an interval after the first packet that was not acknowledged, whichever is
sooner; beside those a sign of life now and then. The parent confirms the first ack by unicast, so the child knows that it
counts there; from then on what the parent says to all its children is enough. A child that hears nothing of its parent for
half of `ack_expiry` goes to the next one, and from that to the next in an eighth, before the old one is forgotten above, so that nothing it lacks is let go meanwhile.
"""

from __future__ import annotations

import random

from pgm.core.acked.ack_terms import AckTerms, ack_packet
from pgm.core.counters import Counters
from pgm.core.effects import NOTHING, Effect, Effects, control
from pgm.core.recovery.nak_sender import HasRoutes
from pgm.core.recovery.parents import Parents
from pgm.core.segment import Segment
from pgm.core.session.state import SessionState
from pgm.core.status import AckStatus
from pgm.parameters import Parameters
from pgm.units import NEVER
from pgm.wire.formats import Nla
from pgm.wire.options import Members

_MOST_DOUBLINGS = 16  # far beyond any keepalive
_FAREWELLS = 16  # acks that say goodbye, until one is confirmed: long enough for two parents


class AckSender:
    """The acks of one node in one session. `is_element`: it speaks for others."""

    def __init__(
        self,
        state: SessionState,
        parents: Parents,
        segment: Segment,
        parameters: Parameters,
        rng: random.Random,
        counters: Counters,
        terms: AckTerms,
        *,
        is_element: bool = False,
    ) -> None:
        self._terms = terms
        self._state = state
        self._parents = parents
        self._segment = segment
        self._parameters = parameters
        self._counters = counters
        self._is_element = is_element
        self.routes: HasRoutes | None = None  # where parents are on several segments
        self._rng = rng
        self._draw()
        self._acked: int | None = None
        self._sent = -1
        self._mark = 0  # an ack is due when this is reached
        self._due_ns = NEVER
        self.parent: Nla | None = None
        self._is_adopted = False
        self._in_vain = 0  # acks to this parent since it began to be asked
        self._heard_ns = 0  # when the parent was last heard, or began to be asked
        self._former: Nla | None = None  # a parent that is told when another one has taken over
        self._retry_ns = 0  # when a better parent may be tried again
        self._farewells = 0

    def _draw(self) -> None:
        """Thousands of receivers get the same train at once; their acks shall not come at once."""
        self._ivl = self._rng.randint(self._terms.ivl // 2, self._terms.ivl)
        self._mark_by = self._rng.randint(1, self._terms.every)

    @property
    def terms(self) -> AckTerms:
        """What the source asks, as its last SPM said it."""
        return self._terms

    def follow(self, terms: AckTerms, now_ns: int) -> None:
        """Take the terms of an SPM: should an earlier one have been forged, this one puts it right."""
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
        """When an ack is due."""
        return self._due_ns

    @property
    def acked(self) -> int | None:
        """What this node, and everybody below, has; None before it began."""
        return self._acked

    @property
    def status(self) -> AckStatus:
        """What operators see of a receiver's acks."""
        stable = -1 if self._acked is None else self._acked
        return AckStatus(stable=stable, members=1, parent=self.parent or "", window=self.terms.window)

    def reached(self, acked: int, now_ns: int | None = None) -> None:
        """Note how far everything was delivered. It goes back where an element adopts a child."""
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
        """Nobody here counts any more; say so, at once."""
        if self._acked is not None and self.parent is not None and not self._farewells:
            self._farewells = _FAREWELLS
            self._due_ns = self._state.heard_at_ns if now_ns is None else now_ns

    def stay(self, now_ns: int) -> None:
        """Somebody counts again after all."""
        if self._farewells or self._acked is None:
            self._farewells, self._is_adopted, self._acked = 0, False, None
            self._due_ns = now_ns

    def handle_deadline(self, now_ns: int, members: int = 1, holder: Nla = "") -> Effects:
        """An ack, if it is due."""
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
        """Ever longer waits for a parent that does not answer: an SPM may name anybody, and all receivers would ask that one."""
        self._in_vain += 1
        return max(self._ivl, min(self.terms.keepalive, self._ivl << min(self._in_vain - 1, _MOST_DOUBLINGS)))

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
        """Whether there is a parent to ack to. One that is silent gives way to the next."""
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
            self._in_vain = 0
        if parent != self.parent and self.parent is not None:
            self._counters.ack_parent_changes += 1
            if self._is_adopted:
                self._former = self.parent
        self.parent, self._is_adopted, self._heard_ns = parent, False, now_ns

    def on_confirmation(self, peer: Nla, now_ns: int, *, is_for_us: bool) -> Effects:
        """A parent has heard acks: ours, if it says so to us alone."""
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
        former, self._former, self._is_adopted, self._in_vain = self._former, None, True, 0
        if former is None or former == peer or self._acked is None:
            return NOTHING
        return (self._ack(self._acked, 0, "", former, leaves=True),)
