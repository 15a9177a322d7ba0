"""Data packets and checksums built octet by octet, as a reference for the fast paths."""

from __future__ import annotations

from collections.abc import Sequence

from pgm.wire.formats import HEADER, OPTIONS_NETWORK, OPTIONS_PARITY, OPTIONS_PRESENT, PacketType, Tsi
from pgm.wire.options import NO_OPTIONS, Option, encode_options
from pgm.wire.sequence_numbers import wrap

TSI = bytes.fromhex("0102030405060708")
OTHER_TSI = bytes.fromhex("a1a2a3a4a5a6a7a8")
DATA_PORT = 7500


def ones_complement_sum(octets: bytes) -> int:
    """Return the 16-bit one's-complement sum, big-endian; an odd tail is padded with a zero octet."""
    if len(octets) % 2:
        octets += b"\0"
    total = 0
    for at in range(0, len(octets), 2):
        total += octets[at] << 8 | octets[at + 1]
        total = (total & 0xFFFF) + (total >> 16)
    return total


def checksum_of(packet: bytes) -> int:
    """Return the checksum field of a packet; 0xFFFF for a computed 0 (W-08, W-09)."""
    return 0xFFFF - ones_complement_sum(packet[:6] + b"\0\0" + packet[8:]) or 0xFFFF


def sealed(packet: bytes) -> bytes:
    """Return the packet with its checksum in place."""
    return packet[:6] + checksum_of(packet).to_bytes(2, "big") + packet[8:]


def without_checksum(packet: bytes) -> bytes:
    """Return the packet with "no checksum" in the field."""
    return packet[:6] + b"\0\0" + packet[8:]


def data_packet(
    sqn: int,
    payload: bytes = b"",
    *,
    trail: int = 0,
    kind: PacketType = PacketType.ODATA,
    tsi: Tsi = TSI,
    data_port: int = DATA_PORT,
    options: Sequence[Option] = NO_OPTIONS,
    option_octets: bytes | None = None,
    parity: bool = False,
) -> bytes:
    """Return one ODATA or RDATA packet.

    `option_octets` take the place of `options` and may be malformed.
    """
    encoded, network = encode_options(options, kind)
    if option_octets is not None:
        encoded = option_octets
    flags = (
        (OPTIONS_PRESENT if encoded else 0) | (OPTIONS_NETWORK if network else 0) | (OPTIONS_PARITY if parity else 0)
    )
    head = HEADER.pack(int.from_bytes(tsi[6:], "big"), data_port, kind, flags, 0, tsi[:6], len(payload))
    body = wrap(sqn).to_bytes(4, "big") + wrap(trail).to_bytes(4, "big")
    return sealed(head + body + encoded + payload)


def data_fields(packet: bytes) -> tuple[int, int, int]:
    """Return type, sqn and trail of a data packet."""
    return packet[4], int.from_bytes(packet[16:20], "big"), int.from_bytes(packet[20:24], "big")
