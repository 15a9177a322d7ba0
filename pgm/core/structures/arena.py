"""Memory for trains: chunks that are filled in order and recycled when nothing refers to them any more.

A fresh array per read costs page faults for ever; a warm chunk costs none. Consecutive trains lie side by
side, so runs merge and leave again as one slice. A chunk is free when the arena holds its only reference:
every view of it, an application's included, keeps it from being recycled, so kept octets are never
overwritten.
"""

from __future__ import annotations

import mmap
import sys

import numpy as np

from pgm.units import KIB, MIB
from pgm.wire.train import Octets

ROOM = 64 * KIB  # a read always gets this much: the longest train
CHUNK_OCTETS = 4 * MIB
READING_OCTETS = 2 * MIB  # of chunks that are read into and soon free again: two of the longest reads
_PAGE_OCTETS = 4 * KIB  # the smallest there are: one octet of each is enough to have it
_BLOCKS = 4  # of those that are used again: an application that has one while the next is filled needs two
_BLOCK_STEP = 64 * KIB  # blocks of nearly the same size are of one size
_PIECE_OCTETS = 256 * KIB  # touched at a time beside other work: some 0.1 ms
# From here on numpy asks for huge pages, which cost no less than others to have, but less to use.
_HUGE_OCTETS = 4 * MIB
_POPULATE_WRITE = 23  # MADV_POPULATE_WRITE: all pages by one call, in two thirds of the time of a fault for each


def _references(chunks: list[Octets]) -> list[int]:
    """What is counted for each, by one call: hundreds may be held behind a gap, and all are looked at each time."""
    return list(map(sys.getrefcount, chunks))


# What is counted for a chunk that only the list refers to. Interpreters differ in what they count beside it, so it is
# found out: one too many here and octets that somebody reads would be written over.
[_FREE_REFERENCES] = _references([np.empty(1, np.uint8)])


def _untouched(octets: int) -> Octets:
    """Memory for a chunk."""
    if octets >= _HUGE_OCTETS:
        return np.empty(octets, np.uint8)
    return np.ndarray((octets,), np.uint8, mmap.mmap(-1, octets, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))


def _touch(chunk: Octets, at: int, end: int) -> None:
    """Have the memory from `at` to `end`, both at pages, there now, so that the packet path meets no page fault."""
    mapped = chunk.base
    try:
        if isinstance(mapped, mmap.mmap):
            mapped.madvise(_POPULATE_WRITE, at, end - at)
            return
    except OSError:
        pass  # a kernel that does not know that; one that has no memory left says so to whoever touches it
    chunk[at:end:_PAGE_OCTETS] = 0


class Arena:
    """Chunks of `chunk_octets`, made when needed, and as many at once as `warm_octets` fill. `chunks` says how many there are.

    With `oldest_first` they are expected to be let go in the order in which they were filled, as by a window.
    """

    def __init__(self, chunk_octets: int = CHUNK_OCTETS, *, warm_octets: int = 0, oldest_first: bool = False) -> None:
        self._chunk_octets = chunk_octets
        self._oldest_first = oldest_first
        self.octets = 0  # of all chunks
        self._others: list[Octets] = [self._new_chunk(chunk_octets) for _ in range(warm_octets // chunk_octets)]
        self._chunk = self._new_chunk(chunk_octets)
        self._view = self._chunk.data  # it refers to the chunk, so it goes when that is left
        self._at = 0
        self._cold: tuple[Octets, int] | None = None  # a chunk in the making, and up to where it was touched

    @property
    def chunks(self) -> int:
        """Chunks in existence, free ones included."""
        return len(self._others) + 1

    @property
    def left_octets(self) -> int:
        """What still fits the chunk that is being filled."""
        return self._chunk.nbytes - self._at

    def _new_chunk(self, octets: int) -> Octets:
        chunk = _untouched(octets)
        self.octets += octets
        _touch(chunk, 0, octets)
        return chunk

    def warm_up(self, octets: int) -> bool:
        """Touch a piece of one more chunk where all hold less than `octets`; says whether they did."""
        if self._cold is None:
            if self.octets + self._chunk_octets > octets:
                return False
            self._cold = _untouched(self._chunk_octets), 0
        chunk, at = self._cold
        end = min(at + _PIECE_OCTETS, chunk.nbytes)
        _touch(chunk, at, end)
        self._cold = chunk, end
        if end >= chunk.nbytes:
            self._others.insert(0, chunk)  # for when all others are in use
            self.octets += chunk.nbytes
            self._cold = None
        return True

    def room(self, octets: int = ROOM) -> tuple[Octets, int]:
        """A chunk and the offset at which `octets` may be written."""
        if self._at + octets > self._chunk.nbytes:
            self._next_chunk(octets)
        return self._chunk, self._at

    def reading_room(self, behind: int = 0) -> tuple[Octets, int, memoryview]:
        """The same for a read, with as much behind it for another, and so much behind that which nobody reads to; and the octets of the first.

        That view is let go of before the next read.
        """
        if self._at + 2 * ROOM + behind > self._chunk.nbytes:
            self._next_chunk(2 * ROOM + behind)
        at = self._at
        return self._chunk, at, self._view[at : at + ROOM]

    def put(self, packet: bytes) -> tuple[Octets, int]:
        """Keep a copy of a packet; says where."""
        octets = len(packet)
        if self._at + octets > self._chunk.nbytes:
            self._next_chunk(octets)
        at = self._at
        self._at = end = at + octets
        self._view[at:end] = packet
        return self._chunk, at

    def keep(self, octets: int) -> None:
        """Advance behind octets that were written and are to stay."""
        self._at += octets

    def keep_if_current(self, chunk: Octets, octets: int) -> None:
        """Advance behind a read that was kept, unless the arena has moved to another chunk since."""
        if chunk is self._chunk:
            self._at += octets

    def _next_chunk(self, octets: int) -> None:
        others, size, at = self._others, max(octets, self._chunk_octets), -1
        others.append(self._chunk)
        del self._view, self._chunk
        counts, places = _references(others), range(len(others))  # a window's are in use but for the oldest
        if not self._oldest_first:  # what was used last is still in a processor's cache
            counts, places = counts[::-1], places[::-1]
        for _ in range(counts.count(_FREE_REFERENCES)):
            at = counts.index(_FREE_REFERENCES, at + 1)
            if others[places[at]].nbytes >= size:
                self._chunk = others.pop(places[at])
                break
        else:
            self._chunk = self._new_chunk(size)
        self._view = self._chunk.data
        self._at = 0


class BlockPool:
    """Memory for what is copied out of packets: blocks for one use each, and for another when nothing refers to them any more.

    The system's allocator gives blocks of this size back to the kernel, and takes a page fault for each 4 KB when they are
    wanted again. Only the last few are remembered here, so whoever keeps what it got pins no more than that.
    """

    def __init__(self) -> None:
        self._blocks: list[Octets] = []

    def take(self, octets: int) -> Octets:
        """So many octets of any content, in a block at most twice as large. Small ones, and those larger than what is read at once, are of the allocator."""
        if not _BLOCK_STEP <= octets <= READING_OCTETS:
            return np.empty(octets, np.uint8)
        size = -(-octets // _BLOCK_STEP) * _BLOCK_STEP
        blocks = self._blocks
        for index, count in enumerate(_references(blocks)):
            if count == _FREE_REFERENCES and size <= blocks[index].nbytes <= 2 * size:
                return blocks[index][:octets]
        blocks.append(np.empty(size, np.uint8))
        if len(blocks) > _BLOCKS:
            del blocks[0]
        return blocks[-1][:octets]
