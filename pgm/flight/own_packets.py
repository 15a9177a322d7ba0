"""Sqns of packets that this node sends: read without checks, because the node has just made them."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence

import numpy as np

from pgm.core.effects import Send
from pgm.telemetry.observers import Span
from pgm.wire.formats import (
    AFI_IPV4,
    FLAGS_AT,
    OPTIONS_PARITY,
    OPTIONS_PRESENT,
    SQN_AT,
    TYPE_AT,
    PacketType,
    Tsi,
)
from pgm.wire.options import NakList
from pgm.wire.sequence_numbers import spans_of

_SQN = struct.Struct(">I")
_NLAS_AT = 20  # AFI of the source's address; the group's follows
_NLA_OCTETS = {AFI_IPV4: 8}
_LONG_NLA_OCTETS = 20
_LENGTH_OCTETS, _HEAD_OCTETS = 4, 4  # OPT_LENGTH, and the head of an option
_END, _TYPE = 0x80, 0x7F
_REQUESTS = frozenset(map(int, (PacketType.NAK, PacketType.NCF)))


def own_repairs(send: Send) -> tuple[Tsi, list[Span]]:
    """Return the session and the sqns of a train of RDATA; no session for parity."""
    octets = send.octets.data if isinstance(send.octets, np.ndarray) else memoryview(send.octets)
    if octets[FLAGS_AT] & OPTIONS_PARITY:
        return b"", []
    sqns = [_SQN.unpack_from(octets, at)[0] for at in range(SQN_AT, len(octets), send.stride)]
    return bytes(octets[8:14]) + bytes(octets[:2]), spans_of(sqns)


def own_requests(send: Send) -> Iterator[tuple[PacketType, Tsi, Sequence[int]]]:
    """Yield type, session and sqns of each NAK or NCF of a train, without those for parity."""
    octets = bytes(send.octets)
    for at in range(0, len(octets), send.stride):
        packet = octets[at : at + send.stride]
        kind = packet[TYPE_AT]
        if kind in _REQUESTS and not packet[FLAGS_AT] & OPTIONS_PARITY:
            port = packet[2:4] if kind == PacketType.NAK else packet[:2]  # ports are swapped on the way up
            yield PacketType(kind), packet[8:14] + port, _sqns_of(packet)


def _sqns_of(packet: bytes) -> Sequence[int]:
    first = int.from_bytes(packet[SQN_AT:_NLAS_AT], "big")
    if not packet[FLAGS_AT] & OPTIONS_PRESENT:
        return (first,)
    at = _NLAS_AT
    for _ in range(2):
        at += _NLA_OCTETS.get(int.from_bytes(packet[at : at + 2], "big"), _LONG_NLA_OCTETS)
    at += _LENGTH_OCTETS
    while at < len(packet):
        kind, length = packet[at], packet[at + 1]
        if kind & _TYPE == NakList.TYPE:
            count = (length - _HEAD_OCTETS) // 4
            return (first, *struct.unpack_from(f">{count}I", packet, at + _HEAD_OCTETS))
        if kind & _END:
            break
        at += length
    return (first,)
