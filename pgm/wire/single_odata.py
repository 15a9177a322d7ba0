"""One ODATA without options, written and read alone in a handful of calls: most of what a round trip of small messages is.

`pgm.wire.data_packets` and `pgm.wire.train` do the same for whatever else there is, and say what is right: a packet that is not so
plain is theirs.
"""

from __future__ import annotations

import struct

from pgm.wire.checksum import INTEGER_OCTETS
from pgm.wire.formats import DATA_HEADER_OCTETS, PacketType, Tsi
from pgm.wire.sequence_numbers import MASK

_REST = struct.Struct(">6sHII")  # what follows the checksum: GSI, TSDU length, sqn, trail
_HEADER = struct.Struct(">6sH6sHII")  # all of it: front, checksum, and that
# The same with what follows the checksum in one piece. Little-endian for the checksum alone: so all is summed here.
_PIECES = struct.Struct("<6sH16s")
_pack_pieces = _PIECES.pack
_number_of = int.from_bytes
# A header as a number, the same way round, has ones here where there is anything but its checksum.
_HEAD = _number_of(_PIECES.pack(b"\xff" * 6, 0, b"\xff" * 16), "little")
_CHECKSUM_AT = 6
# What `header_as_int` grows by from one packet to the next that is like it, where the lowest octet of the sqn, which is the
# twentieth of the packet, does not begin anew.
NEXT_HEAD, NEXT_HEADS = 1 << 8 * 19, 1 << 8


def plain_front(tsi: Tsi, data_port: int) -> bytes:
    """The octets before the checksum of all plain ODATA of a session: ports, type, no options."""
    return tsi[6:] + data_port.to_bytes(2, "big") + bytes((PacketType.ODATA, 0))


def plain_rest(gsi: bytes, length: int, sqn: int, trail: int) -> bytes:
    """The octets between checksum and payload of such a packet."""
    return _REST.pack(gsi, length, sqn & MASK, trail & MASK)


def header_as_int(front: bytes, gsi: bytes, length: int, sqn: int, trail: int) -> int:
    """The header of such a packet as a little-endian number, but for its checksum."""
    return _number_of(_HEADER.pack(front, 0, gsi, length, sqn & MASK, trail & MASK), "little")


class SingleOdataWriter:
    """Makes the packets of one session, octet for octet those of `write_odata`."""

    def __init__(self, tsi: Tsi, data_port: int) -> None:
        self._gsi = tsi[:6]
        self._front = plain_front(tsi, data_port)
        self._front_sum = int.from_bytes(self._front, "little")
        self._foreseen = (-1, -1, -1)  # length, sqn and trail of which the following are
        self._rest = b""
        self._head_sum = 0

    def foresee(self, length: int, sqn: int, trail: int) -> None:
        """Make what goes before the next payload already, as far as it is known: `packet` is quicker then if it is so."""
        self._rest = plain_rest(self._gsi, length, sqn, trail)
        self._head_sum = self._front_sum + _number_of(self._rest, "little")
        self._foreseen = length, sqn, trail

    def packet(self, payload: bytes | bytearray | memoryview, sqn: int, trail: int) -> bytes:
        """One packet. The checksum is that of one large number, whose parts begin at even octets."""
        if self._foreseen != (len(payload), sqn, trail):
            self.foresee(len(payload), sqn, trail)
        total = (self._head_sum + _number_of(payload, "little")) % 0xFFFF
        return _pack_pieces(self._front, 0xFFFF - total, self._rest) + payload


def read_plain_untrusted(packet: bytes) -> tuple[bytes, bytes, int, int] | None:
    """The front, GSI, wire sqn and wire trail of what may be a plain ODATA: checksum and length are right.

    It is one if the front is `plain_front` of its TSI, which is the GSI and the first two octets of the front, and of its
    port. None for anything else; what that is `Train` says.
    """
    size = len(packet)
    if not DATA_HEADER_OCTETS <= size <= INTEGER_OCTETS or _number_of(packet, "little") % 0xFFFF:
        return None
    front, checksum, gsi, length, sqn, trail = _HEADER.unpack_from(packet)
    return (front, gsi, sqn, trail) if checksum and length == size - DATA_HEADER_OCTETS else None


def is_plain_untrusted(packet: bytes, head: int, octets: int) -> bool:
    """Whether a packet is the plain ODATA of so many octets of this `header_as_int`: `read_plain_untrusted` would say just that."""
    if len(packet) != octets:
        return False
    number = _number_of(packet, "little")
    has_checksum = packet[_CHECKSUM_AT] or packet[_CHECKSUM_AT + 1]
    return number & _HEAD == head and not number % 0xFFFF and bool(has_checksum)
