"""The 16-bit one's-complement checksum over PGM packets (RFC 8, W-08 to W-11).

Sums are taken over native-order 32-bit words of all packets of a train at once. A one's-complement sum computed in the
wrong octet order is the octet-swapped sum. The result is therefore stored in native order, and no data is ever swapped.
A field of 0 means "no checksum"; a computed 0 is sent as 0xFFFF.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Octets = npt.NDArray[np.uint8]

CHECKSUM_AT = 6
INTEGER_OCTETS = 4096  # longest packet that is summed faster as an integer than by numpy
_ONES = np.uint64(0xFFFF)


def residues(rows: Octets) -> npt.NDArray[np.uint64]:
    """Return the one's-complement sum of each row modulo 0xFFFF, in native order.

    `rows` is a (count, stride) array. The sum is 0 for a row whose checksum field is right: 0xFFFF and 0 are the same
    number in one's complement.
    """
    count, stride = rows.shape
    whole = stride & ~3
    words = np.ndarray((count, whole >> 2), np.uint32, rows, 0, (rows.strides[0], 4))
    total: npt.NDArray[np.uint64] = np.add.reduce(words, axis=1, dtype=np.uint64)
    if whole != stride:
        rest = np.zeros((count, 4), np.uint8)
        rest[:, : stride - whole] = rows[:, whole:]
        total += rest.view(np.uint32)[:, 0]
    total %= _ONES
    return total


def stored(rows: Octets) -> npt.NDArray[np.uint16]:
    """Return the checksum fields of the rows as a writable native-order column."""
    return np.ndarray((rows.shape[0],), np.uint16, rows, CHECKSUM_AT, (rows.strides[0],))


def fill(rows: Octets) -> None:
    """Compute and store the checksum of every row."""
    stored(rows)[:] = 0
    fill_empty(rows)


def fill_empty(rows: Octets) -> None:
    """Compute and store the checksum of every row, whose field must be 0."""
    stored(rows)[:] = _ONES - residues(rows)  # never 0


def patch(rows: Octets, old: Octets, at: int) -> None:
    """Correct the checksums after the octets `rows[:, at:at + n]` were `old`.

    Both ends must be on even offsets. The rest of the packet is not read, so damage elsewhere stays detectable
    downstream (RFC 1624).
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
    """Return the two checksum octets for one packet whose checksum field is zero."""
    return (0xFFFF - _sum(packet)).to_bytes(2, "little")


def patched(field: bytes, old: bytes, new: bytes) -> bytes:
    """Return the checksum corrected after `old` became `new` (RFC 1624), both of even length at even offsets."""
    value = (int.from_bytes(field, "little") + _sum(old) - _sum(new)) % 0xFFFF
    return (value or 0xFFFF).to_bytes(2, "little")


def is_absent(packet: bytes) -> bool:
    """Return whether the field says that there is no checksum."""
    return packet[CHECKSUM_AT : CHECKSUM_AT + 2] == b"\0\0"


def is_valid(packet: bytes) -> bool:
    """Return whether a packet with a checksum sums to 0xFFFF. The sum 0xFFFF is 0 modulo 0xFFFF."""
    return _sum(packet) == 0


def _sum(packet: bytes) -> int:
    """Return the sum of 16-bit words modulo 0xFFFF: 65,536 is 1 there, so the packet as one number has this residue."""
    return int.from_bytes(packet, "little") % 0xFFFF
