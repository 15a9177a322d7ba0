"""Whether it pays to look at a socket for a moment before sleeping until something comes there.

To be woken takes some hundred microseconds of CPU and of the message's time, in caches that others have filled meanwhile.
Where the next message comes sooner than that, as an answer does, looking for it costs less of both. Whether it does is judged
by what happened lately, as hypervisors do it when a processor halts: an account is charged with what looks take and credited
with the sleeps that they spare, so a steady stream is looked for only if that costs little more, and a slow one never.
"""

from __future__ import annotations

# A sleep is what it waited for and a wake-up together: where it was so many times as long as a look, that is worth a try.
_SLEEPS = 2
# The part of the longest look that a wake-up costs: looks may take that much on average.
_SPARED = 2
# What may be lost before there are no looks, in longest looks: two ends that begin to answer each other are slow at first.
_CREDIT = 2
# The part of a longest look that is paid back by a sleep.
_PAID = 128
# A look that was interrupted is charged so many longest ones at most: others want the processor, and whoever has used much
# of it waits for it for milliseconds; but a virtual machine is stopped now and then, too.
_CHARGED = 8


class AdaptivePolling:
    """For how long to look."""

    def __init__(self, ivl: int) -> None:
        """`ivl` is the longest look, in ns; 0 for none ever."""
        self._longest = ivl
        self._most = self._left = ivl * _CREDIT
        self.ivl = 0  # of the next look, in ns

    def polled(self, ns: int, *, found: bool) -> None:
        """A look is over, which took so long, others' turns before it and all."""
        left = self._left - min(ns, self._longest * _CHARGED)
        if found:
            left += self._longest // _SPARED
        self._left = min(left, self._most)
        if left <= 0:
            self.ivl = 0

    def woke(self, ns: int) -> None:
        """Something came after a sleep that was so long for whoever slept."""
        self._left = min(self._left + self._longest // _PAID, self._most)
        self.ivl = self._longest if self._left > 0 and ns <= self._longest * _SLEEPS else 0
