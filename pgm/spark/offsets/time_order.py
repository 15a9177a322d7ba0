"""Ends of a micro-batch such that no row left out was received before a row that is taken.

The core gets the receive times of batches, and asks for those of single packets only where the batches of several sessions
overlap at the cut. `received` never falls within a session: a time that does counts as the latest one before it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import attrs
import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.int64]
_UNLIMITED = 1 << 62


@attrs.frozen
class TimedBlock:
    """Sqns `first` to `end - 1` of a session, in `rows` rows at most, received from `low_us` to `high_us`."""

    key: str
    first: int
    end: int
    rows: int
    low_us: int
    high_us: int


@attrs.frozen
class PacketTimes:
    """Packets of a block: sqn, number of sqns, number of rows and receive time of each."""

    sqns: Numbers
    counts: Numbers
    rows: Numbers
    times_us: Numbers


@attrs.frozen
class ReadLimits:
    """Largest numbers of sqns and of rows in a micro-batch; None: any number."""

    sqns: int | None = None
    rows: int | None = None

    @property
    def most(self) -> Numbers:
        """Both limits as numbers."""
        return np.array([_UNLIMITED if one is None else one for one in (self.sqns, self.rows)], np.int64)


@attrs.frozen
class TimeCut:
    """Sqn behind the last taken one by session, and the receive time of the newest row that is taken, approximately."""

    ends: dict[str, int]
    reached_us: int


PacketReads = Callable[[TimedBlock], PacketTimes]


def cut_by_time(
    blocks: Sequence[TimedBlock], limits: ReadLimits, until_us: int | None, packets_of: PacketReads
) -> TimeCut:
    """Return the ends of the rows that come first.

    Rows received after `until_us` are left. The limits hold, but at least one sqn is taken. The blocks of a session
    follow each other in sqns and in times.
    """
    bound = _UNLIMITED if until_us is None else until_us
    waiting = sorted((one for one in blocks if one.low_us <= bound), key=lambda one: (one.low_us, one.key, one.first))
    taken, pool = _Taken(limits.most), _Pool()
    at = _fitting(waiting, taken.room)
    following = _next_time(waiting, at, bound)
    for block in waiting[:at]:
        if block.high_us <= following:
            taken.add(block)
        else:
            pool.add(block, packets_of(block))
    while at < len(waiting) and not pool.exceeds(taken.room, waiting[at].low_us):
        block = waiting[at]
        at += 1
        if pool.is_empty and limits.rows is None and block.high_us <= _next_time(waiting, at, bound):
            taken.add_part(block)  # no packet of another session comes between
            return TimeCut(taken.ends, taken.reached_us)
        pool.add(block, packets_of(block))
    pool.cut(taken, _next_time(waiting, at, bound))
    return TimeCut(taken.ends, taken.reached_us)


def _next_time(waiting: Sequence[TimedBlock], at: int, bound: int) -> int:
    """Return the earliest time of a block that is not looked at."""
    return waiting[at].low_us if at < len(waiting) else bound


def _fitting(waiting: Sequence[TimedBlock], room: Numbers) -> int:
    """Return how many of the first blocks fit together."""
    have = np.zeros(2, np.int64)
    for at, block in enumerate(waiting):
        have += np.array((block.end - block.first, block.rows))
        if (have > room).any():
            return at
    return len(waiting)


@attrs.define(eq=False)
class _Taken:
    """Ends of sessions so far, and the room that is left."""

    room: Numbers
    ends: dict[str, int] = attrs.field(factory=dict)
    reached_us: int = 0

    def add(self, block: TimedBlock) -> None:
        self.room = self.room - np.array((block.end - block.first, block.rows))
        self.ends[block.key] = block.end
        self.reached_us = max(self.reached_us, block.high_us)

    def add_part(self, block: TimedBlock) -> None:
        """Take the first sqns of a block, as far as there is room; one at least if nothing is taken so far."""
        sqns = int(self.room[0]) or (0 if self.ends else 1)
        if sqns:
            end = self.ends[block.key] = min(block.end, block.first + sqns)
            share = (end - block.first) / (block.end - block.first)
            self.reached_us = max(self.reached_us, block.low_us + int(share * (block.high_us - block.low_us)))


class _Pool:
    """Packets of blocks that overlap."""

    def __init__(self) -> None:
        self._keys: list[str] = []
        self._parts: list[PacketTimes] = []

    @property
    def is_empty(self) -> bool:
        return not self._parts

    def add(self, block: TimedBlock, packets: PacketTimes) -> None:
        times = np.clip(np.maximum.accumulate(packets.times_us), block.low_us, block.high_us)
        self._keys.append(block.key)
        self._parts.append(attrs.evolve(packets, times_us=times))

    def exceeds(self, room: Numbers, bound: int) -> bool:
        """Return whether the packets received up to a time are more than there is room for."""
        had = np.zeros(2, np.int64)
        for part in self._parts:
            chosen = part.times_us <= bound
            had += np.array((part.counts[chosen].sum(), part.rows[chosen].sum()))
        return bool((had > room).any())

    def cut(self, taken: _Taken, bound: int) -> None:
        """Take packets in the order of time up to `bound`, as far as there is room."""
        if self.is_empty:
            return
        numbers = {key: at for at, key in enumerate(dict.fromkeys(self._keys))}
        owners = np.concatenate(
            [np.full(len(part.sqns), numbers[key]) for key, part in zip(self._keys, self._parts, strict=True)]
        )
        sqns, counts, rows, times = (
            np.concatenate([getattr(part, name) for part in self._parts]) for name in _PACKET_COLUMNS
        )
        order = np.lexsort((sqns, owners, times))
        owners, sqns, counts, rows, times = (values[order] for values in (owners, sqns, counts, rows, times))
        most = int(np.searchsorted(times, bound, "right"))
        had = np.cumsum(np.stack((counts, rows)), axis=1)
        fitting = min(
            most, *(int(np.searchsorted(sums, room, "right")) for sums, room in zip(had, taken.room, strict=True))
        )
        for key, number in numbers.items():
            ends = (sqns + counts)[:fitting][owners[:fitting] == number]
            if len(ends):
                taken.ends[key] = int(ends[-1])
        if fitting:
            taken.reached_us = max(taken.reached_us, int(times[fitting - 1]))
        if fitting < most:
            left = taken.room - (had[:, fitting - 1] if fitting else 0)
            part = min(int(left[0]), int(counts[fitting]) - 1) if left[1] > 0 else 0
            if part <= 0 and not taken.ends:  # one packet at least
                part = min(int(counts[fitting]), max(1, int(taken.room[0])))
            if part > 0:
                taken.ends[list(numbers)[owners[fitting]]] = int(sqns[fitting]) + part


_PACKET_COLUMNS = tuple(field.name for field in attrs.fields(PacketTimes))
