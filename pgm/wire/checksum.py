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
INTEGER_OCTETS = 4096  # the longest packet that is summed faster as an integer than by numpy
_ONES = np.uint64(0xFFFF)


def residues(rows: Octets) -> npt.NDArray[np.uint64]:
    """One's-complement sum of each row of a (count, stride) array, modulo 0xFFFF, in native order.

    0 for a row whose checksum field is right: 0xFFFF and 0 are the same number in one's complement.
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
    """The checksum fields of the rows, as a writable native-order column."""
    return np.ndarray((rows.shape[0],), np.uint16, rows, CHECKSUM_AT, (rows.strides[0],))


def fill(rows: Octets) -> None:
    """Compute and store the checksum of every row."""
    stored(rows)[:] = 0
    fill_empty(rows)


def fill_empty(rows: Octets) -> None:
    """The same where all fields are 0."""
    stored(rows)[:] = _ONES - residues(rows)  # never 0


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


def is_absent(packet: bytes) -> bool:
    """Whether the field says that there is no checksum."""
    return packet[CHECKSUM_AT : CHECKSUM_AT + 2] == b"\0\0"


def is_valid(packet: bytes) -> bool:
    """Whether a packet with a non-zero checksum field sums to 0xFFFF, which is 0 modulo 0xFFFF."""
    return _sum(packet) == 0


def _sum(packet: bytes) -> int:
    """The sum modulo 0xFFFF: 65,536 is 1 there, so the packet as one number has the residue of the sum of its words."""
    return int.from_bytes(packet, "little") % 0xFFFF
