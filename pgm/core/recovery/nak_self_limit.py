"""Who asks for repairs all the time: noticed by the receiver itself, and by whoever it asks (Distributor's nagging monitor).

An asker nags when it has asked in every `nagging_window_ivl` of a `nagging_check_ivl`, for `nagging_max_sqns` in all or more,
and for more than `nagging_share` of what was sent meanwhile. One window without a request ends it, and so does a check that
finds less, or half of the small budget that who nags is given.
"""

from __future__ import annotations

from pgm.core.effects import NOTHING, Effects, Notice
from pgm.core.pacing.nak_monitor import ExcessiveNakMonitor
from pgm.core.pacing.token_bucket import TokenBucket
from pgm.core.recovery.recovery import Recovery
from pgm.parameters import Parameters
from pgm.units import NEVER, SECOND


class NakSelfLimit:
    """What a receiver does about its own nagging: says so, and goes on, asks for less, or ends, as `nagging_policy` says."""

    def __init__(self, name: str, recovery: Recovery, parameters: Parameters, lead: int, now_ns: int) -> None:
        self._name = name
        self._recovery = recovery
        self._parameters = parameters
        self._monitor = ExcessiveNakMonitor(parameters, lead, now_ns)
        self.deadline_ns = NEVER  # when it may be over

    @property
    def wants_close(self) -> bool:
        """Whether the session is to be ended."""
        return self._monitor.is_nagging and self._parameters.nagging_policy == "close"

    def asked(self, sqns: int, lead: int, now_ns: int) -> Effects:
        """Note what was asked for, 0 to look at the time alone; says when nagging begins and ends."""
        monitor = self._monitor
        has_changed = monitor.asked(sqns, lead, now_ns) if sqns else monitor.look(lead, now_ns)
        self.deadline_ns = monitor.ends_ns if monitor.is_nagging else NEVER
        if not has_changed:
            return NOTHING
        policy = self._parameters.nagging_policy
        if not monitor.is_nagging:
            self._recovery.budget = None
            return (Notice("nagging-over", f"{self._name}: this receiver asks no more than others"),)
        if policy == "lower":
            rate = self._parameters.crying_sqn_rte
            one_ns = -(-SECOND // rate)  # the least that a bucket must hold
            self._recovery.budget = TokenBucket(rate, max(self._parameters.brake_burst_ivl, one_ns))
        return (Notice("nagging", f"{self._name}: this receiver asks for repairs all the time ({policy})"),)
