"""Fast path of a source for one message in one plain packet.

The fast path is open while nothing else is due. The fast path has the effect of `SourceCore.submit` and
`SourceCore.handle_deadline` in a fraction of their calls. Only the building of the packet comes before sending.
Bookkeeping, and the check whether the next packet may follow, come after it.
"""

from __future__ import annotations

from pgm.core.session_context import SessionContext
from pgm.core.source.send_state import SendState
from pgm.core.window.transmit_window import Payload
from pgm.units import NEVER


class ShortSend:
    """Sender of single packets for a source that only rate and window limit.

    The sender updates window, rate, counters and heartbeats.
    """

    def __init__(self, context: SessionContext, sending: SendState) -> None:
        self._window = sending.window
        self._pacer = sending.pacer
        self._adaptive_rate = sending.adaptive_rate
        self._schedule = sending.schedule
        self._counters = context.counters
        self._elapsed_ns = sending.window.strategy.elapsed_ns
        # When the next packet may follow the last, if nothing else happened since: room for it is already confirmed.
        self.next_at_ns = NEVER

    def first(self, payload: Payload, now_ns: int) -> bytes | None:
        """Take a message and return its packet.

        Return None and take nothing if the rate or the window needs the general path.
        """
        if self._pacer.packet_ready_at > now_ns or not self._window.has_room_alone(payload, now_ns):
            return None
        return self._window.number_alone(payload)

    def sent(self, packet: bytes, now_ns: int) -> None:
        """Note the packet that was sent, before anything else happens."""
        octets, counters = len(packet), self._counters
        has_room = self._window.keep_alone(packet, now_ns)
        ready_at_ns = self._pacer.packet_sent(octets, now_ns)
        counters.odata_packets += 1
        counters.odata_octets += octets
        self._adaptive_rate.sent(1, octets)
        self._schedule.data_sent(now_ns, self._elapsed_ns(now_ns))
        self.next_at_ns = ready_at_ns if has_room else NEVER
