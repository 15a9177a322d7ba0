"""Ordered list of the parents to ask, with the rules for a change of parent.

The topology's parents come first, then the path address of the last SPM. After `parent_patience` unanswered NAKs in a
row, over the time of as many repeats, the next parent is asked. NAKs that a burst of losses or a late process leaves
unanswered together are therefore no reason. Waits grow for a parent that is slow, and not for one from which nothing has
come while others were heard: each request would wait long for each dead parent, before it came to a living one. The
preferred parent is tried again after `parent_retry_ivl`, or at once when a packet of that parent arrives.

A parent that gave wrong packets is passed over for `parent_retry_ivl`, unless all have given some. After more than
`forged_allowed` wrong packets that are surely those of a parent, that parent is the last in order.
"""

from __future__ import annotations

from collections.abc import Sequence

from pgm.core.effects import Notice
from pgm.core.recovery.response_timeout import ResponseTimeout
from pgm.core.session_context import SessionContext
from pgm.units import NEVER
from pgm.wire.formats import Nla, Tsi, tsi_text

_MOST_NOTICES = 2  # in notice_ivl: one for the change, one for the return


class Parents:
    """Parents of one node for one session. `response_timeout` is the wait for an NCF of the current parent.

    `patience` stands in for `parent_patience`.
    """

    def __init__(
        self,
        context: SessionContext,
        configured: Sequence[Nla],
        confirm_ivl: int | None = None,
        patience: int | None = None,
    ) -> None:
        parameters = context.parameters
        floor = parameters.nak_rpt_ivl if confirm_ivl is None else confirm_ivl
        self.response_timeout = ResponseTimeout(floor, max(floor, parameters.nak_max_ivl))
        self._configured = tuple(configured)
        self._parameters = parameters
        self._counters = context.counters
        self._path_nla: Nla | None = None
        self._index = 0
        self._patience = parameters.parent_patience if patience is None else patience
        self._tries = max(2, self._patience // 3)  # NAKs of one request to each parent: it need not wait for the change
        self._unanswered = 0  # NAKs in a row
        self._unanswered_since_ns = 0
        self._is_unheard = False  # whether no packet of the current parent came since the first of them
        self._retry_at_ns = 0
        self._accused: dict[Nla, int] = {}  # of wrong packets, with the end of the time in which others are asked
        self.forged: dict[Nla, int] = {}  # wrong packets that each parent surely gave
        self._order: tuple[Nla, ...] = self._configured
        self._left: Nla | None = None  # the parent before the first change without a notice
        self._changes = 0  # changes without a notice so far
        self._notices = 0  # since `_notices_since_ns`
        self._notices_since_ns = -NEVER

    @property
    def all(self) -> tuple[Nla, ...]:
        """Return all parents in order of preference."""
        return self._order

    @property
    def current(self) -> Nla | None:
        """Return the parent to ask now. Return None while neither topology nor SPM has named a parent."""
        return self._order[self._index] if self._order else None

    def is_parent(self, peer: Nla) -> bool:
        """Return whether an NCF from this peer answers this node."""
        return peer in self._order

    def learn_path(self, path_nla: Nla) -> None:
        """Take SPM_PATH as the last parent in order. Count a mismatch with the topology."""
        if path_nla == self._path_nla:
            return
        self._path_nla = path_nla
        if self._configured and path_nla not in self._configured:
            self._counters.path_mismatches += 1
        self._arrange()

    def _arrange(self) -> None:
        """Put the parents in order: those of the topology, the path address, and last those that gave wrong packets."""
        current, path = self.current, self._path_nla
        known = (*self._configured, path) if path is not None and path not in self._configured else self._configured
        self.forged = {peer: packets for peer, packets in self.forged.items() if peer in known}
        most = self._parameters.forged_allowed
        self._order = tuple(sorted(known, key=lambda peer: self.forged.get(peer, 0) > most))
        self._index = self._order.index(current) if current in self._order else 0

    def change(self, configured: Sequence[Nla], confirm_ivl: int | None = None) -> None:
        """Take other parents of the topology, and the timers of the parameters. The current parent stays if it is one."""
        floor = self._parameters.nak_rpt_ivl if confirm_ivl is None else confirm_ivl
        self.response_timeout.change(floor, max(floor, self._parameters.nak_max_ivl))
        if self._configured == tuple(configured):
            return
        left, self._configured = self.current, tuple(configured)
        self._arrange()
        if self.current != left:
            self._unanswered = 0
            self.response_timeout.start_anew()

    def heard(self, peer: Nla) -> None:
        """Note a sign of life. Return at once to a parent that is preferred to the current one."""
        if self._unanswered:
            self._is_unheard = self._is_unheard and peer != self.current
            self.response_timeout.is_parent_dead = self._is_unheard
        if self._index and peer in self._order[: self._index] and peer not in self._accused:
            self._move_to(self._order.index(peer))

    def answered(self, peer: Nla) -> None:
        """Note an NCF or RDATA, which proves that the parent answers NAKs."""
        if self._index or self._unanswered:
            self.heard(peer)
        if self._unanswered and peer == self.current:
            self._unanswered = 0

    def accuse(self, peer: Nla, now_ns: int, packets: int = 0) -> None:
        """Note a peer that gave wrong packets, of which `packets` are surely those of this peer. Ask other parents."""
        if peer not in self._order:
            return
        self.forged[peer] = self.forged.get(peer, 0) + packets
        self._arrange()
        if len(self._order) < 2:
            return
        until_ns = now_ns + self._parameters.parent_retry_ivl
        self._accused[peer] = until_ns
        if self._accused.keys() >= set(self._order):
            self._accused = {peer: until_ns}  # all have given wrong packets: the others are asked again
        if peer == self.current:
            self._move_to(self._next(self._index))
            self._retry_at_ns = until_ns

    def _next(self, index: int) -> int:
        """Return the index of the next parent that is not accused; of the next one if all others are."""
        after = [at % len(self._order) for at in range(index + 1, index + len(self._order))]
        return next((at for at in after if self._order[at] not in self._accused), (index + 1) % len(self._order))

    def unanswered(self, asked: Nla | None, now_ns: int) -> None:
        """Note a NAK of this node that no NCF confirmed."""
        if len(self._order) < 2 or asked != self.current:
            return
        if not self._unanswered:
            self._unanswered_since_ns, self._is_unheard = now_ns, True
        self.response_timeout.is_parent_dead = False  # until others are heard in the next wait: else it is an outage
        self._unanswered += 1
        least_ns = (self._patience - 1) * self.response_timeout.floor_ns
        if self._unanswered >= self._patience and now_ns - self._unanswered_since_ns >= least_ns:
            self._move_to(self._next(self._index))
            self._retry_at_ns = now_ns + self._parameters.parent_retry_ivl

    def for_request(self, tried: Nla | None, unanswered: int) -> Nla | None:
        """Return the parent for a request after so many unanswered NAKs, the last to `tried`.

        Each parent gets a third of `patience` in turn, at least two.
        """
        if unanswered < self._tries or tried not in self._order:
            return self.current
        return tried if unanswered % self._tries else self.after(tried)

    def after(self, asked: Nla) -> Nla | None:
        """Return the parent for a single request that `asked` did not answer: `asked` again without another."""
        if asked not in self._order:
            return self.current
        return self._order[self._next(self._order.index(asked))]

    def before_asking(self, now_ns: int) -> None:
        """Return to the preferred parent after `parent_retry_ivl`."""
        if self._accused:
            self._accused = {peer: until_ns for peer, until_ns in self._accused.items() if until_ns > now_ns}
        if self._index and now_ns >= self._retry_at_ns:
            self._move_to(0)
            # The preferred parent has failed once already, so one unanswered NAK is enough to leave it again.
            self._unanswered, self._unanswered_since_ns = self._patience - 1, -NEVER

    def take_change(self, tsi: Tsi, now_ns: int) -> Sequence[Notice]:
        """Return a notice of all changes of parents since the last notice; at most two in `notice_ivl`."""
        if not self._changes:
            return ()
        if now_ns - self._notices_since_ns >= self._parameters.notice_ivl:
            self._notices_since_ns, self._notices = now_ns, 0
        if self._notices >= _MOST_NOTICES:
            return ()
        left, self._left, changes, self._changes = self._left, None, self._changes, 0
        if changes == 1:
            text = f"asks {self.current} instead of {left}"
        elif left == self.current and changes == _MOST_NOTICES:
            return ()  # a change and the return between two calls
        else:
            text = f"asks {self.current}, after {changes} changes of parents since it asked {left}"
        self._notices += 1
        return (Notice("parent-changed", f"session {tsi_text(tsi)}: {text}"),)

    def _move_to(self, index: int) -> None:
        self._counters.watch.parent_changed(self.current, self._order[index])
        self._left = self._left or self.current
        self._changes += 1
        self._index = index
        self._unanswered = 0
        self.response_timeout.start_anew()
        self._counters.parent_changes += 1
