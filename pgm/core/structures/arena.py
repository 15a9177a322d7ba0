"""Memory for trains: chunks that are filled in order and recycled.

A chunk is recycled once it has no other reference. A fresh array for each read costs page faults for ever, a warm chunk
costs none. Consecutive trains lie side by side, so runs merge and leave again as one slice. A chunk is free when the
arena holds its only reference. Every view of a chunk, also an application's, prevents its recycling, so octets in use
are never overwritten.
"""

from __future__ import annotations

import mmap
import sys
from typing import Any, Protocol

import numpy as np

from pgm.units import KIB, MIB
from pgm.wire.train import Octets

ROOM = 64 * KIB  # room for every read: the longest train
CHUNK_OCTETS = 4 * MIB
READING_OCTETS = 2 * MIB  # size of chunks that are read into and soon free again: two of the longest reads
_PAGE_OCTETS = 4 * KIB  # the smallest page size; a write to one octet of a page maps the page
_BLOCKS = 4  # recycled blocks: an application that uses one block while the next is filled needs two
_BLOCK_STEP = 64 * KIB  # sizes of blocks are multiples of this
_PIECE_OCTETS = 256 * KIB  # touched in one step of `warm_up`, in some 0.1 ms
# From this size on numpy requests huge pages, which take as long to map as others, but less time to use.
_HUGE_OCTETS = 4 * MIB
_POPULATE_WRITE = 23  # MADV_POPULATE_WRITE: maps all pages in one call, faster than by a fault for each page


def _references(chunks: list[Octets]) -> list[int]:
    """Return each chunk's reference count, in one call for all: hundreds may be held after a gap."""
    return list(map(sys.getrefcount, chunks))


# The reference count of a chunk that only the list refers to. Interpreters differ in the references that they add, so the
# number is measured. With a number too high the arena would overwrite octets that are still being read.
[_FREE_REFERENCES] = _references([np.empty(1, np.uint8)])


class ChunkMemory(Protocol):
    """Memory from which an arena makes its chunks."""

    def existing(self) -> list[Octets]:
        """Return chunks that exist already, once. Views may refer to them."""

    def untouched(self, octets: int) -> Octets:
        """Return memory for a chunk, whose pages are not yet mapped."""

    def touch(self, chunk: Octets, at: int, end: int) -> None:
        """Map the pages of a new chunk from `at` to `end`, both page-aligned. The packet path then meets no page fault."""

    def reuse(self, chunk: Octets) -> None:
        """Note that the octets of a chunk will be overwritten."""


class ProcessMemory:
    """Memory of this process alone."""

    def existing(self) -> list[Octets]:
        """Return nothing."""
        return []

    def untouched(self, octets: int) -> Octets:
        """Return memory for a chunk, whose pages are not yet mapped."""
        if octets >= _HUGE_OCTETS:
            return np.empty(octets, np.uint8)
        return np.ndarray((octets,), np.uint8, mmap.mmap(-1, octets, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))

    def touch(self, chunk: Octets, at: int, end: int) -> None:
        """Map the pages of a new chunk from `at` to `end`."""
        mapped = chunk.base
        if not (isinstance(mapped, mmap.mmap) and populate(mapped, at, end)):
            chunk[at:end:_PAGE_OCTETS] = 0

    def reuse(self, chunk: Octets) -> None:
        """Do nothing."""


def populate(mapped: mmap.mmap, at: int, end: int) -> bool:
    """Map pages for writing in one call. Return False on a kernel without this call, or without free memory."""
    try:
        mapped.madvise(_POPULATE_WRITE, at, end - at)
    except OSError:
        return False  # writes to the pages map them, or fail
    return True


PROCESS_MEMORY = ProcessMemory()


class Arena:
    """Chunks of `chunk_octets`, made on demand, `warm_octets` of them at once.

    With `oldest_first` the chunks are expected to become free in the order in which they were filled, as in a window.
    """

    def __init__(
        self,
        chunk_octets: int = CHUNK_OCTETS,
        *,
        warm_octets: int = 0,
        oldest_first: bool = False,
        memory: ChunkMemory = PROCESS_MEMORY,
    ) -> None:
        self._chunk_octets = chunk_octets
        self._oldest_first = oldest_first
        self._memory = memory
        self._others: list[Octets] = memory.existing()
        self.octets = sum([chunk.nbytes for chunk in self._others])  # total size of all chunks
        self._chunk = self._free_chunk(chunk_octets)
        while self.octets <= warm_octets - chunk_octets + self._chunk.nbytes:
            self._others.append(self._new_chunk(chunk_octets))
        self._view = self._chunk.data  # a reference to the chunk, so it must be deleted with `_chunk`
        self._at = 0
        self._cold: tuple[Octets, int] | None = None  # a chunk that is being mapped, and the end of its mapped part

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for a tape, without the view of the current chunk."""
        return {name: value for name, value in self.__dict__.items() if name != "_view"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore a saved arena."""
        self.__dict__.update(state)
        self._view = self._chunk.data

    @property
    def all_chunks(self) -> list[Octets]:
        """Return the chunks. Most of their octets may never have been written."""
        return [*self._others, self._chunk, *(() if self._cold is None else (self._cold[0],))]

    @property
    def chunks(self) -> int:
        """Return the number of chunks, including free ones."""
        return len(self._others) + 1

    @property
    def left_octets(self) -> int:
        """Return the octets that are left in the current chunk."""
        return self._chunk.nbytes - self._at

    def _new_chunk(self, octets: int) -> Octets:
        chunk = self._memory.untouched(octets)
        self.octets += octets
        self._memory.touch(chunk, 0, octets)
        return chunk

    def warm_up(self, octets: int) -> bool:
        """Map a piece of one more chunk while all chunks hold less than `octets`. Return whether they did."""
        if self._cold is None:
            if self.octets + self._chunk_octets > octets:
                return False
            self._cold = self._memory.untouched(self._chunk_octets), 0
        chunk, at = self._cold
        end = min(at + _PIECE_OCTETS, chunk.nbytes)
        self._memory.touch(chunk, at, end)
        self._cold = chunk, end
        if end >= chunk.nbytes:
            self._others.insert(0, chunk)  # used last, when all others are in use
            self.octets += chunk.nbytes
            self._cold = None
        return True

    def room(self, octets: int = ROOM) -> tuple[Octets, int]:
        """Return a chunk, and the offset at which `octets` may be written."""
        if self._at + octets > self._chunk.nbytes:
            self._next_chunk(octets)
        return self._chunk, self._at

    def reading_room(self, behind: int = 0) -> tuple[Octets, int, memoryview]:
        """Return a chunk, an offset and a view of `ROOM` octets there, for a read.

        The chunk has `ROOM` octets after the view for a second read, and `behind` unused octets after those. The caller
        must drop the view before the next read.
        """
        if self._at + 2 * ROOM + behind > self._chunk.nbytes:
            self._next_chunk(2 * ROOM + behind)
        at = self._at
        return self._chunk, at, self._view[at : at + ROOM]

    def put(self, packet: bytes) -> tuple[Octets, int]:
        """Copy a packet into a chunk. Return the chunk and the offset."""
        octets = len(packet)
        if self._at + octets > self._chunk.nbytes:
            self._next_chunk(octets)
        at = self._at
        self._at = end = at + octets
        self._view[at:end] = packet
        return self._chunk, at

    def take(self, octets: int) -> tuple[Octets, int]:
        """Return a chunk, and the offset of `octets` there that the caller writes."""
        chunk, at = self.room(octets)
        self._at += octets
        return chunk, at

    def keep(self, octets: int) -> None:
        """Advance past octets that were written and must stay."""
        self._at += octets

    def keep_until(self, chunk: Octets, end: int) -> None:
        """Advance past a read that must stay up to `end`, unless another chunk is current now, or that was done."""
        if chunk is self._chunk and end > self._at:
            self._at = end

    def _next_chunk(self, octets: int) -> None:
        self._others.append(self._chunk)
        del self._view, self._chunk
        self._chunk = self._free_chunk(max(octets, self._chunk_octets))
        self._view = self._chunk.data
        self._at = 0

    def _free_chunk(self, size: int) -> Octets:
        """Return a chunk of at least `size` octets that nothing refers to, or a new one."""
        others, at = self._others, -1
        counts, places = _references(others), range(len(others))  # all chunks of a window but the oldest are in use
        if not self._oldest_first:  # the chunk used last is still in a processor's cache
            counts, places = counts[::-1], places[::-1]
        for _ in range(counts.count(_FREE_REFERENCES)):
            at = counts.index(_FREE_REFERENCES, at + 1)
            if others[places[at]].nbytes >= size:
                chunk = others.pop(places[at])
                self._memory.reuse(chunk)
                return chunk
        return self._new_chunk(size)


class BlockPool:
    """Pool of blocks for copies out of packets.

    A block is reused once it has no other reference. The system's allocator returns blocks of this size to the kernel,
    and a new block costs a page fault for each 4 KB. The pool refers to the last few blocks only, so a caller that
    keeps a block pins no other memory.
    """

    def __init__(self) -> None:
        self._blocks: list[Octets] = []

    def take(self, octets: int) -> Octets:
        """Return undefined octets, in a block of at most twice `octets`; the allocator gives small and huge ones."""
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
