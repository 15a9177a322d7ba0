"""Runs that wait in a receive window, with memory reserved for missing packets.

A run may have holes: sqns that are missing and for which the run has memory. A repair is copied into its hole. One lost
packet therefore does not cut a read into pieces that each cost a delivery.

The window's recovery knows which sqns are missing. Holes are invisible outside the window, because a run that is handed
on ends before the first hole. Only rows that hold no packet are ever written to.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from pgm.core.structures.run_store import RunStore
from pgm.wire.train import DataWithGaps, Run


class HeldRuns(RunStore):
    """Disjoint runs by sqn, complete except for holes. Counts of packets and octets include the holes."""

    def add(self, run: Run) -> None:
        """Insert a run that overlaps held runs only in their holes."""
        if not self._runs or run.first >= self._runs[-1].end:
            super().add(run)
            return
        for rest in self._put_in_holes(run):
            super().add(rest)

    def insert(self, runs: Sequence[Run]) -> None:
        """Insert ordered runs owned by the caller that overlap held runs only in holes."""
        rest = [part for run in runs for part in self._put_in_holes(run)]
        if rest:
            super().insert(rest)

    def fill(self, pieces: DataWithGaps, base: int) -> None:
        """Insert pieces (first sqn `base`) in the holes of held runs. Keep the read buffer only if one finds none."""
        data, left = pieces.data, []
        source, stride, payload_at = data.buffer.data, data.stride, data.payload_at
        # end sqn, buffer and origin of the run that took the previous piece
        holder_end, target, origin = base, source, 0
        for (first, end), row in zip(pieces.spans, pieces.rows, strict=True):
            low, high = base + first, base + end
            if high > holder_end:
                index = bisect_right(self._firsts, low)
                holder = self._runs[index - 1] if index else None
                is_alike = holder is not None and (holder.stride, holder.payload_at) == (stride, payload_at)
                if holder is None or not is_alike or high > holder.first + holder.count:
                    left.append(Run(low, end - first, data.buffer, data.offset + row * stride, stride, payload_at))
                    continue
                holder_end, target = holder.first + holder.count, holder.buffer.data
                origin = holder.offset - holder.first * stride
            at = data.offset + row * stride
            target[origin + low * stride : origin + high * stride] = source[at : at + (end - first) * stride]
        if left:
            data.keeping.is_kept = True
            self.insert(left)

    def _put_in_holes(self, run: Run) -> list[Run]:
        """Copy packets into the holes of held runs. Return the parts that found no hole."""
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
                else:  # the packet size or header size differs from the surrounding run
                    self.cut_out(first, end)
                    left.append(run.part(first, end))
            first = end
        return left
