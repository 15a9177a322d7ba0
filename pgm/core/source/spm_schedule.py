"""Schedule of SPMs (RFC 5.1.4 - 5.1.6): ambient at a fixed interval, heartbeats after data at doubling intervals."""

from __future__ import annotations

from pgm.parameters import Parameters
from pgm.units import NEVER

_CLOSING_DOUBLINGS = 4  # while closing, the interval stays within 4 x IHB_MIN, so that some FIN arrives


class SpmSchedule:
    """Two independent timers that never stop.

    A window that advances with data drives the ambient timer by data. An ambient SPM is then due when as many octets
    were sent as TXW_MAX_RTE allows in an interval (RFC 16.2).
    """

    def __init__(self, parameters: Parameters, now_ns: int) -> None:
        self._parameters = parameters
        self.is_data_driven = parameters.txw_adv_mode == "data"
        self._elapsed_ns = self._ambient_after_ns = 0  # by the window's clock
        self._ihb_max = parameters.ihb_max
        self._ihb = parameters.ihb_min
        self._ambient_at_ns = now_ns  # the first SPM is sent at once
        self._heartbeat_at_ns = now_ns + self._ihb

    @property
    def deadline_ns(self) -> int:
        """When the next SPM is due."""
        return min(self._ambient_at_ns, self._heartbeat_at_ns)

    def data_sent(self, now_ns: int, elapsed_ns: int = 0) -> None:
        """Restart heartbeats at IHB_MIN after ODATA or RDATA (SRC-23). `elapsed_ns` is of the window's clock."""
        self._elapsed_ns = elapsed_ns
        if self.is_data_driven and elapsed_ns >= self._ambient_after_ns:
            self._ambient_at_ns = min(self._ambient_at_ns, now_ns)
        self._ihb = self._parameters.ihb_min
        self._heartbeat_at_ns = now_ns + self._ihb

    def closing(self, now_ns: int) -> None:
        """Announce the end of the session at once and often."""
        self._ihb_max = min(self._ihb_max, _CLOSING_DOUBLINGS * self._parameters.ihb_min)
        self._ihb = self._parameters.ihb_min
        self._heartbeat_at_ns = now_ns

    def is_due(self, now_ns: int) -> bool:
        """Return whether to send an SPM now, and restart each due timer as if it were sent.

        The heartbeat timer measures the time without data alone (RFC 5.1.6): an ambient SPM between two heartbeats neither
        postpones nor resets it (SRC-24). The interval doubles after a heartbeat was sent.
        """
        is_heartbeat, is_ambient = now_ns >= self._heartbeat_at_ns, now_ns >= self._ambient_at_ns
        if is_heartbeat:
            self._ihb = min(2 * self._ihb, self._ihb_max)
            self._heartbeat_at_ns = now_ns + self._ihb
        if is_ambient and self.is_data_driven:
            self._ambient_at_ns = NEVER
            self._ambient_after_ns = self._elapsed_ns + self._parameters.ambient_spm_ivl
        elif is_ambient:
            self._ambient_at_ns = now_ns + self._parameters.ambient_spm_ivl
        return is_heartbeat or is_ambient
