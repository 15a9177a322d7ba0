"""Memory that a node shares with its writer process: a queue of items, and totals.

Putting a train copies its octets once: no system call, no lock between processes, no Arrow. The ring has one writer and
one reader. Each side owns one of two positions, which only grow.

The content outlives both sides. The reader continues after the writer was killed. A new reader continues at the
position where a dead reader stopped.
"""

from __future__ import annotations

import enum
import mmap
import os
import struct
import threading

import attrs
import numpy as np

from pgm.core.effects import LossCause
from pgm.units import MIB
from pgm.wire.train import Octets

_WORDS_OCTETS = mmap.PAGESIZE  # 64-bit words that both sides read; the items follow
_WRITTEN, _READ, _ASLEEP, _OVERRUN, _CLOSING, _ROWS, _LOSS_ROWS, _OCTETS, _SYNCS, _UNWRITTEN, _LOST = range(11)
_CAUSES = tuple(LossCause)

_ITEM = struct.Struct(
    # kind, octets of the feed, begin, first, count, time, stride or index of the cause, offset of the payloads
    "<IIqqqqII"
)
_ALIGNED = 8
_NO_OCTETS: Octets = np.zeros(0, np.uint8)
HELD = -1
# Beyond this position an empty ring makes the writer start again at position 0. A mostly empty queue then stays in the
# processor's cache, and takes no more memory than it needs.
_LOW_OCTETS = 4 * MIB
_LARGEST_SHARE = 4  # an item takes at most this share of the ring; longer runs are split
# after an overrun, putting resumes once this share is free: a few long losses, not many short ones
_ROOM_AGAIN_SHARE = 4


class RingItemKind(enum.IntEnum):
    """Kind of an item."""

    REST = 0  # no more items up to the end of the memory; the next item is at position 0
    RUN = 1
    LOSS = 2
    OVERRUN = 3  # a loss because this ring had no room
    CLOSED = 4
    REACHED = 5  # the sqn that the session had reached when the writer process died


@attrs.define(eq=False)
class RingItem:
    """Item to record. Nothing writes to an item; a frozen class would cost more for every train."""

    kind: RingItemKind
    feed: bytes
    begin: int  # the first sqn put of the session, or `HELD` if part of the session is in the archive
    first: int
    count: int
    at_us: int
    value: int = 0  # a run's stride, or the index of a loss's cause
    payload_at: int = 0
    octets: Octets = _NO_OCTETS  # of a run


@attrs.define
class RingTally:
    """Totals of a recording."""

    rows: int = 0
    loss_rows: int = 0
    octets: int = 0
    syncs: int = 0
    lost: dict[str, int] = attrs.field(factory=dict)
    unwritten: int = 0  # packets that the disk refused, and whose rows of losses it has not taken yet


class SharedRing:
    """Shared memory as both sides see it. `room` is the capacity in octets of items."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self._memory = mmap.mmap(fd, 0)
        self.room = len(self._memory) - _WORDS_OCTETS
        self._words = memoryview(self._memory)[:_WORDS_OCTETS].cast("q")
        self._items = memoryview(self._memory)[_WORDS_OCTETS:]
        self._octets: Octets = np.frombuffer(self._memory, np.uint8)[_WORDS_OCTETS:]
        self._order = threading.Lock()
        self._order.acquire()

    @classmethod
    def new(cls, room: int) -> SharedRing:
        """Create shared memory of at least `room` octets, for processes that inherit the descriptor."""
        fd = os.memfd_create("pgm-recorder")
        os.ftruncate(fd, _WORDS_OCTETS + -(-room // mmap.PAGESIZE) * mmap.PAGESIZE)
        return cls(fd)

    def close(self) -> None:
        """Close the descriptor. The memory stays mapped while views of it exist."""
        os.close(self.fd)

    def _in_order(self) -> None:
        """Keep stores before this call visible to the other side before later stores.

        x86 keeps that order anyway. Elsewhere, releasing and taking a lock is the only barrier that the interpreter
        offers.
        """
        self._order.release()
        self._order.acquire()

    @property
    def waiting_octets(self) -> int:
        """Octets that were put and not taken."""
        return self._words[_WRITTEN] - self._words[_READ]

    # The writing side

    @property
    def largest(self) -> int:
        """Octets of the longest run that may be one item."""
        return self.room // _LARGEST_SHARE

    @property
    def has_room_again(self) -> bool:
        """Whether enough is free for recording to resume for a while."""
        return self.waiting_octets <= self.room - self.room // _ROOM_AGAIN_SHARE

    def put(self, item: RingItem) -> bool:
        """Put an item; return False, and put nothing, if there is no room."""
        words, room = self._words, self.room
        octets = item.octets
        size, data_at = octets.size, _ITEM.size + len(item.feed)
        need = -(-(data_at + size) // _ALIGNED) * _ALIGNED
        written, read = words[_WRITTEN], words[_READ]
        at = written % room
        rest = room - at
        skipped = rest if need > rest or (written == read and at >= max(_LOW_OCTETS, need)) else 0
        if written + skipped + need - read > room:
            return False
        if skipped:
            if skipped >= _ITEM.size:
                _ITEM.pack_into(self._items, at, RingItemKind.REST, 0, 0, 0, 0, 0, 0, 0)
            at = 0
        head = item.kind, len(item.feed), item.begin, item.first, item.count, item.at_us, item.value, item.payload_at
        _ITEM.pack_into(self._items, at, *head)
        self._items[at + _ITEM.size : at + data_at] = item.feed
        self._octets[at + data_at : at + data_at + size] = octets
        self._in_order()
        words[_WRITTEN] = written + skipped + need
        self._in_order()
        return True

    def wants_waking(self) -> bool:
        """Whether the reader sleeps and has not been woken yet; clears the mark."""
        if not self._words[_ASLEEP]:
            return False
        self._words[_ASLEEP] = 0
        return True

    # The reading side

    def get(self) -> RingItem | None:
        """Return the next item with its octets copied; None if there is none."""
        words, room = self._words, self.room
        while (read := words[_READ]) < words[_WRITTEN]:
            self._in_order()
            at = read % room
            kind = RingItemKind.REST
            if room - at >= _ITEM.size:
                kind_number, length, begin, first, count, at_us, value, payload_at = _ITEM.unpack_from(self._items, at)
                kind = RingItemKind(kind_number)
            if kind is RingItemKind.REST:
                words[_READ] = read + room - at
                continue
            feed_at, data_at = at + _ITEM.size, at + _ITEM.size + length
            size = count * value if kind is RingItemKind.RUN else 0
            octets = self._octets[data_at : data_at + size].copy()
            feed = bytes(self._items[feed_at:data_at])
            item = RingItem(kind, feed, begin, first, count, at_us, value, payload_at, octets)
            self._in_order()
            words[_READ] = read + -(-(data_at + size - at) // _ALIGNED) * _ALIGNED
            return item
        return None

    def sleeps(self, is_asleep: bool) -> None:
        """Mark whether the reader has to be woken."""
        self._words[_ASLEEP] = is_asleep
        self._in_order()

    # State that both sides share

    @property
    def has_overrun(self) -> bool:
        """Whether an item found no room, and is to be put as a loss."""
        return bool(self._words[_OVERRUN])

    @has_overrun.setter
    def has_overrun(self, value: bool) -> None:
        self._words[_OVERRUN] = value

    @property
    def is_closing(self) -> bool:
        """Whether no more items will be put. Losses of items that found no room are still put."""
        return bool(self._words[_CLOSING])

    @is_closing.setter
    def is_closing(self, value: bool) -> None:
        self._words[_CLOSING] = value

    @property
    def tally(self) -> RingTally:
        """Totals so far, of all readers of this ring."""
        words = self._words
        lost = {cause.value: count for at, cause in enumerate(_CAUSES) if (count := words[_LOST + at])}
        return RingTally(words[_ROWS], words[_LOSS_ROWS], words[_OCTETS], words[_SYNCS], lost, words[_UNWRITTEN])

    @tally.setter
    def tally(self, tally: RingTally) -> None:
        words = self._words
        words[_ROWS], words[_LOSS_ROWS] = tally.rows, tally.loss_rows
        words[_OCTETS], words[_SYNCS] = tally.octets, tally.syncs
        words[_UNWRITTEN] = tally.unwritten
        for at, cause in enumerate(_CAUSES):
            words[_LOST + at] = tally.lost.get(cause.value, 0)


def cause_at(cause_index: int) -> LossCause:
    """Return the cause with the given index."""
    return _CAUSES[cause_index]


def place_of(cause: LossCause) -> int:
    """Return the index of a cause, which is the `value` of a loss item."""
    return _CAUSES.index(cause)
