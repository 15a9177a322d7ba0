"""Packets that the kernel drops from the sockets of a segment: for lack of room, or because their sender is not listed.

The kernel has one number of drops for each socket. A filter is attached only after many refused packets, so the number
means lack of room before that. Afterwards a read tells how full the queue is. Drops between two reads count as refused
if the queue was less than half full at both: it was not full in between, because nobody else takes packets out of it.
"""

from __future__ import annotations

import socket
import struct

from pgm.core.counters import Counters
from pgm.net.sockets.inputs import Input
from pgm.net.sockets.open import SO_MEMINFO, SO_RXQ_OVFL
from pgm.net.sockets.packet_filter import SenderLists, attach, detach
from pgm.wire.formats import Nla

_MASK = 0xFFFFFFFF
_NEVER = 1 << 63
_MEMINFO = struct.Struct("=9I")  # of linux/sock_diag.h: octets in the queue, its limit, and last the drops


class SocketDrops:
    """Drops of each socket, and its kernel filter."""

    def __init__(self, own: Nla, lists: SenderLists, after_packets: int) -> None:
        """Attach filters after so many refused packets; 0 attaches none."""
        self._after_packets = after_packets
        self._program = lists.program(own) if after_packets else None
        # Refused packets from which on reads call `watch`: none but the drops' own number if 0.
        self.watch_from = _NEVER if self._program is None else after_packets
        self._totals: dict[Input, int] = {}
        self._was_full: dict[
            Input, bool
        ] = {}  # by socket with a filter: whether its queue was half full at the last read

    def permit(self, own: Nla, lists: SenderLists) -> None:
        """Take other lists. Filters are attached again after as many refused packets as at first."""
        for sock in list(self._was_full):
            if isinstance(sock, socket.socket):
                self.release(sock)
        if self._after_packets:
            self._program = lists.program(own)
            self.watch_from = _NEVER if self._program is None else self._after_packets

    def more(self, sock: Input, total: int) -> int:
        """Return the drops of a socket since the last call, by their number so far."""
        more = (total - self._totals.get(sock, 0)) & _MASK
        if more > _MASK >> 1:  # the number came with a packet older than the newest number
            return 0
        self._totals[sock] = total
        return more

    def watch(self, sock: Input, counters: Counters, *, is_shared: bool) -> None:
        """Attach the filter to a socket, or count what the filter has dropped. Call before a read.

        A socket of several processes has no filter, because another process may permit more.
        """
        if not isinstance(sock, socket.socket):
            return
        if is_shared:
            self.release(sock)
        elif sock in self._was_full:
            more, is_full = self._sample(sock)
            if is_full or self._was_full[sock]:
                counters.socket_drops += more
            else:
                counters.kernel_refused_packets += more
            self._was_full[sock] = is_full
        elif self._program is not None and attach(sock, self._program):
            self.watch_from = 0
            more, self._was_full[sock] = self._sample(sock)
            counters.socket_drops += more
            sock.setsockopt(socket.SOL_SOCKET, SO_RXQ_OVFL, 0)
        else:
            self._program, self.watch_from = None, 0 if self._was_full else _NEVER

    def _sample(self, sock: socket.socket) -> tuple[int, bool]:
        """Return the drops of a socket since the last call, and whether its queue is half full."""
        memory = _MEMINFO.unpack(sock.getsockopt(socket.SOL_SOCKET, SO_MEMINFO, _MEMINFO.size))
        return self.more(sock, memory[-1]), 2 * memory[0] >= memory[1]

    def release(self, sock: socket.socket) -> None:
        """Let packets of all senders pass again."""
        if self._was_full.pop(sock, None) is not None:
            detach(sock)
            sock.setsockopt(socket.SOL_SOCKET, SO_RXQ_OVFL, 1)
