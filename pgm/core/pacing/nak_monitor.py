"""Monitor of excessive NAKs, at receivers and at parents.

Receivers monitor themselves, and parents monitor their children. An asker's NAKs are excessive if three conditions hold
for a `nagging_check_ivl`:

- NAKs came in every `nagging_window_ivl`;
- they requested at least `nagging_max_sqns` in all;
- they requested at least `nagging_share` of the sqns sent meanwhile.

NAKs are no longer excessive after one window without a NAK, or after a check with fewer sqns than the limits. While NAKs
are excessive, the limit is at most half of the small budget of such askers (`crying_sqn_rte`).
"""

from __future__ import annotations

from pgm.parameters import Parameters
from pgm.units import SECOND


class ExcessiveNakMonitor:
    """Monitor of one asker.

    Time advances only in calls, so an asker without NAKs costs nothing.
    """

    def __init__(self, parameters: Parameters, lead: int, now_ns: int) -> None:
        self._parameters = parameters
        # An asker that uses up its small budget still has excessive NAKs, so the state ends below half of the budget.
        self._calm = parameters.crying_sqn_rte * parameters.nagging_check_ivl / SECOND / 2
        self.is_nagging = False
        self._begin(lead, now_ns)

    def _begin(self, lead: int, now_ns: int) -> None:
        self._since_ns = now_ns
        self.ends_ns = now_ns + self._parameters.nagging_window_ivl
        self._lead = lead
        self._asked = 0  # sqns in this window
        self._total = 0  # sqns in the earlier windows of this check

    def asked(self, sqns: int, lead: int, now_ns: int) -> bool:
        """Note a NAK for `sqns` sqns. Return whether `is_nagging` has changed."""
        has_changed = self.look(lead, now_ns)
        self._asked += sqns
        return has_changed

    def look(self, lead: int, now_ns: int) -> bool:
        """End a window that is over. Return whether `is_nagging` has changed.

        `lead` is the newest sqn sent.
        """
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
