"""Non-blocking `recvmsg` of one datagram for busy-polling; most calls find an empty socket.

Python's own `recvmsg` raises on an empty socket, which costs more than the call itself. On a datagram it makes objects
of the sender and the control messages, which are equal each time. `Recvmsg` compares them as raw octets instead.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable

from pgm.core.structures.arena import ROOM
from pgm.net.sockets.inputs import Input
from pgm.net.sockets.msghdr import CONTROL_OCTETS, NAME_OCTETS, ControlMessage, IoVec, MsgHdr, ancillary_of, host_of
from pgm.wire.formats import Nla

_WORD = 8  # octets; the compared area is a multiple of a word
_NAME_AT = ctypes.sizeof(MsgHdr)
_CONTROL_AT = -(-(_NAME_AT + NAME_OCTETS) // _WORD) * _WORD
_METADATA_OCTETS = (
    -(-(_CONTROL_AT + CONTROL_OCTETS) // _WORD) * _WORD
)  # the header, the sender, and the control messages
_VECTOR_AT = _METADATA_OCTETS
# Index of the word that holds the control buffer's length. The kernel overwrites it with the length of the control
# messages received, so every call must set it again.
CONTROL_WORD = MsgHdr.control_length.offset // ctypes.sizeof(ctypes.c_void_p)
_DATA_AT = _VECTOR_AT + ctypes.sizeof(IoVec)

# PyDLL keeps the GIL: a call that never blocks is shorter than a release and re-acquisition of the GIL.
receive_message: Callable[[int, object, int], int] = ctypes.PyDLL(None, use_errno=True).recvmsg


class Recvmsg:
    """Buffer for one datagram of a socket and its metadata. The result of a call is valid until the next one."""

    __slots__ = ("_header", "data", "expected_metadata", "header", "metadata", "number", "peer")

    def __init__(self, sock: Input) -> None:
        memory = bytearray(_DATA_AT + ROOM)
        at = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        vector, header = IoVec.from_buffer(memory, _VECTOR_AT), MsgHdr.from_buffer(memory)
        vector.base, vector.length = at + _DATA_AT, ROOM
        header.name, header.name_length, header.control = at + _NAME_AT, NAME_OCTETS, at + _CONTROL_AT
        header.iov, header.iov_length = at + _VECTOR_AT, 1
        self._header = header
        self.number = sock.fileno()
        self.header = ctypes.byref(header)  # argument of the call
        self.data = memoryview(memory)[_DATA_AT:]
        # Metadata of the last datagram, and of the last one that was a single packet of `peer` and nothing else.
        self.metadata = memoryview(memory)[:_METADATA_OCTETS].cast("P")
        self.expected_metadata = memoryview(b"")
        self.peer: Nla = ""
        self.metadata[CONTROL_WORD] = CONTROL_OCTETS

    def parsed_metadata(self) -> tuple[list[ControlMessage], int, tuple[str, int]]:
        """Return control messages, flags and sender of the last datagram, as `recvmsg` of Python does."""
        metadata, header = self.metadata.tobytes(), self._header
        control = metadata[_CONTROL_AT : _CONTROL_AT + header.control_length]
        return ancillary_of(control), header.flags, host_of(metadata[_NAME_AT : _NAME_AT + NAME_OCTETS])

    def expect(self, peer: Nla) -> None:
        """Take datagrams with the last metadata for single packets of `peer` from now on."""
        self.peer, self.expected_metadata = peer, memoryview(self.metadata.tobytes()).cast("P")
