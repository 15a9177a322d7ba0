"""Transmission groups: parity from packets as they lie on the wire, and lost packets from parity (RFC 11.2).

A short group is encoded as if its missing packets were all zeros, so that one matrix serves a session. If the packets differ
in size, they are padded for the calculation. Their TSDU lengths follow the padding in network order (E-20).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import attrs
import numpy as np

from pgm.fec import code
from pgm.wire.data_packets import write_odata
from pgm.wire.formats import DATA_HEADER_OCTETS, PacketType, Tsi
from pgm.wire.options import NO_OPTIONS, encode_options
from pgm.wire.parity import (
    ENCODED_FRAGMENT_OCTETS,
    LENGTH_OCTETS,
    NO_FRAGMENT,
    ParityPacket,
    fragment_of_encoded,
    fragment_rows,
)
from pgm.wire.train import Octets, Run


def _width_of(parts: Sequence[Run]) -> int:
    return max(part.stride - part.payload_at for part in parts)


def _rows_of(parts: Iterable[Run], group: int, size: int, width: int, *, is_variable: bool) -> Octets:
    rows = np.zeros((size, width + (LENGTH_OCTETS if is_variable else 0)), np.uint8)
    for part in parts:
        low, high, octets = part.first - group, part.end - group, part.stride - part.payload_at
        rows[low:high, :octets] = part.payloads
        if is_variable:
            rows[low:high, width:] = np.frombuffer(octets.to_bytes(LENGTH_OCTETS, "big"), np.uint8)
    return rows


def _fragments_of(parts: Iterable[Run], group: int, size: int) -> tuple[Octets, bool]:
    rows, has_any = np.zeros((size, ENCODED_FRAGMENT_OCTETS), np.uint8), False
    for part in parts:
        options = fragment_rows(part.rows, part.payload_at)
        has_any = has_any or options is not None
        rows[part.first - group : part.end - group] = (
            np.frombuffer(NO_FRAGMENT, np.uint8) if options is None else options
        )
    return rows, has_any


def encode(parts: Sequence[Run], group: int, size: int, indexes: Sequence[int], actual: int) -> list[ParityPacket]:
    """Return the parity packets `indexes` of the group that begins with sqn `group`.

    `parts` holds all `actual` packets of the group, and `size` is the group's full number of packets.
    """
    assert sum(part.count for part in parts) == actual, (group, actual)
    width = _width_of(parts)
    is_variable = any(part.stride - part.payload_at != width for part in parts)
    payloads = code.encode(_rows_of(parts, group, size, width, is_variable=is_variable), indexes)
    fragments, has_fragments = _fragments_of(parts, group, size)
    encoded = code.encode(fragments, indexes) if has_fragments else None
    return [
        ParityPacket(
            group=group,
            index=index,
            payload=payloads[at].tobytes(),
            is_variable=is_variable,
            actual=actual if actual < size else None,
            fragment=None if encoded is None else encoded[at].tobytes(),
        )
        for at, index in enumerate(indexes)
    ]


@attrs.frozen
class OriginalHeader:
    """Header fields of every decoded packet."""

    tsi: Tsi
    data_port: int
    trail: int


@attrs.frozen
class ParityShape:
    """Common shape of all parity packets of a group. A packet of another shape is not of the group."""

    width: int
    is_variable: bool
    has_fragments: bool

    @classmethod
    def of(cls, packet: ParityPacket) -> ParityShape:
        """Return the shape of a packet."""
        return cls(len(packet.payload), packet.is_variable, packet.fragment is not None)

    def fits(self, parts: Iterable[Run]) -> bool:
        """Return whether these originals can belong to parity of this shape."""
        longest = self.width - (LENGTH_OCTETS if self.is_variable else 0)
        sizes = {part.stride - part.payload_at for part in parts}
        return max(sizes, default=0) <= longest if self.is_variable else sizes <= {longest}


def decode(
    parts: Sequence[Run],
    parity: Sequence[ParityPacket],
    group: int,
    size: int,
    actual: int,
    header: OriginalHeader,
) -> list[Run] | None:
    """Return the packets of a group that `parts` lack, as ODATA with checksums; one run each, in order.

    `parity` holds as many different packets of one shape as are missing. Returns None if the result cannot be an original: a
    packet of the group is then forged or damaged.
    """
    shape = ParityShape.of(parity[0])
    if not shape.fits(parts):
        return None
    width = shape.width - (LENGTH_OCTETS if shape.is_variable else 0)
    held = {sqn - group for part in parts for sqn in range(part.first, part.end)}
    lost = [at for at in range(actual) if at not in held]
    order = [at for at in range(size) if at in held or at >= actual]
    numbers = order + [size + packet.index for packet in parity]
    rows = _rows_of(parts, group, size, width, is_variable=shape.is_variable)
    payloads = np.frombuffer(b"".join(packet.payload for packet in parity), np.uint8).reshape(len(parity), -1)
    originals = code.decode(np.vstack([rows[order], payloads]), numbers)
    fragments: Octets | None = None
    if shape.has_fragments:
        known, _ = _fragments_of(parts, group, size)
        encoded = np.frombuffer(b"".join(packet.fragment or b"" for packet in parity), np.uint8).reshape(
            len(parity), -1
        )
        fragments = code.decode(np.vstack([known[order], encoded]), numbers)
    runs = []
    for at in lost:
        payload = _payload_of(originals[at], width, is_variable=shape.is_variable)
        if payload is None:
            return None
        fragment = None if fragments is None else fragments[at].tobytes()
        runs.append(_packet(payload, fragment, group + at, header))
    return runs


def _payload_of(row: Octets, width: int, *, is_variable: bool) -> Octets | None:
    """Return a decoded row without its padding, or None if the padding is not all zeros."""
    if not is_variable:
        return row
    length = int.from_bytes(row[width:].tobytes(), "big")
    return row[:length] if length <= width and not row[length:width].any() else None


def _packet(payload: Octets, fragment: bytes | None, sqn: int, header: OriginalHeader) -> Run:
    option = None if fragment is None else fragment_of_encoded(fragment)
    options, _ = encode_options(NO_OPTIONS if option is None else (option,), PacketType.ODATA)
    payload_at = DATA_HEADER_OCTETS + len(options)
    octets = np.empty(payload_at + len(payload), np.uint8)
    octets[payload_at:] = payload
    rows = octets.reshape(1, -1)
    write_odata(rows, tsi=header.tsi, data_port=header.data_port, first=sqn, trail=header.trail, option_octets=options)
    return Run(sqn, 1, octets, 0, len(octets), payload_at)
