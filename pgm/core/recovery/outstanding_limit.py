"""How many sqns are asked for at a time: less while the asker's own socket drops packets.

A repair that comes to a full buffer displaces another packet, which is missing then, too, and costs its receiver many times what
one in order does: whoever goes on asking as before never catches up. What the network loses says nothing of that, and changes nothing.
"""

from __future__ import annotations

from pgm.core.counters import Counters
from pgm.core.pacing.token_bucket import TokenBucket
from pgm.parameters import Parameters
from pgm.wire.naks import LIST_SQNS

# The share of nak_max_outstanding that is left in the end: what was lost before the drops has to come while the source has it.
_LEAST = 1 / 4
# What may be asked for at a time is asked for in so many waves while there is more: each costs both ends as much as NAKs.
_WAVES = 4


class OutstandingLimit:
    """The limit on what is asked for at a time: halved with each wave after new drops, a list more with each without, as TCP does."""

    def __init__(self, parameters: Parameters, counters: Counters) -> None:
        self._most = parameters.nak_max_outstanding
        self._least = max(1, round(_LEAST * self._most))
        self._counters = counters
        self._drops = counters.socket_drops  # that are known
        self.sqns = self._most

    def worthwhile(self, sqns: int, budget: TokenBucket | None) -> int:
        """Room that is worth waiting for to ask for so many, some whole lists: asking for what each repair makes room for would cost a NAK per repair.

        Where a `budget` limits it, too, no more than that ever has.
        """
        most = sqns if budget is None else min(sqns, budget.most)
        return max(1, min(most, max(LIST_SQNS, self.sqns // _WAVES), self.sqns // 2))

    def begin_wave(self) -> None:
        """More is about to be asked for: look at what has been dropped since the last time."""
        drops = self._counters.socket_drops
        if drops != self._drops:
            self._drops = drops
            self._counters.nak_cuts += self.sqns > self._least
            self.sqns = max(self._least, self.sqns // 2)
        elif self.sqns < self._most:
            self.sqns = min(self._most, self.sqns + LIST_SQNS)
