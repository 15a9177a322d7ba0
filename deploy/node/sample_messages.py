"""Self-describing test messages.

A message is its number (8 octets, big-endian) and octets that follow from the number and the seed. A receiver can check
from the messages and the seed alone that each message came once, in order and undamaged.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator

import attrs
import numpy as np
import numpy.typing as npt

from pgm.core.structures.ranges import RangeTable, SqnRange
from pgm.net.framing.items import AnyBatch, Batch
from pgm.net.framing.packed_batch import PackedBatch

Octets = npt.NDArray[np.uint8]

NUMBER_OCTETS = 8
_MOST_GAPS = 1024  # of an account; a message of an older gap would count as a duplicate
_PERIOD = 251  # a prime, so that the pattern does not align with the message size


def _pattern(size: int, seed: int) -> bytes:
    return random.Random(seed).randbytes(size + _PERIOD)


def generate(count: int, size: int, seed: int, most: int = 64, first: int = 0) -> Iterator[Octets]:
    """Yield messages `first` to `first + count - 1` as uint8 arrays of shape (n, size), n at most `most`."""
    pattern = np.frombuffer(_pattern(size, seed), np.uint8)
    end = first + count
    for low in range(first, end, most):
        high = min(low + most, end)
        numbers = np.arange(low, high, dtype=">u8")
        rows = np.empty((high - low, size), np.uint8)
        rows[:, :NUMBER_OCTETS] = numbers.view(np.uint8).reshape(-1, NUMBER_OCTETS)
        for row, number in enumerate(range(low, high)):
            shift = number % _PERIOD
            rows[row, NUMBER_OCTETS:] = pattern[shift : shift + size - NUMBER_OCTETS]
        yield rows


def payloads_of(batch: AnyBatch) -> Iterator[Octets]:
    """Yield the messages of a batch as uint8 arrays of shape (count, size). The parts of a message are joined."""
    if isinstance(batch, Batch):
        yield batch.payloads
    elif isinstance(batch, PackedBatch):
        for payload in batch:
            yield np.frombuffer(payload, np.uint8).reshape(1, -1)
    else:
        for parts in batch:
            yield np.frombuffer(b"".join(parts), np.uint8).reshape(1, -1)


@attrs.define
class Account:
    """Account of the test messages that one receiver got in one session."""

    size: int
    seed: int
    delivered: int = 0
    duplicates: int = 0
    out_of_order: int = 0
    damaged: int = 0
    _next_number: int = 0
    _missing: RangeTable[SqnRange] = attrs.field(factory=RangeTable)  # numbers below _next_number that never came
    _hash: hashlib._Hash = attrs.field(factory=hashlib.sha256)
    _pattern: bytes = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._pattern = _pattern(self.size, self.seed)

    def add(self, payloads: Octets) -> None:
        """Add consecutive messages of one size, shape (count, size)."""
        octets = payloads.tobytes()
        self._hash.update(octets)
        self.delivered += payloads.shape[0]
        if payloads.shape[1] != self.size:
            self.damaged += payloads.shape[0]
            return
        body = self.size - NUMBER_OCTETS
        for at in range(0, len(octets), self.size):
            number = int.from_bytes(octets[at : at + NUMBER_OCTETS], "big")
            shift = number % _PERIOD
            if octets[at + NUMBER_OCTETS : at + self.size] != self._pattern[shift : shift + body]:
                self.damaged += 1
            else:
                self._number(number)

    def _number(self, number: int) -> None:
        if number < self._next_number:
            if self._missing.discard(number, number + 1):
                self.out_of_order += 1
            else:
                self.duplicates += 1
            return
        if number > self._next_number:
            self._missing.add(SqnRange(self._next_number, number))
            if len(self._missing) > _MOST_GAPS:
                oldest = self._missing.oldest
                assert oldest is not None
                self._missing.remove(oldest)
        self._next_number = number + 1

    @property
    def sha256(self) -> str:
        """Return the digest of all payloads in the order of delivery."""
        return self._hash.hexdigest()


def digest(count: int, size: int, seed: int) -> str:
    """Return the digest of a complete delivery in order."""
    expected = hashlib.sha256()
    for rows in generate(count, size, seed):
        expected.update(rows.data)
    return expected.hexdigest()
