"""Monitor of excessive NAKs, at receivers and at parents.

Receivers monitor themselves, and parents monitor their children. An asker's NAKs are excessive if three conditions hold
for an `excess_nak_check_ivl`:

- NAKs came in every `excess_nak_window_ivl`;
- they requested at least `excess_nak_share` of the sqns sent in each window, so that one long gap is not excessive;
- they requested at least `excess_nak_min_sqns` in all.

NAKs are no longer excessive after one window without a NAK, or after a check with fewer sqns than the limits. While NAKs
are excessive, the limit is at most half of the small budget of such askers (`excess_nak_sqn_rte`).
"""

from __future__ import annotations

from pgm.parameters import Parameters
from pgm.units import SECOND


class ExcessiveNakMonitor:
    """Monitor of one asker. Time advances only in calls, so an asker without NAKs costs nothing."""

    def __init__(self, parameters: Parameters, lead: int, now_ns: int) -> None:
        self._parameters = parameters
        # An asker that uses up its small budget still has excessive NAKs, so the state ends below half of the budget.
        self._calm = parameters.excess_nak_sqn_rte * parameters.excess_nak_check_ivl / SECOND / 2
        self.is_excessive = False
        self.backlog_end = lead + 1
        self._begin(lead, now_ns)

    def _begin(self, lead: int, now_ns: int) -> None:
        self._since_ns = now_ns
        self.ends_ns = now_ns + self._parameters.excess_nak_window_ivl
        self._window_lead = lead
        self._asked = 0  # sqns in this window
        self._total = 0  # sqns in the earlier windows of this check

    def asked(self, sqns: int, newest: int, lead: int, now_ns: int) -> bool:
        """Note a NAK for `sqns` sqns, the last of them `newest`. Return whether `is_excessive` has changed.

        Packets below `backlog_end` do not count while NAKs are not excessive. They were sent before the first NAK, or
        before a quiet window ended. An asker requests such a backlog after an outage, or when its former parent is dead.
        """
        has_changed = self.look(lead, now_ns)
        if self.is_excessive or newest >= self.backlog_end:
            self._asked += sqns
        return has_changed

    def look(self, lead: int, now_ns: int) -> bool:
        """End a window that is over. Return whether `is_excessive` has changed. `lead` is the newest sqn sent."""
        if now_ns < self.ends_ns:
            return False
        was_excessive = self.is_excessive
        window_ns = self._parameters.excess_nak_window_ivl
        if not self._asked or now_ns >= self.ends_ns + window_ns:
            self._begin(lead, now_ns)
            self.backlog_end = lead + 1
            self.is_excessive = False
            return was_excessive
        least_asked = self._parameters.excess_nak_share * max(0, lead - self._window_lead)
        if not self.is_excessive and self._asked < least_asked:
            self._begin(lead, self.ends_ns)
            return False
        self._total += self._asked
        self._window_lead, self._asked = lead, 0
        if self.ends_ns - self._since_ns >= self._parameters.excess_nak_check_ivl:
            least = self._parameters.excess_nak_min_sqns
            self.is_excessive = self._total >= (min(least, self._calm) if self.is_excessive else least)
            ended_ns = self.ends_ns
            self._begin(lead, ended_ns)
        else:
            self.ends_ns += window_ns
        return self.is_excessive is not was_excessive
