"""What one session owes to one segment below, or one node of it, and at which rate that leaves."""

from __future__ import annotations

import attrs

from pgm.core.effects import Send
from pgm.core.pacer import Pacer
from pgm.core.responder import Responder
from pgm.units import NEVER


@attrs.frozen
class Line:
    """What one session owes to one segment below, and the rate at which repairs leave there."""

    responder: Responder
    pacers: tuple[Pacer, ...]

    @property
    def ready_ns(self) -> int:
        """When a repair may leave; NEVER when none is owed."""
        due_ns = self.responder.deadline_ns
        if due_ns == NEVER:
            return NEVER
        octets = self.responder.next_octets()
        return max(due_ns, *(pacer.repair_ready_at(octets) for pacer in self.pacers))

    def next_train(self, trail: int, now_ns: int) -> Send | None:
        """Repairs, as many as every limit allows."""
        octets = min(pacer.repair_room(now_ns) for pacer in self.pacers)
        packets = min(pacer.packet_room(now_ns) for pacer in self.pacers)
        send = self.responder.next_train(octets, trail, now_ns, packets)
        if send is not None:
            for pacer in self.pacers:
                pacer.repair_sent(len(send.octets), now_ns, len(send.octets) // send.stride)
        return send
