"""The short way out of a source: one message, one plain packet, while nothing else is due.

What `SourceCore.submit` and `SourceCore.handle_deadline` do for whatever comes, in a fraction of their calls. Before the
packet is on its way there is only what it is made of; what has to be noted, and whether the next may follow, comes behind.
"""

from __future__ import annotations

from pgm.core.counters import Counters
from pgm.core.pacing.adaptive_rate import AdaptiveRate
from pgm.core.pacing.pacer import Pacer
from pgm.core.source.spm_schedule import SpmSchedule
from pgm.core.window.transmit_window import Payload, TransmitWindow
from pgm.units import NEVER


class ShortSend:
    """Window, rate, counters and heartbeats of a source that sends data by rate and window alone."""

    def __init__(
        self, window: TransmitWindow, pacer: Pacer, yielding: AdaptiveRate, schedule: SpmSchedule, counters: Counters
    ) -> None:
        self._window = window
        self._pacer = pacer
        self._adaptive_rate = yielding
        self._schedule = schedule
        self._counters = counters
        self._elapsed_ns = window.strategy.elapsed_ns
        # When the next may follow the last as it is, if nothing but that happened since: room for it was found already.
        self.next_at_ns = NEVER

    def first(self, payload: Payload, now_ns: int) -> bytes | None:
        """Take a message in and give its packet; None, and nothing was taken, where rate or window want the long way."""
        if self._pacer.packet_ready_at > now_ns or not self._window.has_room_alone(payload, now_ns):
            return None
        return self._window.number_alone(payload)

    def sent(self, packet: bytes, now_ns: int) -> None:
        """Note what was given, before anything else happens."""
        octets, counters = len(packet), self._counters
        has_room = self._window.keep_alone(packet, now_ns)
        ready_at_ns = self._pacer.packet_sent(octets, now_ns)
        counters.odata_packets += 1
        counters.odata_octets += octets
        self._adaptive_rate.sent(1, octets)
        self._schedule.data_sent(now_ns, self._elapsed_ns(now_ns))
        self.next_at_ns = ready_at_ns if has_room else NEVER
