"""Token and leaky buckets (RFC 5.1.2), in integers.

A bucket is kept as the instant at which it would be full again (virtual scheduling), so it accrues by elapsed time however
late it is asked, and there is no rounding to lose.
"""

from __future__ import annotations

from pgm.units import SECOND


class TokenBucket:
    """At most `rate` units a second and `burst_ns` of them at once: in any T, burst + rate x T (SRC-03)."""

    def __init__(self, rate: int, burst_ns: int) -> None:
        self.rate = rate
        self.burst_ns = burst_ns
        self.full_at_ns = 0  # when it is full again, if nothing is taken

    def cost_ns(self, amount: int) -> int:
        """Time at full rate that `amount` units are worth, rounded up: the limit holds exactly."""
        return -(-amount * SECOND // self.rate)

    def ready_at(self, amount: int) -> int:
        """The earliest instant at which `amount` units may be taken; more than the bucket holds waits for a full one."""
        spare_ns = self.burst_ns + -amount * SECOND // self.rate
        return self.full_at_ns - spare_ns if spare_ns > 0 else self.full_at_ns

    @property
    def most(self) -> int:
        """Units in a full bucket."""
        return self.burst_ns * self.rate // SECOND

    def available(self, now_ns: int) -> int:
        """Units that may be taken now."""
        spare = self.burst_ns - max(0, self.full_at_ns - now_ns)
        return max(0, spare * self.rate // SECOND)

    def charge(self, amount: int, now_ns: int) -> None:
        """Take units, whether they are there or not."""
        self.full_at_ns = max(self.full_at_ns, now_ns) + self.cost_ns(amount)

    def change(self, rate: int, burst_ns: int, now_ns: int) -> None:
        """From now on another size. What was taken and is not back is owed at the new rate, up to an empty bucket."""
        owed = max(0, self.full_at_ns - now_ns) * self.rate // SECOND
        self.rate, self.burst_ns = rate, burst_ns
        self.full_at_ns = now_ns + min(burst_ns, self.cost_ns(owed))

    def take(self, amount: int, now_ns: int) -> bool:
        """Take units if they are there."""
        if self.ready_at(amount) > now_ns:
            return False
        self.charge(amount, now_ns)
        return True
