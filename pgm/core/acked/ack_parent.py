"""Choice of the parent that receives one node's acks.

A child changes to the next parent after half of `ack_expiry` without a confirmation. A parent that never answers is left
after `AckTerms.search`. The change is complete before the nodes above forget the old parent, so no packet that the child
lacks is released meanwhile.
"""

from __future__ import annotations

from pgm.core.acked.ack_terms import AckTerms
from pgm.core.counters import Counters
from pgm.core.recovery.parents import Parents
from pgm.wire.formats import Nla

_MOST_DOUBLINGS = 16  # far beyond any keepalive


class AckParent:
    """Parent of one node for the acks of one session."""

    def __init__(self, parents: Parents, counters: Counters) -> None:
        self._parents = parents
        self._counters = counters
        self.address: Nla = ""  # empty before the first choice
        self.has_adopted = False  # the parent has confirmed an ack of this node
        self._tries = 0  # acks to this parent without an adoption
        self._heard_ns = 0  # when the parent last confirmed, or the first ack to it
        self._former: Nla = ""  # the old parent, which gets a goodbye once the new one has adopted this node
        self._retry_ns = 0  # when a better parent may be tried again

    def choose(self, terms: AckTerms, now_ns: int) -> bool:
        """Choose the parent for the next ack, and leave a silent one. Return False without any parent."""
        order = self._parents.all
        if not order:
            return False
        if self.address not in order:
            self._change(order[0], now_ns)
        elif now_ns - self._heard_ns >= (terms.response_timeout if self.has_adopted else terms.search):
            at = order.index(self.address)
            self._retry_ns = now_ns + terms.expiry
            self._change(order[(at + 1) % len(order)], now_ns)
        return True

    def prefer(self, peer: Nla, terms: AckTerms, now_ns: int) -> bool:
        """Change to a node that is alive. Return False if it is no better parent, or was tried a short time ago."""
        order = self._parents.all
        is_better = peer in order and self.address in order and order.index(peer) < order.index(self.address)
        if not is_better or now_ns < self._retry_ns:
            return False
        self._retry_ns = now_ns + terms.expiry
        self._change(peer, now_ns)
        return True

    def _change(self, parent: Nla, now_ns: int) -> None:
        if parent != self.address:
            self._tries = 0
            self._counters.ack_parent_changes += bool(self.address)
            if self.has_adopted:
                self._former = self.address
        self.address, self.has_adopted, self._heard_ns = parent, False, now_ns

    def count_try(self, terms: AckTerms, ivl: int) -> int:
        """Count an ack before the adoption. Return the wait for the answer, which doubles with each try.

        A forged SPM may name any address, and all receivers would send acks to that address.
        """
        self._tries += 1
        return max(ivl, min(terms.keepalive, ivl << min(self._tries - 1, _MOST_DOUBLINGS)))

    def confirmed(self, now_ns: int, *, is_for_us: bool) -> None:
        """Note a confirmation of the parent."""
        if self.has_adopted or is_for_us:
            self._heard_ns = now_ns

    def adopt(self) -> Nla:
        """Note that the parent has adopted this node. Return the old parent to leave; empty without one."""
        former, self._former, self.has_adopted, self._tries = self._former, "", True, 0
        return "" if former == self.address else former
