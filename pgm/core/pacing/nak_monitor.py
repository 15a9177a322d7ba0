"""Excessive NAKs: the monitor that both ends use."""

from __future__ import annotations

from pgm.parameters import Parameters
from pgm.units import SECOND


class ExcessiveNakMonitor:
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
