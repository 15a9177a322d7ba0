"""Reaction of a receiver to its own excessive NAKs, which `pgm.core.pacing.nak_monitor` defines as for children."""

from __future__ import annotations

from collections.abc import Iterable

from pgm.core.effects import NOTHING, Effects, Notice
from pgm.core.pacing.nak_monitor import ExcessiveNakMonitor
from pgm.core.pacing.token_bucket import TokenBucket, unlimited
from pgm.core.recovery.missing_range import MissingRange
from pgm.core.recovery.recovery import Recovery
from pgm.parameters import Parameters
from pgm.units import NEVER, SECOND


class NakSelfLimit:
    """Limit on a receiver's own excessive NAKs by `excess_nak_policy`: a notice, a lower rate, or the session's end."""

    def __init__(self, name: str, recovery: Recovery, parameters: Parameters) -> None:
        self._name = name
        self._recovery = recovery
        self._parameters = parameters
        self._monitor = ExcessiveNakMonitor(parameters, 0, 0)
        self._has_begun = False
        self.deadline_ns = NEVER  # when the excessive NAKs may be over

    def begin(self, lead: int, now_ns: int) -> None:
        """Start to count with the first NAK; later calls have no effect."""
        if not self._has_begun:
            self._has_begun, self._monitor = True, ExcessiveNakMonitor(self._parameters, lead, now_ns)

    @property
    def wants_close(self) -> bool:
        """Return whether the session must end."""
        return self._monitor.is_excessive and self._parameters.excess_nak_policy == "close"

    def asked(self, ranges: Iterable[MissingRange], lead: int, now_ns: int) -> Effects:
        """Count requested sqns; no ranges check the time alone. Return a notice when excessive NAKs begin or end.

        A repeat of a NAK that the parent left unanswered does not count: such a parent is dead or slow.
        """
        monitor = self._monitor
        counted = [one for one in ranges if monitor.is_excessive or not one.unanswered]
        newest = max([one.end for one in counted], default=0) - 1
        has_changed = monitor.asked(sum([one.count for one in counted]), newest, lead, now_ns)
        self.deadline_ns = monitor.ends_ns if monitor.is_excessive else NEVER
        if not has_changed:
            return NOTHING
        policy = self._parameters.excess_nak_policy
        if not monitor.is_excessive:
            self._recovery.admission.limit_rate(unlimited())
            return (Notice("excess-naks-over", f"{self._name}: this receiver sends no more excessive NAKs"),)
        if policy == "lower":
            rate = self._parameters.excess_nak_sqn_rte
            one_sqn_ns = -(-SECOND // rate)  # a bucket must hold at least one sqn
            bucket = TokenBucket(rate, max(self._parameters.brake_burst_ivl, one_sqn_ns))
            self._recovery.admission.limit_rate(bucket)
        return (Notice("excess-naks", f"{self._name}: this receiver sends excessive NAKs ({policy})"),)
