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
    blocked_until_ns: int = 0  # a full window has no room before this; NEVER while acks must come first
    repaired_lead: int = -1  # the lead when repairs were last sent along with NCFs

    def has_data(self, now_ns: int) -> bool:
        """Return whether data is about to be sent."""
        is_open = self.window.has_unsent and now_ns >= self.blocked_until_ns
        return is_open and self.pacer.data_ready_at(self.window.next_octets) <= now_ns

    def train_sent(self, now_ns: int) -> None:
        """Restart heartbeats, because data or repairs were sent."""
        self.schedule.data_sent(now_ns, self.window.strategy.elapsed_ns(now_ns))

    def repair_sent(self, octets: int, packets: int, now_ns: int) -> None:
        """Charge repairs."""
        self.pacer.repair_sent(octets, now_ns, packets)
        self.adaptive_rate.repaired(packets, octets)
