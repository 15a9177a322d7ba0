"""Limit on the sqns that may be outstanding at a time.

The limit shrinks while this node's own socket drops packets. A repair that meets a full socket buffer displaces another
packet, which is then missing too. A repair also costs its receiver many times as much as a packet in order. A receiver
that keeps its rate of requests would therefore never catch up. Losses in the network are no sign of a full buffer, so
they leave the limit as it is.
"""

from __future__ import annotations

from pgm.core.pacing.token_bucket import TokenBucket
from pgm.core.session_context import SessionContext
from pgm.wire.naks import LIST_SQNS

# The least share of nak_max_outstanding. Losses from before the drops must be repaired while the source still has the data.
LEAST_SHARE = 1 / 4
# Waves of NAKs in which one limit's worth of sqns is requested while more is missing. Each wave costs both ends NAKs.
_WAVES = 4


class OutstandingLimit:
    """Limit on outstanding sqns. As in TCP, a wave after new drops halves it, any other wave adds one NAK list."""

    def __init__(self, context: SessionContext) -> None:
        self._most = context.parameters.nak_max_outstanding
        self._least = max(1, round(LEAST_SHARE * self._most))
        self._counters = context.counters
        self._drops = context.counters.socket_drops  # as of the last wave
        self.sqns = self._most

    def worthwhile(self, sqns: int, budget: TokenBucket) -> int:
        """Return the least room, in sqns, that is worth a request for `sqns` sqns.

        The least room is some whole NAK lists. Without this minimum each arriving repair would free one sqn and cause
        one NAK. The minimum is at most the largest amount that the `budget` can hold.
        """
        return max(1, min(sqns, budget.most, max(LIST_SQNS, self.sqns // _WAVES), self.sqns // 2))

    def begin_wave(self) -> None:
        """Adapt the limit to the socket drops since the last wave."""
        drops = self._counters.socket_drops
        if drops != self._drops:
            self._drops = drops
            self._counters.nak_cuts += self.sqns > self._least
            self.sqns = max(self._least, self.sqns // 2)
        elif self.sqns < self._most:
            self.sqns = min(self._most, self.sqns + LIST_SQNS)
