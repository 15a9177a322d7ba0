"""Whom to ask: an ordered list of parents, and when to move on to the next.

The topology's parents come first, the path address of the last SPM behind them. A parent that leaves
`parent_patience` NAKs unanswered is passed over; the preferred one is tried again after `parent_retry_ivl`,
or at once when it is heard.
"""

from __future__ import annotations

from collections.abc import Sequence

from pgm.core.counters import Counters
from pgm.core.effects import Notice
from pgm.core.recovery.response_timeout import ResponseTimeout
from pgm.parameters import Parameters
from pgm.units import NEVER
from pgm.wire.formats import Nla, Tsi, tsi_text

_TOLD_AT_ONCE = 2  # notices in notice_ivl: there and back


class Parents:
    """The parents of one node for one session. `response_timeout` is for the NCF of the current one."""

    def __init__(
        self, configured: Sequence[Nla], parameters: Parameters, counters: Counters, confirm_ivl: int | None = None
    ) -> None:
        floor = parameters.nak_rpt_ivl if confirm_ivl is None else confirm_ivl
        self.response_timeout = ResponseTimeout(floor, max(floor, parameters.nak_max_ivl))
        self._configured = tuple(configured)
        self._parameters = parameters
        self._counters = counters
        self._state: Nla | None = None
        self._index = 0
        self._unanswered = 0
        self._retry_at_ns = 0
        self._order: tuple[Nla, ...] = self._configured
        self._left: Nla | None = None  # the parent before the first change that was not told yet
        self._changes = 0  # that were not told yet
        self._told = 0  # notices since `_told_since_ns`
        self._told_since_ns = -NEVER

    @property
    def all(self) -> tuple[Nla, ...]:
        """Every parent in order of preference."""
        return self._order

    @property
    def current(self) -> Nla | None:
        """The parent to ask now; None as long as neither topology nor SPM named one."""
        return self._order[self._index] if self._order else None

    def is_parent(self, peer: Nla) -> bool:
        """Whether an NCF from this peer answers us."""
        return peer in self._order

    def learn_path(self, path_nla: Nla) -> None:
        """Take SPM_PATH as the last resort; a mismatch with the topology is counted."""
        if path_nla == self._state:
            return
        self._state = path_nla
        if self._configured and path_nla not in self._configured:
            self._counters.path_mismatches += 1
        current = self.current
        self._order = self._configured if path_nla in self._configured else (*self._configured, path_nla)
        self._index = self._order.index(current) if current in self._order else 0

    def heard(self, peer: Nla) -> None:
        """Note a sign of life. A better parent than the current one is taken back at once."""
        if self._index and peer in self._order[: self._index]:
            self._move_to(self._order.index(peer))

    def answered(self, peer: Nla) -> None:
        """Note an NCF or RDATA: the parent not only lives, it serves."""
        if self._index:
            self.heard(peer)
        if self._unanswered and peer == self.current:
            self._unanswered = 0

    def unanswered(self, asked: Nla | None, now_ns: int) -> None:
        """Note a NAK to which no NCF came."""
        if len(self._order) < 2 or asked != self.current:
            return
        self._unanswered += 1
        if self._unanswered >= self._parameters.parent_patience:
            self._move_to((self._index + 1) % len(self._order))
            self._retry_at_ns = now_ns + self._parameters.parent_retry_ivl

    def failed(self, asked: Nla, now_ns: int) -> Nla | None:
        """Move on at once from a parent that answered no repeat at all; returns the next one that is new."""
        if asked != self.current:
            return self.current
        if len(self._order) < 2:
            return None
        self._move_to((self._index + 1) % len(self._order))
        self._retry_at_ns = now_ns + self._parameters.parent_retry_ivl
        return self.current

    def before_asking(self, now_ns: int) -> None:
        """Go back to the preferred parent when its time has come."""
        if self._index and now_ns >= self._retry_at_ns:
            self._move_to(0)
            # One unanswered NAK is enough to leave a parent that was already found dead.
            self._unanswered = self._parameters.parent_patience - 1

    def take_change(self, tsi: Tsi, now_ns: int) -> Sequence[Notice]:
        """What there is to tell of changes of parents since the last call: there and back at once, more together."""
        if not self._changes:
            return ()
        if now_ns - self._told_since_ns >= self._parameters.notice_ivl:
            self._told_since_ns, self._told = now_ns, 0
        if self._told >= _TOLD_AT_ONCE:
            return ()
        left, self._left, changes, self._changes = self._left, None, self._changes, 0
        if changes == 1:
            text = f"asks {self.current} instead of {left}"
        elif left == self.current and changes == _TOLD_AT_ONCE:
            return ()  # there and back between two calls
        else:
            text = f"asks {self.current}, after {changes} changes of parents since it asked {left}"
        self._told += 1
        return (Notice("parent-changed", f"session {tsi_text(tsi)}: {text}"),)

    def _move_to(self, index: int) -> None:
        if self._counters.watch is not None:
            self._counters.watch.parent_changed(self.current, self._order[index])
        self._left = self._left or self.current
        self._changes += 1
        self._index = index
        self._unanswered = 0
        self.response_timeout.start_anew()
        self._counters.parent_changes += 1
