"""Sending to a group by a socket that is connected to it: a call carries only octets.

The kernel then parses no address, and cuts trains by the size that was set last. All data without control messages goes
by this one socket. Data on two sockets uses two queues of a network card with several, and does not stay in order.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence

from pgm.net.link.reader import BUSY
from pgm.net.sockets.open import SOL_UDP, UDP_SEGMENT
from pgm.wire.train import Octets


class GroupSender:
    """Connected socket with a segment size for the kernel. Packets up to that size leave unchanged."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self._send, self._sendmsg = sock.send, sock.sendmsg
        self._stride = 0  # 0: no segmentation

    def send(self, pieces: Sequence[bytes | memoryview | Octets], stride: int) -> None:
        """Send pieces of memory as one: a train if they exceed `stride` octets, else a packet. Raises OSError."""
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
            # The call may report an ICMP answer to an earlier packet instead of sending this one. Some kernels also
            # refuse a single packet if the segment size exceeds the current MTU.
            if not is_train:
                self._cut_by(0)
            self._put(pieces)

    def send_packet(self, packet: bytes) -> bool:
        """Send one packet. Return whether it went."""
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
        """Let the kernel cut later sends into packets of `stride` octets; 0 for no segmentation."""
        if stride != self._stride:
            self._stride = 1  # as if every size were cut: a signal's handler may raise before the new size is recorded
            self.sock.setsockopt(SOL_UDP, UDP_SEGMENT, stride)
            self._stride = stride
