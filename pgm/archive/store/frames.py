"""Frames: what proofs of a signed stream cover of a packet beyond the values of its rows.

A plain packet has no frame: its payload is the value of its row. Other packets of signed streams have a frame in their first
row. The octets, big-endian:

    flags (1): 1 for a batch, whose messages are rows; number of sizes (2),
    for each size of fragments: number of fragments (4), octets of each (4); none without OPT_FRAGMENT,
    number of octets before the values (4), these octets, and the octets after the values.
"""

from __future__ import annotations

import struct

import attrs

_HEAD = struct.Struct(">BH")
_SIZE = struct.Struct(">II")
_LENGTH = struct.Struct(">I")
_BATCH = 1
_MOST_SIZES = 0xFFFF


@attrs.frozen
class Frame:
    """Parts of a message as its source sent it, without the values. `sizes` are (number, octets) of its fragments."""

    sizes: tuple[tuple[int, int], ...] = ()
    before: bytes = b""
    after: bytes = b""
    is_batch: bool = False

    def to_bytes(self) -> bytes:
        """Encode the frame. A message of more sizes than fit has none of them, so it cannot be proved."""
        sizes = self.sizes if len(self.sizes) <= _MOST_SIZES else ()
        head = _HEAD.pack(_BATCH if self.is_batch else 0, len(sizes))
        return b"".join(
            (head, *(_SIZE.pack(*size) for size in sizes), _LENGTH.pack(len(self.before)), self.before, self.after)
        )


def decode_frame_untrusted(octets: bytes) -> Frame | None:
    """Decode a frame; None for other octets. Never raises."""
    try:
        flags, count = _HEAD.unpack_from(octets)
        at = _HEAD.size + count * _SIZE.size
        sizes = tuple((number, size) for number, size in _SIZE.iter_unpack(octets[_HEAD.size : at]))
        (length,) = _LENGTH.unpack_from(octets, at)
    except struct.error:
        return None
    at += _LENGTH.size
    if flags > _BATCH or len(sizes) < count or length > len(octets) - at:
        return None
    return Frame(sizes, octets[at : at + length], octets[at + length :], bool(flags))
