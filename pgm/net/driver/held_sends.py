"""Data that links refused, in the order of its sends, for drivers without tasks."""

from __future__ import annotations

import socket
from collections import deque
from collections.abc import Sequence

from pgm.core.effects import Send
from pgm.net.link.link import Link, WouldBlock


class HeldSends:
    """Queue of refused data. It holds the data of one call to the core at most, and a repair."""

    def __init__(self, links: Sequence[Link]) -> None:
        self._links = links
        self.queue: deque[tuple[Send, int]] = deque()  # each with the octet to continue from

    def send(self, send: Send) -> socket.socket | None:
        """Send data behind all held data. Return the socket that refused it, or None."""
        if self.queue:
            self.queue.append((send, 0))
            return None
        try:
            self._links[send.segment.index].send(send)
        except WouldBlock as blocked:
            self.queue.append((send, blocked.at))
            return blocked.sock
        return None

    def send_held(self) -> socket.socket | None:
        """Send held data as far as links take it. Return the socket that refused more, or None if nothing is left."""
        while self.queue:
            send, at = self.queue[0]
            try:
                self._links[send.segment.index].send(send, at)
            except WouldBlock as blocked:
                self.queue[0] = send, blocked.at
                return blocked.sock
            self.queue.popleft()
        return None
