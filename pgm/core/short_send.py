"""The short way out of a source: one message, one plain packet, while nothing else is due.

What `SourceCore.submit` and `SourceCore.handle_deadline` do for whatever comes, in a fraction of their calls.
"""

from __future__ import annotations

from pgm.core.counters import Counters
from pgm.core.pacer import Pacer
from pgm.core.spm_schedule import SpmSchedule
from pgm.core.transmit_window import Payload, TransmitWindow
from pgm.core.yielding import Yielding


class ShortSend:
    """Window, rate, counters and heartbeats of a source that sends data by rate and window alone."""

    def __init__(
        self, window: TransmitWindow, pacer: Pacer, yielding: Yielding, schedule: SpmSchedule, counters: Counters
    ) -> None:
        self._window = window
        self._pacer = pacer
        self._yielding = yielding
        self._schedule = schedule
        self._counters = counters
        self._elapsed_ns = window.strategy.elapsed_ns

    def send(self, payload: Payload, now_ns: int) -> bytes | None:
        """Take a message in and give its packet; None, and nothing was taken, where rate or window want the long way."""
        pacer = self._pacer
        if pacer.packet_ready_at > now_ns:
            return None
        packet = self._window.send_alone(payload, now_ns)
        if packet is None:
            return None
        octets, counters = len(packet), self._counters
        pacer.packet_sent(octets, now_ns)
        counters.odata_packets += 1
        counters.odata_octets += octets
        self._yielding.sent(1, octets)
        self._schedule.data_sent(now_ns, self._elapsed_ns(now_ns))
        return packet
