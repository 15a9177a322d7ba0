"""Digests of blocks: the data packets whose sqns agree above a bit, hashed by BLAKE3 as the source sent them.

A digest covers the session, the sqns, the length of every packet, its place in its message, and the payloads. It does not
cover type, checksum, trail and other options, which elements rewrite. A block may be cut into spans: a source that idles
signs the packets that it has sent, and the rest of the block is a span of its own.

The hashed octets, big-endian:

    "pgm block 1" and a zero octet (12), TSI (8), epoch (8), first sqn (8), number of packets (4),
    for each packet: length of the payload, with the highest bit set for a fragment (4); of OPT_FRAGMENT the first sqn of
    the message, the offset and the length of the message (4 each), or zeros,
    the payloads, one after the other.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence

import attrs
import blake3
import numpy as np
import numpy.typing as npt

from pgm.wire.formats import Tsi
from pgm.wire.packet_run import Run, fragment_of
from pgm.wire.sequence_numbers import MASK

DIGEST_OCTETS = 32
BLOCK_BITS = 10  # 1,024 packets

_DOMAIN = b"pgm block 1\0"
_RECORD_WORDS = 4
_RECORD_TYPE = ">u4"
_FRAGMENT = 1 << 31  # bit of a length
_MOST_KEPT = 64  # records of plain packets that are kept ready


@attrs.frozen
class SignedSession:
    """Session whose blocks are hashed: the TSI, and the epoch, which is the session's start in ns since 1970."""

    tsi: Tsi
    epoch: int

    def digest(self, runs: Sequence[Run]) -> bytes:
        """Return the digest of a span of one block, given as runs of consecutive sqns. Raises `ValueError` for gaps."""
        first = at = runs[0].first
        size = 0
        for run in runs:
            if run.first != at:
                raise ValueError(f"sqn {run.first} follows sqn {at - 1}")
            at = run.end
            size += run.count * (run.stride - run.payload_at)
        head = _DOMAIN + self.tsi + self.epoch.to_bytes(8, "big") + first.to_bytes(8, "big")
        head += (at - first).to_bytes(4, "big") + b"".join(map(_records, runs))
        # One buffer for one call: the hash runs over many chunks at once.
        octets = np.empty(len(head) + size, np.uint8)
        octets.data[: len(head)] = head
        end = len(head)
        for run in runs:
            begin, end = end, end + run.count * (run.stride - run.payload_at)
            octets[begin:end].reshape(run.count, -1 if end > begin else 0)[:] = run.payloads
        return blake3.blake3(octets.data).digest()

    def digest_of_records(self, first: int, records: npt.NDArray[np.uint32], payloads: memoryview) -> bytes:
        """Return the digest of a span of one block, given as its records (`records_of`) and its payloads in one piece."""
        head = _DOMAIN + self.tsi + self.epoch.to_bytes(8, "big") + first.to_bytes(8, "big")
        head += len(records).to_bytes(4, "big") + records.astype(_RECORD_TYPE).tobytes()
        return blake3.blake3(head).update(payloads).digest()

    def digests_of_packets(self, runs: Sequence[Run]) -> list[bytes]:
        """Return the digest of every packet as a span of its own, for the search of the wrong packets of a block."""
        return [self.digest([run.part(sqn, sqn + 1)]) for run in runs for sqn in range(run.first, run.end)]


def parts_of_blocks(run: Run, bits: int = BLOCK_BITS) -> Iterator[tuple[int, Run]]:
    """Yield the number of each block of 2^`bits` packets that a run touches, with the run's part in it."""
    for block in range(run.first >> bits, (run.end - 1 >> bits) + 1):
        first, end = max(run.first, block << bits), min(run.end, block + 1 << bits)
        yield block, run.part(first, end)


def _records(run: Run) -> bytes:
    """Return the lengths of a run's packets and their places in their messages."""
    length = run.stride - run.payload_at
    fragment = fragment_of(run)
    if fragment is None:
        return _plain_records(run.count, length)
    rows = np.empty((run.count, _RECORD_WORDS), _RECORD_TYPE)
    rows[:, 0], rows[:, 1], rows[:, 3] = length | _FRAGMENT, fragment.first_sqn, fragment.apdu_length
    # Options of a run differ in the offset of the fragment alone, which grows by the payload.
    rows[:, 2] = _offsets(fragment.offset, length, run.count)
    return rows.tobytes()


def _offsets(first: int, length: int, count: int) -> npt.NDArray[np.int64]:
    return np.arange(first, first + count * length, length) & MASK if length else np.full(count, first)


def records_of(lengths: npt.NDArray[np.int64]) -> npt.NDArray[np.uint32]:
    """Return the records of packets without OPT_FRAGMENT, given the lengths of their payloads."""
    rows = np.zeros((len(lengths), _RECORD_WORDS), np.uint32)
    rows[:, 0] = lengths
    return rows


def records_of_fragments(first_sqn: int, lengths: npt.NDArray[np.int64]) -> npt.NDArray[np.uint32]:
    """Return the records of all fragments of one message, given the lengths of their payloads."""
    rows = np.empty((len(lengths), _RECORD_WORDS), np.uint32)
    ends = np.cumsum(lengths)
    rows[:, 0], rows[:, 1], rows[:, 3] = lengths | _FRAGMENT, first_sqn & MASK, int(ends[-1]) & MASK
    rows[:, 2] = ends - lengths & MASK
    return rows


@functools.lru_cache(_MOST_KEPT)
def _plain_records(count: int, length: int) -> bytes:
    return (length.to_bytes(4, "big") + bytes(4 * (_RECORD_WORDS - 1))) * count
