"""Losses of all members of a crowd, drawn from the random streams of the members' own links."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

_BLOCK = 1024  # packets; links draw in blocks of this length, and a longer draw has the same words
_DRAWS = 1 << 32

Members = npt.NDArray[np.intp]


class CrowdLosses:
    """Members that lose each packet of a segment. `seeds` are those of the members' links.

    Each link has a generator of its own, which `Injector` reads word by word. The members' words are those of
    `Injector`, so a member of a crowd loses the packets that the same receiver would lose with a link of its own, as
    long as the same packets come. Generators are made again when more packets come: a million would take 2.5 GB.
    """

    def __init__(self, seeds: Sequence[str], loss: float, expected: int) -> None:
        self._seeds = seeds
        self._threshold = round(loss * _DRAWS)
        self._drawn = 0  # packets
        self._next = 0
        self._begins: npt.NDArray[np.intp] = np.zeros(1, np.intp)  # for each packet: where its losers begin
        self._losers: npt.NDArray[np.uint32] = np.zeros(0, np.uint32)
        self._draw(expected)

    def _draw(self, packets: int) -> None:
        end = -(-packets // _BLOCK) * _BLOCK
        rows, members = [], []
        for member, seed in enumerate(self._seeds):
            words = np.frombuffer(random.Random(seed).randbytes(4 * end), "<u4")[self._drawn :]
            lost = np.flatnonzero(words < self._threshold)
            rows.append(lost)
            members.append(np.full(len(lost), member, np.uint32))
        packet = np.concatenate(rows)
        order = np.argsort(packet, kind="stable")
        counts = np.bincount(packet, minlength=end - self._drawn)
        self._begins = np.concatenate([self._begins, self._begins[-1] + np.cumsum(counts)])
        self._losers = np.concatenate([self._losers, np.concatenate(members)[order]])
        self._drawn = end

    def take(self, count: int) -> tuple[Members, Members]:
        """Take the next `count` packets. Return the number of the packet, from 0, and the member, for each loss."""
        begin = self._next
        end = self._next = begin + count
        if end > self._drawn:
            self._draw(max(end, 2 * self._drawn))
        if count == 1:  # most trains are one control packet or one repair
            alone = self._losers[self._begins[begin] : self._begins[end]].astype(np.intp)
            return np.zeros(len(alone), np.intp), alone
        marks = self._begins[begin : end + 1]
        losers = self._losers[marks[0] : marks[-1]].astype(np.intp)
        return np.repeat(np.arange(count), np.diff(marks)), losers
