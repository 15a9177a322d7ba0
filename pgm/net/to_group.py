"""Sending to a group by a socket that is connected to it: nothing goes along with a call but what is sent.

The kernel reads no address then and looks for no route, and cuts all trains by the size that was set last.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence

from pgm.net.sockets import SOL_UDP, UDP_SEGMENT
from pgm.wire.train import Octets


class ToGroup:
    """A connected socket, and by which size the kernel cuts what is sent by it; it takes single packets of that size as they are."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self._send, self._sendmsg = sock.send, sock.sendmsg
        self._stride = 0  # it cuts nothing

    def cut_by(self, stride: int) -> None:
        """Have what is sent from now on cut into packets of so many octets, 0 for not at all."""
        if stride != self._stride:
            self.sock.setsockopt(SOL_UDP, UDP_SEGMENT, stride)
            self._stride = stride

    def send(self, pieces: Sequence[bytes | memoryview | Octets]) -> None:
        """Send pieces of memory as one. Raises OSError."""
        if len(pieces) == 1:
            self._send(pieces[0])  # type: ignore[arg-type]
        else:
            self._sendmsg(pieces)  # type: ignore[arg-type]

    def send_alone(self, packet: bytes) -> bool:
        """Send one packet; says whether it went."""
        try:
            if 0 < self._stride < len(packet):
                self.cut_by(0)
            self._send(packet)
        except OSError:
            return False
        return True
