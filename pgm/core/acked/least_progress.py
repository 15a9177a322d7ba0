"""Least progress of a member that holds up its source.

A member holds up the source while it lacks most of a window. Such a member must take a whole window within a given time,
or `ack_least_share` of what the source sends in that time while no member holds it up, whichever is less. The window
limits members of a source that is faster than any application, the share those of a slow stream with a large window.
"""

from __future__ import annotations

from pgm.core.acked.ack_terms import AckTerms
from pgm.units import SECOND

_FULL = 8  # a member that lacks all but an eighth of a window holds up the source
_FADE_BY = 64  # a slower interval lowers the rate by at most 1/64


class LeastProgress:
    """Limit on the progress of members, and the rate at which a source sends while no member holds it up."""

    def __init__(self, share: float) -> None:
        self._share = share
        self._rate = 0.0  # packets a second
        self._lead = -1
        self._noted_ns = 0
        self._was_free = False

    def holds(self, acked: int, lead: int, terms: AckTerms) -> bool:
        """Return whether a member with this ack holds up the source."""
        return lead - acked >= max(1, terms.window - terms.window // _FULL)

    def note(self, low: int, lead: int, terms: AckTerms, now_ns: int) -> None:
        """Note the newest sqn sent, and the sqn that all members have. Measure the rate while no member holds it up."""
        is_free = not self.holds(low, lead, terms)
        elapsed_ns = now_ns - self._noted_ns
        if is_free and self._was_free and elapsed_ns < terms.keepalive:
            return
        if self._was_free and lead > self._lead and elapsed_ns > 0:
            rate = (lead - self._lead) * SECOND / elapsed_ns
            self._rate = max(rate, self._rate - self._rate / _FADE_BY)
        self._was_free, self._lead, self._noted_ns = is_free, lead, now_ns

    def least(self, ivl_ns: int, terms: AckTerms) -> int:
        """Return how many packets a member that holds up the source must take in an interval."""
        return int(min(terms.window, self._share * self._rate * ivl_ns / SECOND))
