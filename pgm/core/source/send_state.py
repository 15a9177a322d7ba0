"""Parts of a source that change with each packet that is sent."""

from __future__ import annotations

import attrs

from pgm.core.pacing.adaptive_rate import AdaptiveRate
from pgm.core.pacing.pacer import Pacer
from pgm.core.source.spm_schedule import SpmSchedule
from pgm.core.window.transmit_window import TransmitWindow


@attrs.define(eq=False)
class SendState:
    """Window, rate and SPM timer of a source, for data, repairs and single packets."""

    window: TransmitWindow
    pacer: Pacer
    adaptive_rate: AdaptiveRate
    schedule: SpmSchedule
    repair_share: float
    blocked_until_ns: int = 0  # a full window has no room before this; NEVER while acks must come first
    repaired_lead: int = -1  # the lead when repairs were last sent along with NCFs
    repairs_ahead: float = 0.0  # octets of repairs beyond their share of what was sent, one train of repairs at most

    def has_data(self, now_ns: int) -> bool:
        """Return whether data is about to be sent."""
        is_open = self.window.has_unsent and now_ns >= self.blocked_until_ns
        return is_open and self.pacer.data_ready_at(self.window.next_octets) <= now_ns

    def is_data_first(self, now_ns: int) -> bool:
        """Return whether data goes before repairs: data is about to be sent, and repairs have had their share.

        A driver that runs late sends less than the rate. The rate of repairs alone would then leave nothing for data.
        """
        return self.repairs_ahead > 0 and self.has_data(now_ns)

    def data_sent(self, octets: int, packets: int, now_ns: int) -> None:
        """Charge data."""
        self.pacer.data_sent(octets, now_ns, packets)
        behind = (1 - self.repair_share) * self.pacer.repair_octets
        self.repairs_ahead = max(-behind, self.repairs_ahead - self.repair_share * octets)

    def train_sent(self, now_ns: int) -> None:
        """Restart heartbeats, because data or repairs were sent."""
        self.schedule.data_sent(now_ns, self.window.strategy.elapsed_ns(now_ns))

    def repair_sent(self, octets: int, packets: int, now_ns: int) -> None:
        """Charge repairs."""
        self.pacer.repair_sent(octets, now_ns, packets)
        self.count_repairs(octets)
        self.adaptive_rate.repaired(packets, octets)

    def count_repairs(self, octets: int) -> None:
        """Count repairs against the share that data leaves them."""
        beyond = 1 - self.repair_share
        most = beyond * max(octets, self.pacer.repair_octets)
        self.repairs_ahead = min(most, self.repairs_ahead + beyond * octets)
