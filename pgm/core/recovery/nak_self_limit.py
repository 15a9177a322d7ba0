"""Who asks for repairs all the time: noticed by the receiver itself, and by whoever it asks (Distributor's nagging monitor).

An asker nags when it has asked in every `nagging_window_ivl` of a `nagging_check_ivl`, for `nagging_max_sqns` in all or more,
and for more than `nagging_share` of what was sent meanwhile. One window without a request ends it, and so does a check that
finds less, or half of the small budget that who nags is given.
"""

from __future__ import annotations

from pgm.core.effects import NOTHING, Effects, Notice
from pgm.core.pacing.token_bucket import Bucket
from pgm.core.recovery.recovery import Recovery
from pgm.parameters import Parameters
from pgm.units import NEVER, SECOND


class NagMonitor:
    """Counts what one asker asks for. Time runs only while it is called, so one that is quiet costs nothing."""

    def __init__(self, parameters: Parameters, lead: int, now_ns: int) -> None:
        self._parameters = parameters
        # Who has only as much as its small budget is not calm yet: half of that is.
        self._calm = parameters.crying_sqn_rte * parameters.nagging_check_ivl / SECOND / 2
        self.is_nagging = False
        self._begin(lead, now_ns)

    def _begin(self, lead: int, now_ns: int) -> None:
        self._since_ns = now_ns
        self.ends_ns = now_ns + self._parameters.nagging_window_ivl
        self._lead = lead
        self._asked = 0  # sqns, in this window
        self._total = 0  # in those before it

    def asked(self, sqns: int, lead: int, now_ns: int) -> bool:
        """Note that it asked for so many sqns; returns whether `is_nagging` has changed."""
        has_changed = self.look(lead, now_ns)
        self._asked += sqns
        return has_changed

    def look(self, lead: int, now_ns: int) -> bool:
        """End a window that is over. `lead` is the newest sqn sent. Returns whether `is_nagging` has changed."""
        if now_ns < self.ends_ns:
            return False
        was_nagging = self.is_nagging
        window_ns = self._parameters.nagging_window_ivl
        if not self._asked or now_ns >= self.ends_ns + window_ns:
            self._begin(lead, now_ns)
            self.is_nagging = False
            return was_nagging
        self._total += self._asked
        self._asked = 0
        if self.ends_ns - self._since_ns >= self._parameters.nagging_check_ivl:
            share = self._parameters.nagging_share * max(0, lead - self._lead)
            least = max(self._parameters.nagging_max_sqns, share)
            if self.is_nagging:
                least = min(least, self._calm)
            self.is_nagging = self._total >= least
            ended_ns = self.ends_ns
            self._begin(lead, ended_ns)
        else:
            self.ends_ns += window_ns
        return self.is_nagging is not was_nagging


class Restraint:
    """What a receiver does about its own nagging: says so, and goes on, asks for less, or ends, as `nagging_policy` says."""

    def __init__(self, name: str, recovery: Recovery, parameters: Parameters, lead: int, now_ns: int) -> None:
        self._name = name
        self._recovery = recovery
        self._parameters = parameters
        self._monitor = NagMonitor(parameters, lead, now_ns)
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
            self._recovery.budget = Bucket(rate, max(self._parameters.brake_burst_ivl, one_ns))
        return (Notice("nagging", f"{self._name}: this receiver asks for repairs all the time ({policy})"),)
