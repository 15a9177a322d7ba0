"""Fast paths for one message in one plain packet: a lane from a core to a socket, and one from a socket to the application.

Each lane asks the core first, moves the packet, and leaves the bookkeeping for later: the `commit` of a source runs
while the packet is on its way, the `commit` of a receiver while the application has the message.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

from pgm.core.effects import alone
from pgm.core.receiver.receiver import ReceiverCore
from pgm.core.source.source import SourceCore
from pgm.core.window.transmit_window import Payload
from pgm.messages.arguments import require_octets
from pgm.net.driver.effects import EffectPerformer
from pgm.net.endpoint.queue_item import QueueItem
from pgm.net.endpoint.reassembly import SessionReassemblers
from pgm.net.framing.items import Message
from pgm.wire.formats import DATA_HEADER_OCTETS, Nla


class SinglePacketSender:
    """Lane of a source: from the core to the socket, past the driver's work."""

    def __init__(self, core: SourceCore, driver: EffectPerformer) -> None:
        self._lane = core.single
        self._window = core.window
        self._driver = driver
        self._segment = core.setup.segment
        self._link = driver.links[self._segment.index]
        self._expect_by = driver.expect_by

    def send(self, payload: Payload, now_ns: int) -> int | None:
        """Send a message now. Return its sqn, or None for the general path. No data may be held up."""
        lane, driver = self._lane, self._driver
        try:
            packet = lane.begin(payload, now_ns)
        except TypeError:
            require_octets((payload,))
            raise
        if packet is None:
            return None
        try:
            if driver.sees_singles or not self._link.send_packet(packet):
                driver.send_now(alone(self._segment, packet))
        finally:  # also if a signal ends the call: data with its sqn can be repaired
            lane.commit(packet, now_ns)
        self._expect_by(lane.next_event_ns)
        return self._window.lead


class SinglePacketReceiver:
    """Lane from the socket to the application, past effects and queue; `message` precedes the then empty queue."""

    def __init__(
        self, core: ReceiverCore, queue: deque[QueueItem], reassemblers: SessionReassemblers, *, is_open: bool
    ) -> None:
        self._core = core
        self._queue = queue
        self._reassemblers = reassemblers
        self._is_open = is_open
        self._spare: Message | None = None  # made in advance, to become `message`
        self.message: Message | None = None

    def take(self, packet: bytes, peer: Nla) -> bool:
        """Take a packet. Return False if the general path must do it."""
        if self._queue or self.message is not None or not self._is_open:
            return False
        if self._reassemblers.may_be_assembling and not self._reassemblers.is_between():
            return False
        key = self._core.single.begin(packet, peer, time.monotonic_ns())
        if key is None:
            return False
        message = self._spare
        if message is None:
            self.message = Message(packet[DATA_HEADER_OCTETS:], key[1], key[0])
        else:
            message.tsi, message.sqn = key
            message.payload = packet[DATA_HEADER_OCTETS:]
            self.message, self._spare = message, None
        return True

    def poll(self, poll: Callable[[], None]) -> Message | None:
        """Return the message that one call of `poll` brings on this lane; None if the general path must go on."""
        self._core.single.commit()
        if self._spare is None:
            self._spare = Message(b"", 0, b"")
        if self._queue:
            return None
        poll()
        message, self.message = self.message, None
        return message

    def prepare(self) -> None:
        """Note the last packet in the core, and make the next message, before the application waits."""
        self._core.single.commit()
        if self._spare is None:
            self._spare = Message(b"", 0, b"")
