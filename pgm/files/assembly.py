"""Puts blocks of a transfer together from the packets that carry their units, and knows which are right.

A block is written when it is whole. Of those that are not, some are kept in memory, so that a repair that comes late finds
the rest; the oldest gives way and counts as lacking.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import attrs
import numpy as np
import numpy.typing as npt

from pgm.files.manifest import Extent, Manifest
from pgm.files.packets import few
from pgm.wire.train import Octets


class BlockSink(Protocol):
    """Where whole blocks go."""

    def write(self, block: int, first: int, octets: Octets) -> None:
        """Write octets of a block from place `first` of the transfer on."""

    def take_back(self, block: int) -> None:
        """What was written of a block is wrong."""


@attrs.define(eq=False)
class _Stage:
    """A block in the making: its octets, and which units are there."""

    octets: Octets
    units: npt.NDArray[np.bool_]
    lacks: int


class FileAssembly:
    """All blocks of one transfer. At most `most` are in the making."""

    def __init__(self, manifest: Manifest, store: BlockSink, most: int) -> None:
        self._manifest = manifest
        self._store = store
        self._most = most
        self._stages: dict[int, _Stage] = {}
        self._spare: list[Octets] = []
        count = manifest.blocks
        self._units = manifest.block // manifest.unit
        self.whole = np.zeros(count, np.bool_)  # blocks that were written
        self.right = np.zeros(count, np.bool_)  # and have the digest that they should
        self._own = np.zeros((count, manifest.digest.octets), np.uint8)
        self._said = np.zeros((count, manifest.digest.octets), np.uint8)
        self._is_said = np.zeros(count, np.bool_)
        self.rejects = 0  # packets that do not fit
        self.damaged = 0  # blocks that were whole and wrong
        self.evicted = 0  # blocks that gave way

    def add(self, place: int, payloads: Octets) -> list[int]:
        """Take in packets in a row, the first of which begins at `place`; returns the blocks that turned out right."""
        count, size = payloads.shape
        manifest, unit = self._manifest, self._manifest.unit
        end = place + (count - 1) * unit + size
        is_last = count == 1 and end == manifest.octets and size < unit
        if place % unit or not size or end > manifest.octets or (size != unit and not is_last):
            self.rejects += count
            return []
        right, at = [], 0
        while at < count:
            block, inside = divmod(place // unit + at, self._units)
            many = min(count - at, self._units - inside)
            if not self.whole[block] and self._put(block, inside, payloads[at : at + many]):
                right += self._check(block)
            at += many
        return right

    def _put(self, block: int, inside: int, payloads: Octets) -> bool:
        """Put units into a block; says whether it is whole now, and then it is written."""
        stage = self._stages.get(block) or self._begin(block)
        many, size = payloads.shape
        unit, until = self._manifest.unit, inside + len(payloads)
        stage.octets[inside * unit : inside * unit + many * size].reshape(many, size)[:] = payloads
        units = stage.units[inside:until]
        stage.lacks -= many - int(np.count_nonzero(units))
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
        """All octets of a block are on the disk, or about to be."""
        self._own[block] = np.frombuffer(self._manifest.digest.of(octets), np.uint8)
        self.whole[block] = True

    def add_digests(self, first: int, octets: Octets) -> list[int]:
        """Take in the digests of blocks in a row, from number `first` on; returns the blocks that turned out right."""
        size = self._manifest.digest.octets
        count = len(octets) // size
        if not count or len(octets) % size or first + count > len(self.whole):
            self.rejects += 1
            return []
        self._said[first : first + count] = octets.reshape(count, size)
        self._is_said[first : first + count] = True
        return [found for block in range(first, first + count) for found in self._check(block)]

    def _check(self, block: int) -> list[int]:
        if not self.whole[block] or not self._is_said[block] or self.right[block]:
            return []
        if np.array_equal(self._own[block], self._said[block]):
            self.right[block] = True
            return [block]
        self.whole[block] = False
        self.damaged += 1
        self._store.take_back(block)
        return []

    @property
    def is_complete(self) -> bool:
        """Whether every block is right."""
        return bool(self.right.all())

    @property
    def right_octets(self) -> int:
        """Octets of the blocks that are right."""
        return self._octets_of(self.right)

    @property
    def whole_octets(self) -> int:
        """Octets of the blocks that are whole, right or not known to be."""
        return self._octets_of(self.whole)

    def _octets_of(self, blocks: npt.NDArray[np.bool_]) -> int:
        count = int(np.count_nonzero(blocks))
        if not count:
            return 0
        short = len(blocks) * self._manifest.block - self._manifest.octets
        return count * self._manifest.block - (short if blocks[-1] else 0)

    def missing(self) -> list[Extent]:
        """What must be sent again: of blocks that nobody has vouched for, their last unit, which brings their digest."""
        return few(list(self._missing()), most=None)

    def _missing(self) -> Iterator[Extent]:
        unit = self._manifest.unit
        lacking = np.flatnonzero(~self.whole)
        for run in np.split(lacking, np.flatnonzero(np.diff(lacking) != 1) + 1) if len(lacking) else ():
            yield from self._missing_of(int(run[0]), int(run[-1]) + 1)
        for block in np.flatnonzero(self.whole & ~self.right).tolist():
            first, end = self._manifest.span(block)
            yield first + (end - 1 - first) // unit * unit, end

    def _missing_of(self, first_block: int, end_block: int) -> Iterator[Extent]:
        """Blocks in a row that are not whole, but for the units that are in memory."""
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
