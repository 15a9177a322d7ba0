"""Fast codec for one ODATA without options, as in round trips; `data_packets` and `train` define validity."""

from __future__ import annotations

import struct

from pgm.wire.checksum import INTEGER_OCTETS
from pgm.wire.formats import DATA_HEADER_OCTETS, PacketType, Tsi
from pgm.wire.sequence_numbers import MASK

_REST = struct.Struct(">6sHII")  # the fields after the checksum: GSI, TSDU length, sqn, trail
_HEADER = struct.Struct(">6sH6sHII")  # the whole header: front, checksum, rest
# The same header with the fields after the checksum in one piece. The format is little-endian because of the checksum,
# which is summed in that order.
_PIECES = struct.Struct("<6sH16s")
_pack_pieces = _PIECES.pack
_number_of = int.from_bytes
# Mask of a header as a little-endian number: ones except for the checksum.
_HEAD = _number_of(_PIECES.pack(b"\xff" * 6, 0, b"\xff" * 16), "little")
_CHECKSUM_AT = 6
# Increment of `header_as_int` from one packet to the next. The increment is valid unless the lowest octet of the sqn,
# which is octet 20 of the packet, wraps.
NEXT_HEAD, NEXT_HEADS = 1 << 8 * 19, 1 << 8


def plain_front(tsi: Tsi, data_port: int) -> bytes:
    """Return the octets before the checksum of a session's plain ODATA: ports, type, and no options."""
    return tsi[6:] + data_port.to_bytes(2, "big") + bytes((PacketType.ODATA, 0))


def plain_rest(gsi: bytes, length: int, sqn: int, trail: int) -> bytes:
    """Return the octets between the checksum and the payload of a plain ODATA."""
    return _REST.pack(gsi, length, sqn & MASK, trail & MASK)


def header_as_int(front: bytes, gsi: bytes, length: int, sqn: int, trail: int) -> int:
    """Return the header of a plain ODATA as a little-endian number, with checksum 0."""
    return _number_of(_HEADER.pack(front, 0, gsi, length, sqn & MASK, trail & MASK), "little")


class SingleOdataWriter:
    """Writer of plain ODATA of one session, octet for octet equal to `write_odata`."""

    def __init__(self, tsi: Tsi, data_port: int) -> None:
        self.tsi = tsi
        self.data_port = data_port
        self._gsi = tsi[:6]
        self._front = plain_front(tsi, data_port)
        self._front_sum = int.from_bytes(self._front, "little")
        self._prepared = (-1, -1, -1)  # length, sqn and trail for which the next two attributes are prepared
        self._rest = b""
        self._head_sum = 0

    def prepare(self, length: int, sqn: int, trail: int) -> None:
        """Prepare the header of the next packet, so that `packet` is faster."""
        self._rest = plain_rest(self._gsi, length, sqn, trail)
        self._head_sum = self._front_sum + _number_of(self._rest, "little")
        self._prepared = length, sqn, trail

    def packet(self, payload: bytes | bytearray | memoryview, sqn: int, trail: int) -> bytes:
        """Return one packet. The checksum is that of one large number, whose parts begin at even octets."""
        if self._prepared != (len(payload), sqn, trail):
            self.prepare(len(payload), sqn, trail)
        total = (self._head_sum + _number_of(payload, "little")) % 0xFFFF
        return _pack_pieces(self._front, 0xFFFF - total, self._rest) + payload


def read_plain_untrusted(packet: bytes) -> tuple[bytes, bytes, int, int] | None:
    """Return front, GSI, wire sqn and wire trail of a possible plain ODATA.

    Checksum and length are right. The packet is plain ODATA if the front is `plain_front` of its TSI and data port. The
    TSI is the GSI and the first two octets of the front. Return None for any other packet, which `Train` must parse.
    """
    size = len(packet)
    if not DATA_HEADER_OCTETS <= size <= INTEGER_OCTETS or _number_of(packet, "little") % 0xFFFF:
        return None
    front, checksum, gsi, length, sqn, trail = _HEADER.unpack_from(packet)
    return (front, gsi, sqn, trail) if checksum and length == size - DATA_HEADER_OCTETS else None


def is_plain_untrusted(packet: bytes, head: int, octets: int) -> bool:
    """Return whether a packet is the plain ODATA with this header and length.

    `head` is the `header_as_int`, and `octets` is the packet's length. In that case, `read_plain_untrusted` would
    return the values of that header.
    """
    if len(packet) != octets:
        return False
    number = _number_of(packet, "little")
    has_checksum = packet[_CHECKSUM_AT] or packet[_CHECKSUM_AT + 1]
    return number & _HEAD == head and not number % 0xFFFF and bool(has_checksum)
