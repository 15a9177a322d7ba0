"""What each session has of a core's counters, without counting anything twice.

A core does one thing at a time, for one session. So whatever the counters gain between two turns belongs to the session whose
turn it was: a core with one session pays one comparison an event for it, a core with many a reading of the counters when the
turn changes.
"""

from __future__ import annotations

from collections.abc import Hashable
from operator import attrgetter
from typing import Generic, TypeVar

from pgm.core.counters import Counters

# The counters that are kept by session: all that sessions count often, or that say how a stream fares.
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
    """What of a core's counters is kept by session, where all of it is one session's: what is not 0."""
    return _named(_read(counters))


def _named(values: tuple[int, ...] | list[int]) -> dict[str, int]:
    return {name: value for name, value in zip(SESSION_COUNTERS, values, strict=True) if value}


class SessionCounts(Generic[K]):
    """The shares of sessions in one core's counters. Bounded by whoever forgets sessions."""

    def __init__(self, counters: Counters) -> None:
        self._counters = counters
        self._shares: dict[K, list[int]] = {}
        self._owner: list[int] | None = None
        self._marks: tuple[int, ...] = _read(counters)

    def turn(self, key: K) -> None:
        """From now on what is counted belongs to that session."""
        self._settle()
        self._owner = self._shares.setdefault(key, [0] * len(SESSION_COUNTERS))

    def forget(self, key: K) -> None:
        """The session is gone; what it counted stays in the core's counters."""
        self._settle()
        if self._shares.pop(key, None) is self._owner:
            self._owner = None

    def counts(self, key: K) -> dict[str, int]:
        """What a session has counted so far, without what is 0."""
        self._settle()
        return _named(self._shares.get(key, [0] * len(SESSION_COUNTERS)))

    def _settle(self) -> None:
        values = _read(self._counters)
        owner = self._owner
        if owner is not None:
            owner[:] = [had + now - was for had, now, was in zip(owner, values, self._marks, strict=True)]
        self._marks = values
