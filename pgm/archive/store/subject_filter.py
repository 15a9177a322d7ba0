"""Bloom filter of the subjects in a batch: a reader of few subjects passes over batches without them.

A filter has no false negatives: what `may_have` denies is not in the batch.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from pgm.archive.store.schema import plain

_BITS_EACH = 16  # with four hashes some 0.24 % of the batches are read in vain
_HASHES = 4
_MOST_OCTETS = 256  # in the description of a batch, which an index holds in memory


def subject_filter(batch: pa.RecordBatch) -> bytes:
    """Return the filter of a stored batch; empty if the batch has too many subjects for one."""
    if not batch.num_rows:
        return b""
    keys = {text.encode() for text in pc.unique(_values(batch.column("subject"))).to_pylist() if text is not None}
    octets = 1
    while octets * 8 < _BITS_EACH * len(keys):
        octets *= 2
    if octets > _MOST_OCTETS:
        return b""
    bits = bytearray(octets)
    for key in keys:
        for at in _places(key, octets * 8):
            bits[at >> 3] |= 1 << (at & 7)
    return bytes(bits)


def may_have(bits: bytes, subject: str) -> bool:
    """Return whether a batch with this filter may have a subject."""
    return not bits or all(bits[at >> 3] >> (at & 7) & 1 for at in _places(subject.encode(), len(bits) * 8))


def has_losses(batch: pa.RecordBatch) -> bool:
    """Return whether a stored batch has rows of losses."""
    lost = _values(batch.column("lost"))
    return bool(lost.null_count < len(lost))


def _places(key: bytes, bits: int) -> Iterator[int]:
    digest = hashlib.blake2b(key, digest_size=16).digest()
    for number in range(_HASHES):
        yield int.from_bytes(digest[4 * number : 4 * number + 4], "little") % bits


def _values(column: pa.Array) -> pa.Array:
    """Return the values of a column, each run once where the column is run-end encoded."""
    return column.values if pa.types.is_run_end_encoded(column.type) else plain(column)
