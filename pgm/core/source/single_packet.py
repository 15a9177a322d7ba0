"""Fast path of a source for one message in one plain packet.

The fast path is open while nothing else is due. The fast path has the effect of `SourceCore.submit` and
`SourceCore.handle_deadline` in a fraction of their calls. Only the building of the packet comes before sending.
Bookkeeping, and the check whether the next packet may follow, come after it.
"""

from __future__ import annotations

from collections.abc import Callable

from pgm.core.session_context import SessionContext
from pgm.core.source.nak_answer import NakAnswerer
from pgm.core.source.send_state import SendState
from pgm.core.window.transmit_window import Payload
from pgm.units import NEVER


class SingleSendLane:
    """Lane of single packets for a source limited by rate and window alone, which updates counters and heartbeats."""

    def __init__(
        self,
        context: SessionContext,
        sending: SendState,
        naks: NakAnswerer,
        deadline_ns: Callable[[], int],
        *,
        is_open: bool,
    ) -> None:
        """Make a lane. `deadline_ns` returns the deadline of the core."""
        self._sending = sending
        self._window = sending.window
        self._elapsed_ns = sending.window.strategy.elapsed_ns
        self._counters = context.counters
        self._ncf_sender = naks.ncfs
        self._responder = naks.responder
        self._owes = naks.owes
        self._deadline_ns = deadline_ns
        self._is_open = is_open
        # When the next packet may follow the last, if nothing else happened since: room for it is already confirmed.
        self._next_at_ns = NEVER
        # Nothing is due before this while only single packets are sent. 0: something else happened.
        self.next_event_ns = 0

    def close(self) -> None:
        """Take no more messages."""
        self._is_open, self.next_event_ns = False, 0

    def begin(self, payload: Payload, now_ns: int) -> bytes | None:
        """Take one message and return its packet.

        The caller sends the packet to the group at once, and then calls `commit`. Return None and take nothing if
        something is due before the packet, or if the message needs more than a plain packet. The caller then uses the
        general path: `SourceCore.submit` and `SourceCore.handle_deadline`.
        """
        if self._next_at_ns <= now_ns < self.next_event_ns:
            packet = self._window.number_alone(payload)
            if packet is not None:
                return packet
        sending = self._sending
        due_ns = min(sending.schedule.deadline_ns, self._ncf_sender.deadline_ns, self._responder.deadline_ns)
        if not self._is_open or not sending.blocked_until_ns <= now_ns < due_ns:
            return None
        if sending.pacer.packet_ready_at > now_ns or not self._window.has_room_alone(payload, now_ns, self._owes):
            return None
        return self._window.number_alone(payload)

    def commit(self, packet: bytes, now_ns: int) -> None:
        """Note the packet that `begin` returned, while the packet is on its way."""
        sending, octets, counters = self._sending, len(packet), self._counters
        has_room = self._window.keep_alone(packet, now_ns)
        ready_at_ns = sending.pacer.packet_sent(octets, now_ns)
        counters.odata_packets += 1
        counters.odata_octets += octets
        sending.adaptive_rate.sent(1, octets)
        sending.schedule.data_sent(now_ns, self._elapsed_ns(now_ns))
        self._next_at_ns = ready_at_ns if has_room else NEVER
        if now_ns >= self.next_event_ns and not sending.schedule.is_data_driven:
            self.next_event_ns = min(self._deadline_ns(), self._responder.deadline_ns)
