"""Sending to a group by a socket that is connected to it: nothing goes along with a call but what is sent.

The kernel reads no address then, and cuts all trains by the size that was set last. All that takes nothing else along goes
by this one socket: what goes by two leaves a network card with several queues by two of them, and does not stay in order.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence

from pgm.net.link.reader import BUSY
from pgm.net.sockets.open import SOL_UDP, UDP_SEGMENT
from pgm.wire.train import Octets


class GroupSender:
    """A connected socket, and by which size the kernel cuts what is sent by it; it takes single packets up to that size as they are."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self._send, self._sendmsg = sock.send, sock.sendmsg
        self._stride = 0  # it cuts nothing

    def send(self, pieces: Sequence[bytes | memoryview | Octets], stride: int) -> None:
        """Send pieces of memory as one: a train where they are more than `stride` octets, else a packet. Raises OSError."""
        octets = len(pieces[0]) if len(pieces) == 1 else sum(map(len, pieces))
        is_train = octets > stride
        if is_train:
            self._cut_by(stride)
        elif 0 < self._stride < octets:
            self._cut_by(0)
        try:
            self._put(pieces)
        except OSError as error:
            if error.errno in BUSY:
                raise
            # What answers an earlier packet, by ICMP, is told instead of sending this one. And there are kernels that refuse
            # even a single packet where those that they would cut are larger than the line takes by now.
            if not is_train:
                self._cut_by(0)
            self._put(pieces)

    def send_alone(self, packet: bytes) -> bool:
        """Send one packet; says whether it went."""
        try:
            if 0 < self._stride < len(packet):
                self._cut_by(0)
            self._send(packet)
        except OSError:
            return False
        return True

    def _put(self, pieces: Sequence[bytes | memoryview | Octets]) -> None:
        if len(pieces) == 1:
            self._send(pieces[0])  # type: ignore[arg-type]
        else:
            self._sendmsg(pieces)  # type: ignore[arg-type]

    def _cut_by(self, stride: int) -> None:
        """Have what is sent from now on cut into packets of so many octets, 0 for not at all."""
        if stride != self._stride:
            self._stride = 1  # as if it cut everything: a signal's handler may raise before it is noted what it cuts
            self.sock.setsockopt(SOL_UDP, UDP_SEGMENT, stride)
            self._stride = stride
