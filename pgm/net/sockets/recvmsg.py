"""One datagram by a call that mostly finds nothing, as who spins makes it.

Where nothing waits, Python's own `recvmsg` raises, which costs more than the call itself, and where something does, it makes
objects of what is the same each time: who sent it, and that nothing came beside it. Here that is octets that are compared.
"""

from __future__ import annotations

import ctypes
import socket
from collections.abc import Callable

from pgm.core.structures.arena import ROOM
from pgm.net.sockets.msghdr import CONTROL_OCTETS, NAME_OCTETS, ControlMessage, IoVec, MsgHdr, ancillary_of, host_of
from pgm.wire.formats import Nla

_WORD = 8  # octets that what is compared is a multiple of
_NAME_AT = ctypes.sizeof(MsgHdr)
_CONTROL_AT = -(-(_NAME_AT + NAME_OCTETS) // _WORD) * _WORD
_TOLD_OCTETS = -(-(_CONTROL_AT + CONTROL_OCTETS) // _WORD) * _WORD  # the header, the sender, and what comes beside
_VECTOR_AT = _TOLD_OCTETS
# Which of these words says how much room there is for that, and after a call that found something, how much came: it is
# set again before the next.
CONTROL_WORD = MsgHdr.control_length.offset // ctypes.sizeof(ctypes.c_void_p)
_DATA_AT = _VECTOR_AT + ctypes.sizeof(IoVec)

# Of a library that keeps hold of the interpreter: a call that never waits is shorter than letting go of it and back.
receive_message: Callable[[int, object, int], int] = ctypes.PyDLL(None, use_errno=True).recvmsg


class Recvmsg:
    """Room for a datagram of one socket, and for what is told of it. What a call gave is good until the next."""

    __slots__ = ("_header", "data", "header", "number", "peer", "told", "usual")

    def __init__(self, sock: socket.socket) -> None:
        memory = bytearray(_DATA_AT + ROOM)
        at = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        vector, header = IoVec.from_buffer(memory, _VECTOR_AT), MsgHdr.from_buffer(memory)
        vector.base, vector.length = at + _DATA_AT, ROOM
        header.name, header.name_length, header.control = at + _NAME_AT, NAME_OCTETS, at + _CONTROL_AT
        header.iov, header.iov_length = at + _VECTOR_AT, 1
        self._header = header
        self.number = sock.fileno()
        self.header = ctypes.byref(header)  # what the call takes
        self.data = memoryview(memory)[_DATA_AT:]
        # All that the last call told of a datagram, and what that was when it was one packet of `peer` and told nothing new.
        self.told = memoryview(memory)[:_TOLD_OCTETS].cast("P")
        self.usual = memoryview(b"")
        self.peer: Nla = ""
        self.told[CONTROL_WORD] = CONTROL_OCTETS

    def beside(self) -> tuple[list[ControlMessage], int, tuple[str, int]]:
        """What came beside a datagram, its flags, and its sender: as Python's `recvmsg` gives it."""
        told, header = self.told.tobytes(), self._header
        control = told[_CONTROL_AT : _CONTROL_AT + header.control_length]
        return ancillary_of(control), header.flags, host_of(told[_NAME_AT : _NAME_AT + NAME_OCTETS])

    def expect(self, peer: Nla) -> None:
        """Say that a datagram of which just the same is told is one packet of `peer`, and that there is no more to know of it."""
        self.peer, self.usual = peer, memoryview(self.told.tobytes()).cast("P")
