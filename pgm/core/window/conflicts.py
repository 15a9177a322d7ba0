"""Different copies of one packet in a receive window: found, and reported in order.

Only packets that come again are compared, so a stream without duplicates costs nothing but the memory of what was
delivered last. A packet that is still held is compared in place. A delivered packet is compared as long as the window
keeps it (`conflict_keep_bytes`).

Without keys no node can know which copy is the source's. The first copy that was delivered stays delivered, and the
application is told at the point that the stream has reached. If neither was delivered, both are dropped and the packet
is requested like a missing one: an attacker's packet that came ahead of the true one then costs a repair, not a message.
If the repair differs from a later copy again, the packet is lost.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Iterator
from operator import itemgetter

import attrs
import numpy as np

from pgm.core.effects import Conflict
from pgm.core.session_context import SessionContext
from pgm.core.structures.packet_copies import differing
from pgm.core.structures.ranges import RangeTable, Span, SqnRange
from pgm.core.structures.run_store import RunStore
from pgm.units import KIB, NEVER
from pgm.wire.formats import DATA_HEADER_OCTETS
from pgm.wire.train import Octets, Run

# Shorter runs are copied: they come from slow streams, and each would keep a whole chunk of memory from its next use.
_SMALL_OCTETS = 8 * KIB
_MOST_ENTRIES = 512
_CHUNKS = 2  # chunks of receive memory that long runs keep
_SQN = itemgetter(0)
_Copy = tuple[int, int, int, bytes]  # count, stride, offset of the payload, packets


class DeliveredPackets:
    """The packets of a session that were delivered last, for comparison.

    At most `most_octets`, in 512 runs and single packets. Long runs stay in receive memory, in two chunks at most.
    """

    def __init__(self, most_octets: int) -> None:
        self._most_octets = most_octets
        # First sqn, number of the chunk, octets, packets. In the order of delivery, thus of sqns but in unordered streams.
        self._entries: deque[tuple[int, int, int, Run | _Copy]] = deque()
        self._is_sorted = True
        self._octets = 0
        self._chunk: Octets | None = None  # of the newest long run
        self._chunk_number = 0

    @property
    def first(self) -> int:
        """Return the oldest sqn that may be kept; 0 if the order of delivery does not tell."""
        if not self._is_sorted:
            return 0
        return self._entries[0][0] if self._entries else NEVER

    def add(self, run: Run) -> None:
        """Keep a run that was just delivered."""
        octets = run.count * run.stride
        if octets <= _SMALL_OCTETS:
            packets = run.buffer.data[run.offset : run.offset + octets].tobytes()
            self._append(run.first, octets, (run.count, run.stride, run.payload_at, packets))
            return
        if run.buffer is not self._chunk:
            self._chunk = run.buffer
            self._chunk_number += 1
        self._append(run.first, octets, run)

    def add_single(self, sqn: int, packet: bytes) -> None:
        """Keep a plain packet that was just delivered."""
        self._append(sqn, len(packet), (1, len(packet), DATA_HEADER_OCTETS, packet))

    def _append(self, sqn: int, octets: int, packets: Run | _Copy) -> None:
        entries = self._entries
        if entries and entries[-1][0] > sqn:
            self._is_sorted = False
        entries.append((sqn, self._chunk_number, octets, packets))
        self._octets += octets
        while entries and (
            self._octets > self._most_octets
            or len(entries) > _MOST_ENTRIES
            or entries[0][1] <= self._chunk_number - _CHUNKS
        ):
            self._octets -= entries.popleft()[2]

    def parts(self, first: int, end: int) -> Iterator[Run]:
        """Yield the kept packets among `first` to `end - 1`."""
        entries, at = self._entries, 0
        if self._is_sorted:
            at = max(0, bisect_right(entries, first, key=_SQN) - 1)
        for index in range(at, len(entries)):
            sqn, _, _, packets = entries[index]
            if sqn >= end:
                if self._is_sorted:
                    break
                continue
            run = packets if isinstance(packets, Run) else _run_of(sqn, packets)
            if run.end > first:
                yield run.part(max(first, sqn), min(end, run.end))


def _run_of(sqn: int, copy: _Copy) -> Run:
    count, stride, payload_at, packets = copy
    return Run(sqn, count, np.frombuffer(packets, np.uint8), 0, stride, payload_at)


@attrs.define(eq=False)
class _Dispute(SqnRange):
    """Sqns of which two copies were dropped, until the stream has passed them."""

    is_reported: bool = False


class ConflictDetector:
    """Conflicts of one session's packets. Bounded by `rxw_gaps` ranges that wait for their place in the stream."""

    def __init__(self, context: SessionContext) -> None:
        self._tsi = context.tsi
        self._counters = context.counters
        self._most_disputes = context.parameters.rxw_gaps
        self.delivered = DeliveredPackets(context.parameters.conflict_keep_bytes)
        self._disputes: RangeTable[_Dispute] = RangeTable()
        self._told: RangeTable[SqnRange] = RangeTable()  # delivered sqns that were reported
        self.has_disputes = False  # a look at a table takes longer

    def compare_held(self, held: RunStore, runs: Iterable[Run]) -> tuple[list[Span], list[Span]]:
        """Return the sqns of which held packets differ from `runs`: those to request, and those that are lost.

        The latter differ for the second time, or there are too many conflicts to report them in their places.
        """
        fresh: list[Span] = []
        again: list[Span] = []
        for run in runs:
            for first, end in differing(held.parts(run.first, run.end), run):
                self._counters.conflict_sqns += end - first
                new = self._disputes.uncovered(first, end)
                again += [(entry.first, entry.end) for entry in self._disputes.within(first, end)]
                has_room = len(self._disputes) < self._most_disputes
                (fresh if has_room else again).extend(new)
                if has_room:
                    for low, high in new:
                        self._disputes.add(_Dispute(low, high))
                    self.has_disputes = True
        return fresh, sorted(again)

    def compare_delivered(self, runs: Iterable[Run]) -> list[Conflict]:
        """Return the conflicts of `runs` with delivered packets. Each sqn is reported once."""
        conflicts: list[Conflict] = []
        for run in runs:
            for first, end in differing(self.delivered.parts(run.first, run.end), run):
                for low, high in self._told.uncovered(first, end):
                    self._told.add(SqnRange(low, high))
                    self._counters.conflict_sqns += high - low
                    conflicts.append(Conflict(self._tsi, low, high - low, is_delivered=True))
        if conflicts:
            self._told.discard(0, self.delivered.first)  # these are compared no more
        return conflicts

    def reach(self, sqn: int) -> tuple[list[Conflict], int]:
        """Note that delivery has reached `sqn`. Return the conflicts there, and the sqn where delivery must stop next."""
        conflicts: list[Conflict] = []
        while (oldest := self._disputes.oldest) is not None:
            if oldest.first > sqn:
                return conflicts, oldest.first
            if not oldest.is_reported:
                oldest.is_reported = True
                conflicts.append(Conflict(self._tsi, oldest.first, oldest.count, is_delivered=False))
            if oldest.end > sqn:
                return conflicts, oldest.end
            self._disputes.remove(oldest)
        self.has_disputes = False
        return conflicts, NEVER
