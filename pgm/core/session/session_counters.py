"""Share of each session in a core's counters, without a second set of increments.

A core works for one session at a time. The gain of the counters between two turns therefore belongs to the session that
had the turn. A core with one session pays one comparison for each event. A core with many sessions reads the counters
when the turn changes.
"""

from __future__ import annotations

from collections.abc import Hashable
from operator import attrgetter
from typing import Generic, TypeVar

from pgm.core.counters import Counters

# The counters that are kept by session: the frequent ones of a session, and those that show the state of a stream.
SESSION_COUNTERS = (
    "odata_packets",
    "odata_octets",
    "rdata_packets",
    "rdata_octets",
    "rdata_forwarded",
    "received_packets",
    "received_octets",
    "duplicate_packets",
    "twin_packets",
    "delivered_packets",
    "delivered_octets",
    "lost_sqns",
    "conflict_sqns",
    "missing_sqns",
    "late_sqns",
    "repaired_sqns",
    "repaired_locally",
    "parity_sqns",
    "nak_packets",
    "nak_sqns",
    "naks_suppressed",
    "parent_changes",
    "nak_packets_in",
    "nak_sqns_in",
    "nak_packets_eliminated",
    "nak_packets_braked",
    "ncf_packets",
    "ncf_packets_in",
    "cache_misses",
    "spm_packets",
    "spm_packets_in",
    "ack_packets",
    "ack_packets_in",
)
_read = attrgetter(*SESSION_COUNTERS)
K = TypeVar("K", bound=Hashable)


def counts_of(counters: Counters) -> dict[str, int]:
    """Return the session counters of a core with one session, without zeros."""
    return _named(_read(counters))


def _named(values: tuple[int, ...] | list[int]) -> dict[str, int]:
    return {name: value for name, value in zip(SESSION_COUNTERS, values, strict=True) if value}


class SessionCounts(Generic[K]):
    """Shares of sessions in one core's counters. Callers bound its size by `forget`."""

    def __init__(self, counters: Counters) -> None:
        self._counters = counters
        self._shares: dict[K, list[int]] = {}
        self._owner: list[int] | None = None
        self._marks: tuple[int, ...] = _read(counters)

    def turn(self, key: K) -> None:
        """Give the turn to a session: further counts belong to that session."""
        self._credit_owner()
        self._owner = self._shares.setdefault(key, [0] * len(SESSION_COUNTERS))

    def forget(self, key: K) -> None:
        """Forget a session. Its counts stay in the core's counters."""
        self._credit_owner()
        if self._shares.pop(key, None) is self._owner:
            self._owner = None

    def counts(self, key: K) -> dict[str, int]:
        """Return the counts of a session so far, without zeros."""
        self._credit_owner()
        return _named(self._shares.get(key, [0] * len(SESSION_COUNTERS)))

    def _credit_owner(self) -> None:
        values = _read(self._counters)
        owner = self._owner
        if owner is not None:
            owner[:] = [had + now - was for had, now, was in zip(owner, values, self._marks, strict=True)]
        self._marks = values
