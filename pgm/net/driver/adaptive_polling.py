"""Decision whether to poll a socket briefly before sleeping on it.

A wake-up costs some hundred microseconds of CPU and of latency, because other processes have filled the caches. If the
next message comes sooner than that, as an answer does, polling costs less of both. The decision follows recent history,
as hypervisors decide when a processor halts. An account is charged with the time of polls and credited with the sleeps
that they spare. A steady stream is therefore polled only if that costs little more, and a slow stream never.
"""

from __future__ import annotations

# If the last sleep took at most this many times the longest poll, poll next time: a sleep includes its wake-up.
_SLEEP_RATIO = 2
# Cost of a wake-up, as a divisor of the longest poll: polls may take that much on average.
_WAKE_UP_DIVISOR = 2
# Largest debt before polls stop, in longest polls: two ends that begin to answer each other are slow at first.
_CREDIT = 2
# Credit of a sleep, as a divisor of the longest poll.
_SLEEP_DIVISOR = 128
# Largest charge of an interrupted poll, in longest polls. An interruption shows that other processes want the
# processor, and a process with high use waits for it for milliseconds. It may also be an occasional stop of the virtual
# machine.
_MOST_CHARGE = 8


class AdaptivePolling:
    """Account of past polls and sleeps that gives the length of the next poll."""

    def __init__(self, ivl: int) -> None:
        """Start with a full credit. `ivl` is the longest poll, in ns; 0 disables polling."""
        self._longest = ivl
        self._greatest_balance = self._balance = ivl * _CREDIT
        self.ivl = 0  # length of the next poll, in ns

    def polled(self, ns: int, *, found: bool) -> None:
        """Record a poll of `ns`, including the turns of other tasks before it."""
        balance = self._balance - min(ns, self._longest * _MOST_CHARGE)
        if found:
            balance += self._longest // _WAKE_UP_DIVISOR
        self._balance = min(balance, self._greatest_balance)
        if balance <= 0:
            self.ivl = 0

    def woke(self, ns: int) -> None:
        """Record that data came after a sleep of `ns`."""
        self._balance = min(self._balance + self._longest // _SLEEP_DIVISOR, self._greatest_balance)
        self.ivl = self._longest if self._balance > 0 and ns <= self._longest * _SLEEP_RATIO else 0
