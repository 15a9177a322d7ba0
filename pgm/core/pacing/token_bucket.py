"""Token and leaky buckets (RFC 5.1.2), in integers.

The state of a bucket is the instant at which it is full again (virtual scheduling). Tokens therefore accrue by elapsed
time, independent of the times of calls, and without loss by rounding.
"""

from __future__ import annotations

from pgm.units import NEVER, SECOND


class TokenBucket:
    """Bucket of at most burst + rate x T units in any time T (SRC-03); `rate` a second, `burst_ns` at that rate."""

    def __init__(self, rate: int, burst_ns: int) -> None:
        self.rate = rate
        self.burst_ns = burst_ns
        self.full_at_ns = 0  # when the bucket is full again if no units are taken

    def cost_ns(self, amount: int) -> int:
        """Return the ns that `amount` units take at the rate, rounded up: the limit is never exceeded."""
        return -(-amount * SECOND // self.rate)

    def ready_at(self, amount: int) -> int:
        """Return when `amount` units may be taken. An amount above the capacity needs a full bucket."""
        spare_ns = self.burst_ns + -amount * SECOND // self.rate
        return self.full_at_ns - spare_ns if spare_ns > 0 else self.full_at_ns

    @property
    def most(self) -> int:
        """Return the capacity, in units."""
        return self.burst_ns * self.rate // SECOND

    def available(self, now_ns: int) -> int:
        """Return how many units may be taken now."""
        spare = self.burst_ns - max(0, self.full_at_ns - now_ns)
        return max(0, spare * self.rate // SECOND)

    def charge(self, amount: int, now_ns: int) -> None:
        """Take units without a check, into debt if necessary."""
        self.full_at_ns = max(self.full_at_ns, now_ns) + self.cost_ns(amount)

    def change(self, rate: int, burst_ns: int, now_ns: int) -> None:
        """Set rate and burst. Units that are missing now stay missing, up to an empty bucket."""
        owed = max(0, self.full_at_ns - now_ns) * self.rate // SECOND
        self.rate, self.burst_ns = rate, burst_ns
        self.full_at_ns = now_ns + min(burst_ns, self.cost_ns(owed))

    def take(self, amount: int, now_ns: int) -> bool:
        """Take units if the bucket has them. Return whether it has."""
        if self.ready_at(amount) > now_ns:
            return False
        self.charge(amount, now_ns)
        return True


def unlimited() -> TokenBucket:
    """Return a bucket that never runs empty."""
    return TokenBucket(NEVER, SECOND)
