"""Store of runs in sqn order, for windows and caches. `pinned_octets` counts whole chunks, as they are pinned."""

from __future__ import annotations

import collections
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from pgm.core.structures.ranges import Span
from pgm.units import NEVER
from pgm.wire.formats import DATA_HEADER_OCTETS
from pgm.wire.train import Octets, Run

_FEW_RUNS = 32  # runs that `stride_of` checks: a window has one for each chunk, a cache perhaps one for each packet


def _copy(run: Run) -> Run:
    """Return a separate object, because a caller may hold `run`. Runs in the store grow by joins."""
    return Run(run.first, run.count, run.buffer, run.offset, run.stride, run.payload_at)


class RunStore:
    """Disjoint runs, ordered by sqn. Neighbours in sqns and memory are joined."""

    def __init__(self) -> None:
        self._firsts: list[int] = []
        self._runs: list[Run] = []
        self._pins: dict[int, int] = {}  # chunk identity -> runs in it
        self.octets = 0
        self.pinned_octets = 0
        self.packets = 0

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore a saved store, whose chunks are other objects now."""
        self.__dict__.update(state)
        self._pins = dict(collections.Counter(id(run.buffer) for run in self._runs))

    def __len__(self) -> int:
        return len(self._runs)

    def __iter__(self) -> Iterator[Run]:
        return iter(self._runs)

    @property
    def oldest(self) -> Run | None:
        """Return the run with the lowest sqns; None if the store is empty."""
        return self._runs[0] if self._runs else None

    @property
    def newest(self) -> Run | None:
        """Return the run with the highest sqns; None if the store is empty."""
        return self._runs[-1] if self._runs else None

    def add(self, run: Run) -> None:
        """Insert a run that overlaps no other."""
        if self._runs and self._runs[-1].is_continued_by(run):
            self._runs[-1].count += run.count
            self.octets += run.octets
            self.packets += run.count
            return
        index = bisect_left(self._firsts, run.first)
        before = self._runs[index - 1] if index else None
        assert before is None or before.end <= run.first, (before, run)
        assert index == len(self._firsts) or run.end <= self._firsts[index], run
        self.octets += run.octets
        self.packets += run.count
        if before is not None and before.is_continued_by(run):
            before.count += run.count
            return
        self._firsts.insert(index, run.first)
        self._runs.insert(index, _copy(run))
        self._pin(run)

    def extend(self, runs: Sequence[Run]) -> None:
        """Take over runs in order, above all others, in one chunk; none may continue the run before it."""
        if not runs:
            return
        self._count(runs)
        if self._runs and self._runs[-1].is_continued_by(runs[0]):
            self._runs[-1].count += runs[0].count
            runs = runs[1:]
        self._firsts += [run.first for run in runs]
        self._runs += runs
        for run in runs:
            self._pin(run)

    def insert(self, runs: Sequence[Run]) -> None:
        """Insert runs in order that overlap no other, without joins. The store takes over the objects."""
        self._count(runs)
        index = 0
        for run in runs:
            index = bisect_left(self._firsts, run.first, index)
            self._firsts.insert(index, run.first)
            self._runs.insert(index, run)
            self._pin(run)

    def _count(self, runs: Sequence[Run]) -> None:
        self.octets += sum([run.count * run.stride for run in runs])
        self.packets += sum([run.count for run in runs])

    def append_alone(self, sqn: int, buffer: Octets, offset: int, stride: int, payload_at: int) -> None:
        """Insert one packet above all others, as `add` does, without an object if it continues the last run."""
        last = self._runs[-1] if self._runs else None
        if (
            last is None
            or last.buffer is not buffer
            or last.offset + last.count * stride != offset
            or last.stride != stride
            or last.first + last.count != sqn
            or not payload_at == last.payload_at == DATA_HEADER_OCTETS
        ):
            self.add(Run(sqn, 1, buffer, offset, stride, payload_at))
            return
        last.count += 1
        self.octets += stride
        self.packets += 1

    def find(self, sqn: int) -> Run | None:
        """Return the run that holds `sqn`; None if there is none."""
        runs = self._runs
        if runs and runs[-1].first <= sqn:  # the usual case for a source that sends
            return runs[-1] if sqn < runs[-1].first + runs[-1].count else None
        index = bisect_right(self._firsts, sqn) - 1
        return runs[index] if index >= 0 and runs[index].end > sqn else None

    def parts(self, first: int, end: int) -> Iterator[Run]:
        """Yield the stored runs among `first` to `end - 1`, in order."""
        runs, index = self._runs, max(0, bisect_right(self._firsts, first) - 1)
        while index < len(runs):
            run = runs[index]
            index += 1
            low, stride = run.first, run.stride
            if low >= end:
                break
            high, offset = low + run.count, run.offset
            if low < first:
                offset += (first - low) * stride
                low = first
            if high > end:
                high = end
            if low < high:  # a separate object even for a whole run
                yield Run(low, high - low, run.buffer, offset, stride, run.payload_at)

    def stride_of(self, first: int, end: int) -> int:
        """Return the octets of each packet `first` to `end - 1`; 0 unless all are stored, of one size, in few runs."""
        index = max(0, bisect_right(self._firsts, first) - 1)
        stride = 0
        for run in self._runs[index : index + _FEW_RUNS]:
            if run.first > first or run.stride != (stride or run.stride):
                return 0
            first, stride = run.first + run.count, run.stride
            if first >= end:
                return stride
        return 0

    def copy_of(self, spans: Sequence[Span], stride: int) -> Octets:
        """Return copies of the spans' packets in order, as a (packets, `stride`) array; `stride` is of `stride_of`."""
        index, pieces = bisect_right(self._firsts, spans[0][0]) - 1, []
        run = self._runs[index]
        octets, origin, run_end = run.buffer.data, run.offset - run.first * stride, run.first + run.count
        for first, end in spans:
            while first < end:
                while first >= run_end:
                    index += 1
                    run = self._runs[index]
                    octets, origin, run_end = run.buffer.data, run.offset - run.first * stride, run.first + run.count
                until = min(end, run_end)
                pieces.append(octets[origin + first * stride : origin + until * stride])
                first = until
        # Joined slices are faster than rows taken by numpy while the packets are in no cache.
        return np.frombuffer(bytearray().join(pieces), np.uint8).reshape(-1, stride)

    def take(self, sqn: int, most_packets: int) -> Run | None:
        """Remove and return up to `most_packets` of the oldest run; None if it does not begin with `sqn`."""
        if not self._runs or self._runs[0].first != sqn:
            return None
        return self.cut_oldest(most_packets)

    def take_whole(self, sqn: int, most_octets: int, end: int = NEVER) -> list[Run]:
        """Remove and return the oldest whole runs, from `sqn` without a gap, below `end`, within `most_octets`."""
        taken: list[Run] = []
        for run in self._runs:
            octets = run.count * run.stride
            if run.first != sqn or octets > most_octets or sqn + run.count > end:
                break
            taken.append(run)
            sqn += run.count
            most_octets -= octets
            self.octets -= octets
            self.packets -= run.count
        if not taken:
            return taken
        del self._firsts[: len(taken)], self._runs[: len(taken)]
        for run in taken:
            self._unpin(run)
        return taken

    def cut_oldest(self, most_packets: int) -> Run:
        """Remove and return up to `most_packets` of the oldest run."""
        run = self._runs[0]
        count = min(run.count, most_packets)
        taken = run.part(run.first, run.first + count)
        self.octets -= taken.octets
        self.packets -= count
        if count == run.count:
            del self._firsts[0], self._runs[0]
            self._unpin(run)
        else:
            self._runs[0] = run.part(run.first + count, run.end)
            self._firsts[0] += count
        return taken

    def drop_from(self, sqn: int) -> None:
        """Remove `sqn` and all packets above it."""
        while self._runs and self._runs[-1].end > sqn:
            run = self._runs[-1]
            dropped = run.end - max(run.first, sqn)
            self.octets -= dropped * run.stride
            self.packets -= dropped
            if dropped < run.count:
                run.count -= dropped
                return
            del self._firsts[-1], self._runs[-1]
            self._unpin(run)

    def drop_before(self, sqn: int) -> None:
        """Remove all packets below `sqn`."""
        while self._runs and self._runs[0].first < sqn:
            self.cut_oldest(sqn - self._runs[0].first)

    def cut_out(self, first: int, end: int) -> None:
        """Remove sqns `first` to `end - 1` wherever they are stored."""
        index = bisect_right(self._firsts, first)
        index -= index > 0 and self._runs[index - 1].end > first
        while index < len(self._runs) and self._firsts[index] < end:
            run = self._runs[index]
            left = [
                run.part(low, high)
                for low, high in ((run.first, min(run.end, first)), (max(run.first, end), run.end))
                if low < high
            ]
            for part in left:
                self._pin(part)
            self._unpin(run)
            packets = run.count - sum([part.count for part in left])
            self.packets -= packets
            self.octets -= packets * run.stride
            self._runs[index : index + 1] = left
            self._firsts[index : index + 1] = [part.first for part in left]
            index += len(left)

    def _pin(self, run: Run) -> None:
        key = id(run.buffer)
        if key not in self._pins:
            self.pinned_octets += run.buffer.nbytes
        self._pins[key] = self._pins.get(key, 0) + 1

    def _unpin(self, run: Run) -> None:
        key = id(run.buffer)
        self._pins[key] -= 1
        if not self._pins[key]:
            del self._pins[key]
            self.pinned_octets -= run.buffer.nbytes
