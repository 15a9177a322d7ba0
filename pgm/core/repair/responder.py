"""Answers to NAKs with RDATA: collect, send once, ignore echoes (RFC 5.3).

Sources use a responder with the transmit window, repairers with the cache. Each segment has its own responder.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Protocol

import attrs

from pgm.core.effects import Send, data
from pgm.core.repair.fair_share import FairShare
from pgm.core.repair.recent_repairs import RecentRepairs
from pgm.core.segment import Segment
from pgm.core.session_context import SessionContext
from pgm.core.structures.ranges import RangeTable, Span, SqnRange, merged, without
from pgm.units import MILLISECOND, NEVER
from pgm.wire.data_packets import as_rdata, build_rdata
from pgm.wire.formats import Nla
from pgm.wire.train import MAX_CONVOY_PACKETS, Octets, Run, in_whole_trains, packets_a_train

# Step of the drivers' timers. A repair due within one step would leave just as late, and cost a wake-up of its own.
TIMER_STEP_NS = MILLISECOND
_IN_A_ROW = 3  # trains of other repairs in a row while repairs beyond a share wait


class RepairStore(Protocol):
    """Store of the packets that a responder repairs."""

    def parts(self, first: int, end: int) -> Iterator[Run]:
        """Yield the stored runs among `first` to `end - 1`, in order."""

    def stride_of(self, first: int, end: int) -> int:
        """Return the octets of a packet, for `copy_of`; 0 unless all are stored, of one size, quick to locate."""

    def copy_of(self, spans: Sequence[Span], stride: int) -> Octets:
        """Return copies of the packets of spans in order. `stride_of` must have returned `stride` for their range."""


@attrs.define(eq=False)
class PendingRepair(SqnRange):
    """Sqns to repair, not before `due_ns`."""

    due_ns: int


class Responder:
    """Repairs that one session owes to one segment, or to one node on it by unicast."""

    def __init__(self, context: SessionContext, store: RepairStore, segment: Segment, to: Nla | None = None) -> None:
        self._store = store
        self._segment = segment
        self._to = to
        self._parameters = context.parameters
        self._counters = context.counters
        self._pending: RangeTable[PendingRepair] = RangeTable()
        # Repairs beyond an asker's share: those in `_pending` come first. The oldest are kept, as many as all shares of
        # one interval. Otherwise a flood of requests would occupy the repairs long after its end.
        self._late: RangeTable[PendingRepair] = RangeTable()
        self._in_a_row = 0  # trains of `_pending` since the last one of `_late`
        self._shares = FairShare(context)
        self._recent_repairs = RecentRepairs(context.parameters.rdata_ignore_ivl)
        self.deadline_ns = NEVER  # when the hold of the first owed repair ends; NEVER when none is owed
        self._stride = 0  # size of the packets that were requested last, in octets

    @property
    def pending_sqns(self) -> int:
        """Return the number of owed repairs, in sqns."""
        return self._pending.sqns + self._late.sqns

    def owes(self, first: int, end: int) -> bool:
        """Return whether any of `first` to `end - 1` is owed."""
        return self._pending.overlaps(first, end) or self._late.overlaps(first, end)

    def owed_within(self, first: int, end: int) -> list[Span]:
        """Return the owed sqns among `first` to `end - 1`."""
        owed = [
            (max(first, one.first), min(end, one.end))
            for table in (self._pending, self._late)
            for one in itertools.takewhile(lambda one: one.first < end, table.reaching(first))
        ]
        return merged(owed)

    def has_repaired_or_owes(self, first: int, end: int, now_ns: int) -> bool:
        """Return whether any of `first` to `end - 1` is owed, or was repaired so lately that a request is an echo."""
        self._recent_repairs.expire(now_ns)
        return self.owes(first, end) or self._recent_repairs.overlaps(first, end)

    def unanswered(self, first: int, end: int, now_ns: int) -> list[Span]:
        """Return the sqns among `first` to `end - 1` that are neither owed nor were repaired lately."""
        self._recent_repairs.expire(now_ns)
        return without(self._recent_repairs.uncovered(first, end), self.owed_within(first, end))

    def request(
        self, spans: Sequence[Span], now_ns: int, hold_ns: int | None = None, asker: Nla | None = None
    ) -> list[Span]:
        """Owe repairs for the stored sqns of `spans`, and return the other sqns.

        The spans are in order, given and returned. The repairs are due `hold_ns` from now at the latest, and further
        requests fill the train until then. By default the hold is `rdata_hold_ivl`, and there is none for a part that
        fills a train by itself. Requests of an `asker` beyond its share wait for other repairs, though not for all of
        them.
        """
        self._recent_repairs.expire(now_ns)
        if not spans:
            return []
        sqns = sum([end - first for first, end in spans])
        is_beyond = self._is_beyond(sqns, asker, now_ns)
        stride = self._store.stride_of(spans[0][0], spans[-1][1])
        return self._owe_each(spans, sqns, stride, now_ns, hold_ns, is_beyond=is_beyond)

    def answer(
        self, requests: Sequence[Sequence[Span]], room: tuple[int, int], trail: int, now_ns: int, asker: Nla
    ) -> Send | None:
        """Return RDATA for the spans of all requests at once, if possible.

        If not, the spans of each request are owed, as by `request`, and the result is None. All packets must have one
        size and fit in `room`, in octets and packets, and none may have been repaired lately. In addition no other
        repair may be owed, and the asker must be within its share. The hold must not exceed a step of a driver's timer,
        because data is sent now, and the repairs would be due with it.
        """
        self._recent_repairs.expire(now_ns)
        counts = [sum([end - first for first, end in spans]) for spans in requests]
        are_beyond = [self._is_beyond(count, asker, now_ns) for count in counts]
        if self.deadline_ns == NEVER and room[0] and self._parameters.rdata_hold_ivl <= TIMER_STEP_NS:
            spans, count = requests[0], counts[0]
            if len(requests) > 1:
                spans = _merged(requests)
                count = sum([end - first for first, end in spans])
            stride = self._store.stride_of(spans[0][0], spans[-1][1]) if count else 0
            is_fit = 0 < stride * count <= room[0] and count <= room[1] and True not in are_beyond
            if is_fit and not self._recent_repairs.overlaps_any(spans):
                self._stride = stride
                return self._repair(spans, stride, trail, now_ns)
        for spans, count, is_beyond in zip(requests, counts, are_beyond, strict=True):
            if spans:
                stride = self._store.stride_of(spans[0][0], spans[-1][1])
                self._owe_each(spans, count, stride, now_ns, None, is_beyond=is_beyond)
        return None

    def _repair(self, spans: Sequence[Span], stride: int, trail: int, now_ns: int) -> Send:
        rows = as_rdata(self._store.copy_of(spans, stride), trail)
        if len(rows) == len(spans):
            self._recent_repairs.note_scattered(spans, now_ns)
        else:
            self._recent_repairs.note(spans, now_ns)
        return self._sent(rows)

    def _is_beyond(self, sqns: int, asker: Nla | None, now_ns: int) -> bool:
        """Return whether `sqns` more requested sqns put an asker beyond its share."""
        return asker is not None and self._shares.is_beyond(asker, sqns * self._parameters.max_tpdu, now_ns)

    def _owe_each(
        self, spans: Sequence[Span], sqns: int, stride: int, now_ns: int, hold_ns: int | None, *, is_beyond: bool
    ) -> list[Span]:
        due = now_ns + (self._parameters.rdata_hold_ivl if hold_ns is None else hold_ns)
        per_train = packets_a_train(stride) if stride else 0
        is_uniform = stride > 0 and (hold_ns is not None or sqns < per_train)  # all stored, and due at the same time
        if is_uniform and not is_beyond and self._owe_apart(spans, due):
            self._stride = stride
            return []
        owe = self._owe_late if is_beyond else self._owe
        lacking: list[Span] = []
        for first, end in spans:
            at = first
            for part in self._store.parts(first, end):
                if part.first > at:
                    lacking.append((at, part.first))
                at = part.first + part.count
                if part.stride != stride:
                    stride, per_train = part.stride, packets_a_train(part.stride)
                self._stride = stride
                owe(part.first, at, now_ns if hold_ns is None and part.count >= per_train else due)
            if at < end:
                lacking.append((at, end))
        return lacking

    def _owe_apart(self, spans: Sequence[Span], due_ns: int) -> bool:
        """Owe repairs of spans in order, if no sqn is owed or was repaired lately. Return whether that is so."""
        if self._late.sqns or self._recent_repairs.overlaps_any(spans):
            return False
        if not self._pending.add_each_apart([PendingRepair(first, end, due_ns) for first, end in spans]):
            return False
        self.deadline_ns = min(self.deadline_ns, due_ns)
        return True

    def _owe(self, first: int, end: int, due_ns: int) -> None:
        if self._late.sqns:
            for owed in self._late.discard(first, end):  # another asker, within its share, requests it too
                self._pending.add(owed)
        if not self._recent_repairs.overlaps(first, end) and self._pending.add_apart(PendingRepair(first, end, due_ns)):
            if due_ns < self.deadline_ns:
                self.deadline_ns = due_ns
            return
        fresh = 0
        for low, high in self._recent_repairs.uncovered(first, end):
            fresh += high - low
            for owed in self._pending.within(low, high):
                owed.due_ns = min(owed.due_ns, due_ns)
                self.deadline_ns = min(self.deadline_ns, due_ns)
            for new_first, new_end in self._pending.uncovered(low, high):
                self._pending.add(PendingRepair(new_first, new_end, due_ns))
                self.deadline_ns = min(self.deadline_ns, due_ns)
        self._counters.repairs_ignored += end - first - fresh

    def _owe_late(self, first: int, end: int, due_ns: int) -> None:
        is_asked = self._recent_repairs.overlaps(first, end) or self._pending.overlaps(first, end)
        if not is_asked and self._late.add_apart(PendingRepair(first, end, due_ns)):
            self.deadline_ns = min(self.deadline_ns, due_ns)
            self._bound_late()
            return
        fresh = [
            span
            for low, high in self._recent_repairs.uncovered(first, end)
            for lower, higher in self._pending.uncovered(low, high)
            for span in self._late.uncovered(lower, higher)
        ]
        for low, high in fresh:
            self._late.add(PendingRepair(low, high, due_ns))
            self.deadline_ns = min(self.deadline_ns, due_ns)
        self._bound_late()
        unserved = sum(high - low for low, high in self._recent_repairs.uncovered(first, end))
        self._counters.repairs_ignored += end - first - unserved

    def _bound_late(self) -> None:
        """Drop the newest repairs beyond the askers' shares, if one interval of repairs cannot hold them."""
        self._counters.repairs_braked += self._late.keep_oldest(max(1, self._shares.octets // self._stride))

    def heard_repair(self, first: int, end: int, now_ns: int) -> None:
        """Cancel owed repairs of sqns that another node has repaired on the segment."""
        if self._pending or self._late:
            cancelled = self._pending.discard(first, end) + self._late.discard(first, end)
            self._counters.repairs_cancelled += sum(owed.count for owed in cancelled)
            self._rearm(now_ns)
        self._recent_repairs.note([(first, end)], now_ns)

    def next_train(
        self, most_octets: int, trail: int, now_ns: int, most_packets: int = MAX_CONVOY_PACKETS
    ) -> Send | None:
        """Return RDATA for the oldest due sqns, as many packets of one size as fit; None if none is due."""
        table = self._next_table(now_ns)
        spans, stride = self._uniform_spans(table, most_octets, most_packets, now_ns)
        if stride:
            table.discard_each(spans)
            self._rearm(now_ns)
            return self._repair(spans, stride, trail, now_ns)
        parts, has_changed = self._collect(table, most_octets, most_packets, now_ns)
        if has_changed:
            self._rearm(now_ns)
        if not parts:
            return None
        self._recent_repairs.note([(part.first, part.first + part.count) for part in parts], now_ns)
        return self._sent(build_rdata(parts, trail))

    def _sent(self, packets: Octets) -> Send:
        self._counters.rdata_packets += packets.shape[0]
        self._counters.rdata_octets += packets.size
        return data(self._segment, packets, self._to)

    def _next_table(self, now_ns: int) -> RangeTable[PendingRepair]:
        """Return the table to serve: `_late` after all other repairs, or after `_IN_A_ROW` trains of other repairs."""
        if not self._late.sqns:
            return self._pending
        is_due, is_late_due = (
            any(owed.due_ns <= now_ns for owed in table.reaching()) for table in (self._pending, self._late)
        )
        if is_due and (self._in_a_row < _IN_A_ROW or not is_late_due):
            self._in_a_row += 1
            return self._pending
        self._in_a_row = 0
        return self._late

    def _uniform_spans(
        self, table: RangeTable[PendingRepair], most_octets: int, most_packets: int, now_ns: int
    ) -> tuple[list[Span], int]:
        """Return `_collect`'s spans, and the packets' size: 0 unless all packets are stored and have one size."""
        due: list[Span] = []
        packets = 0
        for request in table.reaching():
            if request.due_ns <= now_ns:
                due.append((request.first, request.end))
                packets += request.end - request.first
                if packets >= most_packets:
                    break
        stride = self._store.stride_of(due[0][0], due[-1][1]) if due else 0
        if stride:
            beyond = packets - max(1, in_whole_trains(min(most_packets, most_octets // stride), stride))
            while beyond > 0:
                first, end = due.pop()
                if end - first > beyond:
                    due.append((first, end - beyond))
                beyond -= end - first
        return due, stride

    def _collect(
        self, table: RangeTable[PendingRepair], most_octets: int, most_packets: int, now_ns: int
    ) -> tuple[list[Run], bool]:
        """Take requests until a train is full. Return the runs, and whether any was taken, or dropped as not stored."""
        parts: list[Run] = []
        finished: list[Span] = []  # sqns of requests that are met or dropped, neighbours as one span
        packets = most_packets
        is_next = is_full = False  # `is_next`: no waiting request lies between the last finished span and this one
        for request in table.reaching():
            if request.due_ns > now_ns:
                is_next = False
                continue
            at = request.first
            while at < request.end and not is_full:
                part = next(self._store.parts(at, request.end), None)
                if part is None:
                    at = request.end
                    continue
                if not parts:
                    packets = max(1, in_whole_trains(min(packets, most_octets // part.stride), part.stride))
                elif part.stride != parts[0].stride:
                    is_full = True
                    break
                if part.count > packets:
                    part = part.part(part.first, part.first + packets)
                parts.append(part)
                at = part.first + part.count
                packets -= part.count
                is_full = not packets
            if is_next and finished:
                finished[-1] = (finished[-1][0], at)
            elif at > request.first:
                finished.append((request.first, at))
            is_next = True
            if is_full:
                break
        table.discard_each(finished)
        return parts, bool(finished)

    def expedite(self, now_ns: int) -> None:
        """Make repairs due that are due within a step of a driver's timer. They leave with a packet that leaves now."""
        for owed in itertools.chain(self._pending.reaching(), self._late.reaching()):
            if owed.due_ns <= now_ns + TIMER_STEP_NS:
                owed.due_ns = min(owed.due_ns, now_ns)
        self._rearm(now_ns)

    def next_octets(self) -> int:
        """Return an estimate of the next train's octets, for pacing: owed packets times the last requested size."""
        table = self._pending if self._pending.sqns else self._late
        return min(table.sqns, MAX_CONVOY_PACKETS) * self._stride

    def _rearm(self, now_ns: int) -> None:
        self.deadline_ns = NEVER
        for owed in itertools.chain(self._pending.reaching(), self._late.reaching()):
            self.deadline_ns = min(self.deadline_ns, owed.due_ns)
            if owed.due_ns <= now_ns:
                return


def _merged(requests: Sequence[Sequence[Span]]) -> list[Span]:
    """Return the spans of several requests, ordered and disjoint."""
    merged: list[Span] = []
    for first, end in sorted(itertools.chain.from_iterable(requests)):
        if merged and first <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((first, end))
    return merged
