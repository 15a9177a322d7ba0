"""Data packets in memory, as a receiver reads them, and their fields as the independent program takes them."""

from __future__ import annotations

import random
from collections.abc import Iterable

import numpy as np

from pgm.wire.formats import DATA_HEADER_OCTETS, FRAGMENT_OCTETS
from pgm.wire.packet_run import Run
from tests.unit.trust.independent import IndependentPacket

Piece = tuple[int, int, int | None]  # packets, octets of a payload, offset of the first fragment or None


def runs_of(first: int, pieces: Iterable[Piece], rng: random.Random) -> list[Run]:
    """Return consecutive runs with drawn octets, each in a buffer with room around it."""
    runs = []
    for count, length, offset in pieces:
        payload_at = DATA_HEADER_OCTETS if offset is None else DATA_HEADER_OCTETS + FRAGMENT_OCTETS
        stride = payload_at + length
        buffer = np.frombuffer(bytearray(rng.randbytes(count * stride + 20)), np.uint8)
        run = Run(first, count, buffer, 10, stride, payload_at)
        if offset is not None:
            head = bytes([0, 4, 0, FRAGMENT_OCTETS, 0x81, 16, 0, 0])
            fields = (first & 0xFFFFFFFF, offset, (offset + count * length) & 0xFFFFFFFF)
            for row in range(count):
                values = (fields[0], offset + row * length & 0xFFFFFFFF, fields[2])
                option = head + b"".join(value.to_bytes(4, "big") for value in values)
                run.rows[row, DATA_HEADER_OCTETS:payload_at] = np.frombuffer(option, np.uint8)
        runs.append(run)
        first = run.end
    return runs


def packets_of(runs: Iterable[Run]) -> list[IndependentPacket]:
    """Return the payload of every packet, and its OPT_FRAGMENT from the octets of the packet itself."""
    packets: list[IndependentPacket] = []
    for run in runs:
        for row in run.rows:
            octets = row.tobytes()
            at = DATA_HEADER_OCTETS + 8
            fields = [int.from_bytes(octets[at + 4 * index : at + 4 * index + 4], "big") for index in range(3)]
            fragment = (fields[0], fields[1], fields[2]) if run.payload_at > DATA_HEADER_OCTETS else None
            packets.append((octets[run.payload_at :], fragment))
    return packets
