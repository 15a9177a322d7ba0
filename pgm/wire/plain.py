"""One ODATA without options, written and read alone in a handful of calls: most of what a round trip of small messages is.

`pgm.wire.data` and `pgm.wire.train` do the same for whatever else there is, and say what is right: a packet that is not so
plain is theirs.
"""

from __future__ import annotations

import struct

from pgm.wire.checksum import CHECKSUM_AT, INTEGER_OCTETS
from pgm.wire.formats import DATA_HEADER_OCTETS, PacketType, Tsi
from pgm.wire.serial import MASK

_REST = struct.Struct(">6sHII")  # what follows the checksum: GSI, TSDU length, sqn, trail
_NUMBERS = struct.Struct(">HII")  # without the GSI
_GSI_AT, _NUMBERS_AT = CHECKSUM_AT + 2, 14
_ABSENT = b"\0\0"


def plain_front(tsi: Tsi, data_port: int) -> bytes:
    """The octets before the checksum of all plain ODATA of a session: ports, type, no options."""
    return tsi[6:] + data_port.to_bytes(2, "big") + bytes((PacketType.ODATA, 0))


class PlainWriter:
    """Makes the packets of one session, octet for octet those of `write_odata`."""

    def __init__(self, tsi: Tsi, data_port: int) -> None:
        self._gsi = tsi[:6]
        self._front = plain_front(tsi, data_port)
        self._front_sum = int.from_bytes(self._front, "little")

    def packet(self, payload: bytes | bytearray | memoryview, sqn: int, trail: int) -> bytes:
        """One packet. The checksum is that of one large number, whose parts begin at even octets."""
        rest = b"".join((_REST.pack(self._gsi, len(payload), sqn & MASK, trail & MASK), payload))
        total = (self._front_sum + int.from_bytes(rest, "little")) % 0xFFFF
        return self._front + (0xFFFF - total).to_bytes(2, "little") + rest


def read_plain_untrusted(packet: bytes) -> tuple[bytes, Tsi, int, int] | None:
    """The front, TSI, wire sqn and wire trail of what may be a plain ODATA: checksum and length are right.

    It is one if the front is `plain_front` of its TSI and port. None for anything else; what that is `Train` says.
    """
    size = len(packet)
    if not DATA_HEADER_OCTETS <= size <= INTEGER_OCTETS or int.from_bytes(packet, "little") % 0xFFFF:
        return None
    length, sqn, trail = _NUMBERS.unpack_from(packet, _NUMBERS_AT)
    if length != size - DATA_HEADER_OCTETS or packet[CHECKSUM_AT:_GSI_AT] == _ABSENT:
        return None
    return packet[:CHECKSUM_AT], packet[_GSI_AT:_NUMBERS_AT] + packet[:2], sqn, trail
