"""The 16-bit one's-complement checksum over whole PGM packets (RFC 8, W-08 to W-11).

Sums are taken over native-order 32-bit words of all packets of a train at once. A one's-complement sum
computed in the wrong octet order is the octet-swapped sum, so the result is stored in native order and
no data is ever swapped. A field of 0 means "no checksum"; a computed 0 is sent as 0xFFFF.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Octets = npt.NDArray[np.uint8]

CHECKSUM_AT = 6


def sums(rows: Octets) -> npt.NDArray[np.uint32]:
    """One's-complement sum of each row of a (count, stride) array, folded to 16 bits, in native order.

    0xFFFF for a row whose checksum field is right, unless every octet is zero.
    """
    count, stride = rows.shape
    whole = stride & ~3
    words = np.ndarray((count, whole >> 2), np.uint32, rows, 0, (rows.strides[0], 4))
    total = words.sum(axis=1, dtype=np.uint64)
    if whole != stride:
        rest = np.zeros((count, 4), np.uint8)
        rest[:, : stride - whole] = rows[:, whole:]
        total += rest.view(np.uint32)[:, 0]
    total = (total & 0xFFFFFFFF) + (total >> np.uint64(32))
    total = (total & 0xFFFF) + (total >> np.uint64(16))
    total = (total & 0xFFFF) + (total >> np.uint64(16))
    folded: npt.NDArray[np.uint32] = ((total & 0xFFFF) + (total >> np.uint64(16))).astype(np.uint32)
    return folded


def stored(rows: Octets) -> npt.NDArray[np.uint16]:
    """The checksum fields of the rows, as a writable native-order column."""
    return np.ndarray((rows.shape[0],), np.uint16, rows, CHECKSUM_AT, (rows.strides[0],))


def fill(rows: Octets) -> None:
    """Compute and store the checksum of every row."""
    field = stored(rows)
    field[:] = 0
    value = 0xFFFF - sums(rows)
    value[value == 0] = 0xFFFF
    field[:] = value


def patch(rows: Octets, old: Octets, at: int) -> None:
    """Correct the checksums after the octets `rows[:, at:at + n]` were `old`; both ends on even offsets.

    The rest of the packet is not read, so damage elsewhere stays detectable downstream (RFC 1624).
    """
    width = old.shape[1]
    shape = (rows.shape[0], width >> 1)
    new_words = np.ndarray(shape, np.uint16, rows, at, (rows.strides[0], 2)).astype(np.int64)
    old_words = np.ascontiguousarray(old).view(np.uint16).astype(np.int64)
    field = stored(rows)
    total = (0xFFFF - field.astype(np.int64)) + (0xFFFF - old_words).sum(axis=1) + new_words.sum(axis=1)
    total = (total & 0xFFFF) + (total >> 16)
    total = (total & 0xFFFF) + (total >> 16)
    value = 0xFFFF - total
    value[value == 0] = 0xFFFF
    field[:] = value


def checksum(packet: bytes) -> bytes:
    """The two octets to store for one packet whose checksum field is zero."""
    return (0xFFFF - _sum(packet)).to_bytes(2, "little")


def patched(field: bytes, old: bytes, new: bytes) -> bytes:
    """The checksum field corrected after `old` became `new`, both of even length on even offsets (RFC 1624)."""
    value = (int.from_bytes(field, "little") + _sum(old) - _sum(new)) % 0xFFFF
    return (value or 0xFFFF).to_bytes(2, "little")


def is_valid(packet: bytes) -> bool:
    """Whether a packet with a non-zero checksum field sums to 0xFFFF, which is 0 modulo 0xFFFF."""
    return _sum(packet) == 0


def _sum(packet: bytes) -> int:
    return int.from_bytes(packet + b"\0" if len(packet) & 1 else packet, "little") % 0xFFFF
