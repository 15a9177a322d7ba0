"""Repairers of the same segment, which a repairer asks before its parents.

A sibling that has the packets confirms by unicast, and repairs to the group. A sibling that lacks them keeps silent, and
asks nobody on another sibling's behalf: no request goes in circles. A request that siblings left unanswered, or that a
sibling has made as well, goes to the parents.
"""

from __future__ import annotations

from collections.abc import Sequence

from pgm.core.recovery.missing_range import MissingRange
from pgm.core.session_context import SessionContext
from pgm.wire.formats import Nla


class Siblings:
    """Siblings of one repairer for one session, the first to ask in front."""

    def __init__(self, context: SessionContext, addresses: Sequence[Nla] = ()) -> None:
        self._addresses = tuple(addresses)
        self._parameters = context.parameters
        self.tries = max(2, context.parameters.parent_patience // 3)  # for one request, as of each parent
        self.wait_ivl = context.parameters.nak_rpt_ivl  # for a confirmation, in ns: siblings are near
        self._unanswered: dict[Nla | None, int] = {}  # NAKs in a row, since the sibling was last heard
        self._rests_until_ns: dict[Nla | None, int] = {}  # of silent siblings

    def __contains__(self, node: Nla | None) -> bool:
        return node in self._addresses

    def change(self, addresses: Sequence[Nla]) -> None:
        """Take other siblings, and the timer of the parameters."""
        self._addresses = tuple(addresses)
        self.wait_ivl = self._parameters.nak_rpt_ivl

    def for_request(self, missing: MissingRange, now_ns: int) -> Nla | None:
        """Return the sibling to ask for a range; None if the parents' turn has come, or if all siblings are silent."""
        if not self._addresses or missing.sibling_tries >= self.tries:
            return None
        awake = [one for one in self._addresses if self._rests_until_ns.get(one, now_ns) <= now_ns]
        return awake[missing.sibling_tries % len(awake)] if awake else None

    def heard(self, node: Nla) -> None:
        """Note a packet of a node: a sibling that is there lacks what it does not confirm."""
        if self._unanswered and node in self._unanswered:
            del self._unanswered[node]
            self._rests_until_ns.pop(node, None)

    def unanswered(self, sibling: Nla | None, now_ns: int) -> None:
        """Note an unconfirmed NAK. After `parent_patience` in a row without a packet, one is asked in `parent_retry_ivl`."""
        count = self._unanswered[sibling] = self._unanswered.get(sibling, 0) + 1
        if count >= self._parameters.parent_patience:
            self._rests_until_ns[sibling] = now_ns + self._parameters.parent_retry_ivl
