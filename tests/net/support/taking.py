"""Messages by a receiver in the calling thread."""

from __future__ import annotations

from pgm import Message
from pgm.net.endpoint.busy_poll import BusyPollReceiver

PATIENCE_S = 20.0


def payload_of(receiver: BusyPollReceiver) -> bytes:
    """Return the payload of the next message."""
    while True:
        item = receiver.recv(PATIENCE_S)
        assert item is not None
        if isinstance(item, Message):
            return item.payload
