"""What waits in a receive window: runs that may have holes, sqns that are missing and for which there is room in memory.

A repair is copied to where its packet is missing, so that one lost packet does not cut what came in one read into pieces that
each cost a delivery. Which sqns are missing the window's recovery knows. Nobody but the window sees a hole: what is handed on ends
before it. Only rows that hold no packet are ever written to.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from pgm.core.structures.run_store import RunStore
from pgm.wire.train import DataWithGaps, Run


class HeldRuns(RunStore):
    """Disjoint runs by sqn, of which all packets are there but those of holes. What is counted of them counts holes, too."""

    def add(self, run: Run) -> None:
        """Insert a run that overlaps nothing but holes."""
        if not self._runs or run.first >= self._runs[-1].end:
            super().add(run)
            return
        for rest in self._put_in_holes(run):
            super().add(rest)

    def insert(self, runs: Sequence[Run]) -> None:
        """Insert runs of the caller's own, in order, that overlap nothing but holes."""
        rest = [part for run in runs for part in self._put_in_holes(run)]
        if rest:
            super().insert(rest)

    def fill(self, some: DataWithGaps, base: int) -> None:
        """Insert pieces, the first packet of which is sqn `base`, that overlap nothing but holes. What all goes to holes needs its own place no more."""
        data, left = some.data, []
        source, stride, payload_at = data.buffer.data, data.stride, data.payload_at
        holder_end, room, origin = base, source, 0  # of the run that the piece before went to
        for (first, end), row in zip(some.spans, some.rows, strict=True):
            low, high = base + first, base + end
            if high > holder_end:
                index = bisect_right(self._firsts, low)
                holder = self._runs[index - 1] if index else None
                is_alike = holder is not None and (holder.stride, holder.payload_at) == (stride, payload_at)
                if holder is None or not is_alike or high > holder.first + holder.count:
                    left.append(Run(low, end - first, data.buffer, data.offset + row * stride, stride, payload_at))
                    continue
                holder_end, room = holder.first + holder.count, holder.buffer.data
                origin = holder.offset - holder.first * stride
            at = data.offset + row * stride
            room[origin + low * stride : origin + high * stride] = source[at : at + (end - first) * stride]
        if left:
            data.keeping.is_kept = True
            self.insert(left)

    def _put_in_holes(self, run: Run) -> list[Run]:
        """Copy what there is room for to where it is missing; returns what is left."""
        left: list[Run] = []
        first, stride, firsts = run.first, run.stride, self._firsts
        last = first + run.count
        while first < last:
            index = bisect_right(firsts, first)
            holder = self._runs[index - 1] if index else None
            if holder is None or (holder_end := holder.first + holder.count) <= first:
                end = min(last, firsts[index]) if index < len(firsts) else last
                left.append(run.part(first, end))
            else:
                end = min(last, holder_end)
                if holder.stride == stride and holder.payload_at == run.payload_at:
                    at, taken_at = (
                        holder.offset + (first - holder.first) * stride,
                        run.offset + (first - run.first) * stride,
                    )
                    octets = (end - first) * stride
                    holder.buffer[at : at + octets] = run.buffer[taken_at : taken_at + octets]
                else:  # of another size than what is around it
                    self.cut_out(first, end)
                    left.append(run.part(first, end))
            first = end
        return left

    def cut_out(self, first: int, end: int) -> None:
        """Leave out what is missing for good, or comes to lie elsewhere."""
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
