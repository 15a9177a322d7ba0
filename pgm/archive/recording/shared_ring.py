"""Memory that a node shares with the process that writes its archive: a queue of what is to be recorded, and what was.

Putting a train in is one copy of its octets: no system call, no lock between processes, nothing of Arrow. There is one
writer and one reader; each owns one of two positions, which only grow. What each of them put there outlives it: the reader goes on
when the writer was killed, and another reader goes on where one that died has stopped.
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

_WORDS_OCTETS = mmap.PAGESIZE  # numbers of 64 bits that both sides read, before the items
_WRITTEN, _READ, _ASLEEP, _OVERRUN, _CLOSING, _ROWS, _LOSS_ROWS, _OCTETS, _SYNCS, _LOST = range(10)
_CAUSES = tuple(LossCause)

_ITEM = struct.Struct(
    "<IIqqqqII"
)  # kind, octets of the feed, begin, first, count, time, stride or cause, place of payloads
_ALIGNED = 8
HELD = -1
# Behind this place the writer begins anew when everything was read, so that a queue which is mostly empty stays in the
# processor's cache and takes no more memory than it needs.
_LOW_OCTETS = 4 * MIB
_LARGEST_SHARE = 4  # of the whole, at most, for one item: longer runs are cut
_ROOM_AGAIN_SHARE = 4  # what found it full waits until so much is free: a few long losses, not many short ones


class RingItemKind(enum.IntEnum):
    """What an item is."""

    REST = 0  # nothing more up to the end of the memory; the next item is at its beginning
    RUN = 1
    LOSS = 2
    OVERRUN = 3  # a loss since there was no room here
    CLOSED = 4
    REACHED = 5  # the session had come so far when the process that wrote it died


@attrs.frozen(eq=False)
class RingItem:
    """One thing to record. `octets` are those of a run; `value` its stride, or the place of a loss's cause.

    `begin` is the session's first sqn that was put, or `HELD` if something of it is in the archive.
    """

    kind: RingItemKind
    feed: bytes
    begin: int
    first: int
    count: int
    at_us: int
    value: int
    payload_at: int
    octets: Octets


@attrs.define
class RingTally:
    """What was recorded."""

    rows: int = 0
    loss_rows: int = 0
    octets: int = 0
    syncs: int = 0
    lost: dict[str, int] = attrs.field(factory=dict)


class SharedRing:
    """The shared memory, as either side sees it. `room` is how many octets of items fit."""

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
        """Shared memory of at least `room` octets, which only what inherits its descriptor can open."""
        fd = os.memfd_create("pgm-recorder")
        os.ftruncate(fd, _WORDS_OCTETS + -(-room // mmap.PAGESIZE) * mmap.PAGESIZE)
        return cls(fd)

    def close(self) -> None:
        """Let it go. The memory stays mapped while somebody looks at it."""
        os.close(self.fd)

    def _in_order(self) -> None:
        """What was stored before this is seen by the other side before what is stored behind it.

        x86 does so anyway; elsewhere releasing and taking a lock is what an interpreter has for it.
        """
        self._order.release()
        self._order.acquire()

    @property
    def waiting_octets(self) -> int:
        """Octets that were put and not taken."""
        return self._words[_WRITTEN] - self._words[_READ]

    # The side that puts

    @property
    def largest(self) -> int:
        """Octets of the longest run that may be put as one."""
        return self.room // _LARGEST_SHARE

    @property
    def has_room_again(self) -> bool:
        """Whether so much is free that recording can go on for a while."""
        return self.waiting_octets <= self.room - self.room // _ROOM_AGAIN_SHARE

    def put(
        self,
        kind: RingItemKind,
        feed: bytes,
        begin: int,
        first: int,
        count: int,
        at_us: int,
        value: int = 0,
        payload_at: int = 0,
        octets: Octets | None = None,
    ) -> bool:
        """Put an item; false if there is no room for it, and nothing was put."""
        words, room = self._words, self.room
        size = 0 if octets is None else octets.size
        data_at = _ITEM.size + len(feed)
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
        _ITEM.pack_into(self._items, at, kind, len(feed), begin, first, count, at_us, value, payload_at)
        self._items[at + _ITEM.size : at + data_at] = feed
        if octets is not None:
            self._octets[at + data_at : at + data_at + size] = octets
        self._in_order()
        words[_WRITTEN] = written + skipped + need
        self._in_order()
        return True

    def wants_waking(self) -> bool:
        """Whether the reader sleeps and nobody has woken it yet."""
        if not self._words[_ASLEEP]:
            return False
        self._words[_ASLEEP] = 0
        return True

    # The side that takes

    def get(self) -> RingItem | None:
        """The next item, its octets copied; None if there is none."""
        words, room = self._words, self.room
        while (read := words[_READ]) < words[_WRITTEN]:
            self._in_order()
            at = read % room
            kind = RingItemKind.REST
            if room - at >= _ITEM.size:
                told, length, begin, first, count, at_us, value, payload_at = _ITEM.unpack_from(self._items, at)
                kind = RingItemKind(told)
            if kind is RingItemKind.REST:
                words[_READ] = read + room - at
                continue
            feed_at, data_at = at + _ITEM.size, at + _ITEM.size + length
            size = count * value if kind is RingItemKind.RUN else 0
            item = RingItem(
                kind,
                bytes(self._items[feed_at:data_at]),
                begin,
                first,
                count,
                at_us,
                value,
                payload_at,
                self._octets[data_at : data_at + size].copy(),
            )
            self._in_order()
            words[_READ] = read + -(-(data_at + size - at) // _ALIGNED) * _ALIGNED
            return item
        return None

    def sleeps(self, is_asleep: bool) -> None:
        """Say whether the reader has to be woken."""
        self._words[_ASLEEP] = is_asleep
        self._in_order()

    # What both tell each other

    @property
    def has_overrun(self) -> bool:
        """Whether something found no room, and is to be put as a loss."""
        return bool(self._words[_OVERRUN])

    @has_overrun.setter
    def has_overrun(self, value: bool) -> None:
        self._words[_OVERRUN] = value

    @property
    def is_closing(self) -> bool:
        """Whether nothing more will be put, but losses of what found no room."""
        return bool(self._words[_CLOSING])

    @is_closing.setter
    def is_closing(self, value: bool) -> None:
        self._words[_CLOSING] = value

    @property
    def tally(self) -> RingTally:
        """What was recorded so far, by all readers there were."""
        words = self._words
        lost = {cause.value: count for at, cause in enumerate(_CAUSES) if (count := words[_LOST + at])}
        return RingTally(words[_ROWS], words[_LOSS_ROWS], words[_OCTETS], words[_SYNCS], lost)

    @tally.setter
    def tally(self, found: RingTally) -> None:
        words = self._words
        words[_ROWS], words[_LOSS_ROWS], words[_OCTETS], words[_SYNCS] = (
            found.rows,
            found.loss_rows,
            found.octets,
            found.syncs,
        )
        for at, cause in enumerate(_CAUSES):
            words[_LOST + at] = found.lost.get(cause.value, 0)


def cause_at(place: int) -> LossCause:
    """The cause that a loss's `value` means."""
    return _CAUSES[place]


def place_of(cause: LossCause) -> int:
    """The `value` by which a loss of this cause is put."""
    return _CAUSES.index(cause)
