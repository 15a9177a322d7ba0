"""Assembly of the blocks of a transfer from packets, with a check of each block by its digest.

A block is written when it is complete. A limited number of incomplete blocks stays in memory, so that a late repair can
complete them. Beyond the limit the oldest incomplete block is dropped and counts as missing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import attrs
import numpy as np
import numpy.typing as npt

from pgm.files.manifest import Extent, Manifest
from pgm.files.packets import covering_ranges
from pgm.wire.train import Octets


class BlockSink(Protocol):
    """Destination of complete blocks."""

    def write(self, block: int, first: int, octets: Octets) -> None:
        """Write the octets of a block from place `first` of the transfer on."""

    def take_back(self, block: int) -> None:
        """Note that the written octets of a block are wrong."""


@attrs.define(eq=False)
class _Stage:
    """Incomplete block: its octets, a mask of the units that arrived, and the number of missing units."""

    octets: Octets
    units: npt.NDArray[np.bool_]
    lacks: int


class FileAssembly:
    """Assembly of all blocks of one transfer. At most `most` blocks are incomplete in memory."""

    def __init__(self, manifest: Manifest, store: BlockSink, most: int) -> None:
        self._manifest = manifest
        self._store = store
        self._most = most
        self._stages: dict[int, _Stage] = {}
        self._spare: list[Octets] = []
        count = manifest.blocks
        self._units = manifest.block // manifest.unit
        self.whole = np.zeros(count, np.bool_)  # mask of the blocks that were written
        self.right = np.zeros(count, np.bool_)  # mask of the written blocks with the right digest
        self._own_digests = np.zeros((count, manifest.digest.octets), np.uint8)
        self._source_digests = np.zeros((count, manifest.digest.octets), np.uint8)
        self._has_digest = np.zeros(count, np.bool_)
        self.rejects = 0  # packets that do not fit
        self.damaged = 0  # complete blocks with a wrong digest
        self.evicted = 0  # incomplete blocks that were dropped

    def add(self, place: int, payloads: Octets) -> list[int]:
        """Add successive packets, a (count, octets) array, from `place` on. Return the blocks that proved right."""
        count, size = payloads.shape
        manifest, unit = self._manifest, self._manifest.unit
        end = place + (count - 1) * unit + size
        is_last = count == 1 and end == manifest.octets and size < unit
        if place % unit or not size or end > manifest.octets or (size != unit and not is_last):
            self.rejects += count
            return []
        right, at = [], 0
        while at < count:
            block, first_unit = divmod(place // unit + at, self._units)
            units = min(count - at, self._units - first_unit)
            if not self.whole[block] and self._put(block, first_unit, payloads[at : at + units]):
                right += self._check(block)
            at += units
        return right

    def open_rows(self, place: int, rows: int) -> int | None:
        """Return the first of successive packets, from `place` on, of the last block if that is not written yet."""
        block, units = divmod(place // self._manifest.unit + rows - 1, self._units)
        return None if block >= len(self.whole) or self.whole[block] else max(0, rows - 1 - units)

    def _put(self, block: int, first_unit: int, payloads: Octets) -> bool:
        """Put units into a block, and write the block if it is complete. Return whether it is."""
        stage = self._stages.get(block) or self._begin(block)
        count, size = payloads.shape
        unit, end_unit = self._manifest.unit, first_unit + len(payloads)
        stage.octets[first_unit * unit : first_unit * unit + count * size].reshape(count, size)[:] = payloads
        units = stage.units[first_unit:end_unit]
        stage.lacks -= count - int(np.count_nonzero(units))
        units[:] = True
        if stage.lacks:
            return False
        del self._stages[block]
        first, end = self._manifest.span(block)
        octets = stage.octets[: end - first]
        self.have(block, octets)
        self._store.write(block, first, octets)
        self._spare.append(stage.octets)
        return True

    def _begin(self, block: int) -> _Stage:
        if len(self._stages) >= self._most:
            oldest = next(iter(self._stages))
            self._spare.append(self._stages.pop(oldest).octets)
            self.evicted += 1
        octets = self._spare.pop() if self._spare else np.empty(self._manifest.block, np.uint8)
        first, end = self._manifest.span(block)
        units = -(-(end - first) // self._manifest.unit)
        stage = self._stages[block] = _Stage(octets, np.zeros(units, np.bool_), units)
        return stage

    def have(self, block: int, octets: Octets) -> None:
        """Note that all octets of a block are on the disk, or about to be."""
        self._own_digests[block] = np.frombuffer(self._manifest.digest.of(octets), np.uint8)
        self.whole[block] = True

    def add_digests(self, first: int, octets: Octets) -> list[int]:
        """Add the digests of successive blocks from number `first` on. Return the blocks that proved right."""
        size = self._manifest.digest.octets
        count = len(octets) // size
        if not count or len(octets) % size or first + count > len(self.whole):
            self.rejects += 1
            return []
        self._source_digests[first : first + count] = octets.reshape(count, size)
        self._has_digest[first : first + count] = True
        return [right for block in range(first, first + count) for right in self._check(block)]

    def _check(self, block: int) -> list[int]:
        if not self.whole[block] or not self._has_digest[block] or self.right[block]:
            return []
        if np.array_equal(self._own_digests[block], self._source_digests[block]):
            self.right[block] = True
            return [block]
        self.whole[block] = False
        self.damaged += 1
        self._store.take_back(block)
        return []

    @property
    def is_complete(self) -> bool:
        """Return whether every block is right."""
        return bool(self.right.all())

    @property
    def right_octets(self) -> int:
        """Return the octets of the blocks that are right."""
        return self._octets_of(self.right)

    @property
    def whole_octets(self) -> int:
        """Return the octets of all complete blocks, checked or not."""
        return self._octets_of(self.whole)

    def _octets_of(self, blocks: npt.NDArray[np.bool_]) -> int:
        count = int(np.count_nonzero(blocks))
        if not count:
            return 0
        short = len(blocks) * self._manifest.block - self._manifest.octets
        return count * self._manifest.block - (short if blocks[-1] else 0)

    def missing(self) -> list[Extent]:
        """Return the octet ranges to send again. A complete block without a digest needs only its last unit."""
        return covering_ranges(list(self._missing()), most=None)

    def _missing(self) -> Iterator[Extent]:
        unit = self._manifest.unit
        incomplete = np.flatnonzero(~self.whole)
        for run in np.split(incomplete, np.flatnonzero(np.diff(incomplete) != 1) + 1) if len(incomplete) else ():
            yield from self._missing_of(int(run[0]), int(run[-1]) + 1)
        for block in np.flatnonzero(self.whole & ~self.right).tolist():
            first, end = self._manifest.span(block)
            yield first + (end - 1 - first) // unit * unit, end

    def _missing_of(self, first_block: int, end_block: int) -> Iterator[Extent]:
        """Yield the missing ranges of successive incomplete blocks, without the units in memory."""
        begun = sorted(block for block in self._stages if first_block <= block < end_block)
        at, unit = first_block * self._manifest.block, self._manifest.unit
        for block in begun:
            first, end = self._manifest.span(block)
            if at < first:
                yield at, first
            edges = np.flatnonzero(np.diff(np.concatenate(([True], self._stages[block].units, [True]))))
            for a, b in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
                yield first + a * unit, min(end, first + b * unit)
            at = end
        end = self._manifest.span(end_block - 1)[1]
        if at < end:
            yield at, end
