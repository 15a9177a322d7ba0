"""Receive window with in-order delivery (RFC 3.4, 6.1).

Each sqn from `next_sqn` to the newest is in exactly one of three places: held, in recovery, or given up. Delivery takes
runs and losses alternately from the front, as long as the application has room. A held run may have room for packets
that are in recovery (`pgm.core.window.held_runs`).

A window without order (`order = "unordered"` or `"unreliable"`) delivers packets as they arrive, and holds them only while
the application has no room. Its `next_sqn` is the first sqn that was neither delivered nor reported lost, with all sqns
below it settled. Every sqn is delivered or reported lost exactly once, as in ordered streams.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from pgm.core.effects import NOTHING, Deliver, Effect, Effects, LossCause, Lost, Notice, Opened
from pgm.core.recovery.gap_detector import GapDetector
from pgm.core.recovery.missing_range import RecoveryActions
from pgm.core.recovery.recovery import Recovery
from pgm.core.session_context import SessionContext
from pgm.core.structures.ranges import RangeTable, Span, SqnRange, without
from pgm.core.structures.run_store import RunStore
from pgm.core.window.conflicts import ConflictDetector
from pgm.core.window.held_runs import HeldRuns
from pgm.units import NEVER
from pgm.wire.formats import DATA_HEADER_OCTETS, tsi_text
from pgm.wire.train import DataWithGaps, Run

# A held run may have room for missing packets, because delivery ends before the first of them. That needs an order.
# Reserve memory for at most one missing packet per this many received packets. With more missing, the runs between the
# gaps are long enough by themselves.
_ROOM_SHARE = 8


@attrs.define
class DeliveryBudget:
    """Octets that the application queue still takes, shared by all sessions."""

    octets: int


@attrs.define(eq=False)
class LostSpan(SqnRange):
    """Sqns that will not be delivered, kept until the loss is reported in order."""

    cause: LossCause | None  # None: these sqns carry no packets


class ReceiveWindow:
    """The receive window of one session."""

    def __init__(
        self, context: SessionContext, recovery: Recovery, room: DeliveryBudget, *, is_ordered: bool = True
    ) -> None:
        self.is_ordered = is_ordered
        self._tsi = context.tsi
        self._recovery = recovery
        self._room = room
        self._parameters = context.parameters
        self._counters = context.counters
        self.gap_detector = GapDetector(recovery)
        self._held = HeldRuns()
        self._given_up: RangeTable[LostSpan] = RangeTable()
        self._kernel_drops = KernelDropMonitor(context)
        self._conflicts = ConflictDetector(context)
        self._delivered = self._conflicts.delivered
        self._effects: list[Effect] = []  # for the next call of `advance`
        self.kept: RunStore | None = None  # all data that came, even after delivery, for parity decoding
        self.is_open = False  # nothing is delivered before the application knows the session
        self.next_sqn = 0  # the first sqn not yet delivered or reported
        self._checked_end = NEVER  # no sqn from here on is delivered
        self.lost_end = -1  # end of the last loss that was reported

    def begin(self, sqn: int) -> None:
        """Start delivery at `sqn`."""
        self.gap_detector.begin(sqn)
        self.next_sqn = sqn

    def begin_earlier(self, sqn: int, now_ns: int) -> None:
        """Start delivery at an earlier sqn, before any delivery: the stream is announced to begin before the data."""
        if sqn < self.next_sqn:
            self._recovery.detect(sqn, self.next_sqn, now_ns)
            self.gap_detector.first = self.next_sqn = sqn

    def begin_later(self, sqn: int) -> None:
        """Start delivery at a later sqn, before any delivery: a state covers the packets before it."""
        if sqn <= self.next_sqn:
            return
        for first, end in self._recovery.give_up_before(sqn):
            self._held.cut_out(first, end)
        while (run := self._held.oldest) is not None and run.first < sqn:
            self._held.cut_oldest(min(run.count, sqn - run.first))
        while (gap := self._given_up.oldest) is not None and gap.first < sqn:
            self._given_up.remove(gap)
            if gap.end > sqn:
                self._given_up.add(LostSpan(sqn, gap.end, gap.cause))
        self.gap_detector.first = self.next_sqn = sqn
        self.gap_detector.end = max(self.gap_detector.end, sqn)

    @property
    def settled_sqn(self) -> int:
        """The first sqn about which something may still be reported."""
        return self.next_sqn

    @property
    def held_octets(self) -> int:
        """Memory of held runs in octets, in whole chunks."""
        return self._held.pinned_octets

    @property
    def is_drained(self) -> bool:
        """Whether all known sqns were delivered or reported."""
        return self.next_sqn == self.gap_detector.end

    def open(self) -> None:
        """Allow delivery: the application knows the session."""
        self.is_open = True

    def opening(self, opened: Opened) -> list[Effect]:
        """Return the report that delivery begins, unless the window reports it later."""
        return [opened]

    def late_opening(self, _first: int) -> list[Effect]:
        """Return the report that `opening` has kept: delivery begins at `_first`."""
        return []

    def keep(self, store: RunStore) -> None:
        """Copy references to all later data to `store`, even after delivery."""
        self.kept = store

    def insert(self, pieces: Run | DataWithGaps, first: int, now_ns: int) -> int:
        """Take packets in ascending order. Return how many of them had been missing.

        `first` is the sqn of the first packet. The bound on gaps holds after all pieces are in. `advance` returns the
        deliveries.
        """
        gap_detector, counters = self.gap_detector, self._counters
        known_end = gap_detector.end
        if first < known_end:
            return self._insert_known(pieces, first, now_ns)
        if not isinstance(pieces, Run):
            self._insert_new(pieces, first, now_ns)
            return 0
        counters.received_packets += pieces.count
        counters.received_octets += pieces.count * pieces.stride
        gap_detector.end = first + pieces.count
        if first > known_end:
            self._recovery.detect(known_end, first, now_ns)
        if first != self.next_sqn or not self._pass_on(pieces):
            self._hold([pieces])
        return 0

    def insert_rebuilt(self, run: Run, now_ns: int) -> int:
        """Take packets that parity has rebuilt. Return how many of them had been missing."""
        return self.insert(run, run.first, now_ns)

    def _insert_new(self, pieces: DataWithGaps, first: int, now_ns: int) -> None:
        """Take packets beyond all known sqns, and note the gaps before and between them."""
        gaps, known_end = [], self.gap_detector.end
        for low, end in pieces.spans:
            if first + low > known_end:
                gaps.append((known_end, first + low))
            known_end = first + end
        self._recovery.detect_new(gaps, now_ns)
        self.gap_detector.end = known_end
        self._counters.received_packets += pieces.count
        self._counters.received_octets += pieces.count * pieces.data.stride
        if self.is_ordered and self.kept is None and pieces.open_gaps(pieces.count // _ROOM_SHARE):
            self._held.add(pieces.spread_run(first))
        else:
            self._held.extend(runs := pieces.runs(first))
            self._keep(runs)
        self._bound_gaps()

    def _insert_known(self, pieces: Run | DataWithGaps, first: int, now_ns: int) -> int:
        """Take packets of which the first is known. Return how many had been missing."""
        counters, known_end = self._counters, self.gap_detector.end
        if isinstance(pieces, Run):
            stride, spans = pieces.stride, [(first, pieces.end)]
        else:
            stride, spans = pieces.data.stride, [(first + low, first + end) for low, end in pieces.spans]
        known, new = _parts(spans, known_end)
        filled_spans = self._recovery.arrived_each(known, now_ns)
        filled = sum([end - low for low, end in filled_spans])
        counters.received_packets += filled
        counters.received_octets += filled * stride
        duplicates = sum([end - low for low, end in known]) - filled
        counters.duplicate_packets += duplicates
        is_whole = filled == pieces.count
        if isinstance(pieces, Run):
            if not is_whole or first != self.next_sqn or not self._pass_on(pieces):
                self._hold([pieces.part(low, end) for low, end in filled_spans])
        elif is_whole and self.kept is None:
            self._held.fill(pieces, first)
            self._bound_gaps()
        elif filled_spans:
            runs = _parts_of(pieces.runs(first), filled_spans)
            self._keep(runs)
            self._held.insert(runs)
            self._bound_gaps()
        if new:
            runs = [pieces] if isinstance(pieces, Run) else pieces.runs(first)
            for run in _parts_of(runs, new):
                self.insert(run, run.first, now_ns)
        if duplicates:
            copies = [pieces] if isinstance(pieces, Run) else pieces.views(first)
            self._compare(copies, without(known, filled_spans), now_ns)
        return filled

    def _compare(self, copies: Sequence[Run], spans: Sequence[Span], now_ns: int) -> None:
        """Compare packets that came before. Two copies that differ are both dropped unless one was delivered."""
        runs = [
            run.part(max(first, run.first), min(end, run.end))
            for run in copies
            for first, end in spans
            if first < run.end and run.first < end
        ]
        fresh, again = self._conflicts.compare_held(self._held, runs)
        for first, end in (*fresh, *again):
            self._held.cut_out(first, end)
            if self.kept is not None:
                self.kept.cut_out(first, end)
        for first, end in fresh:
            self._recovery.detect(first, end, now_ns)
        self.give_up(again, LossCause.CONFLICT)
        self._bound_gaps()
        self.compare_delivered(runs)

    def compare_delivered(self, runs: Sequence[Run]) -> None:
        """Compare packets that may have been delivered before. `advance` returns the conflicts."""
        self._effects += self._conflicts.compare_delivered(runs)

    def _pass_on(self, run: Run) -> bool:
        """Deliver the next run without holding it, if there is room and no held run has holes for it."""
        if run.count * run.stride > self._room.octets or not self.is_open or self.kept is not None:
            return False
        if self._conflicts.has_disputes:
            return False
        oldest = self._held.oldest if self._held.packets else None
        if oldest is not None and oldest.first < run.end:
            return False
        self._hand_over(run)
        return True

    def _hold(self, runs: list[Run]) -> None:
        for run in runs:
            self._held.add(run)
        self._keep(runs)
        self._bound_gaps()

    def _keep(self, runs: list[Run]) -> None:
        if self.kept is not None:
            for run in runs:
                self.kept.add(run)

    def may_pass(self, sqn: int, octets: int) -> bool:
        """Return whether a plain packet of `octets` is next and may be delivered at once.

        The packet enters no queue and needs no run, because the application takes its payload directly. A call of
        `note_passed` must follow.
        """
        return sqn == self.next_sqn == self.gap_detector.end and octets <= self._room.octets and self.kept is None

    def note_passed(self, octets: int, packet: bytes) -> None:
        """Note that the packet admitted by `may_pass` was delivered."""
        self._delivered.add_single(self.next_sqn, packet)
        self.next_sqn = self.gap_detector.end = self.next_sqn + 1
        counters = self._counters
        counters.received_packets += 1
        counters.received_octets += octets
        counters.delivered_packets += 1
        counters.delivered_octets += octets - DATA_HEADER_OCTETS
        if octets > counters.queue_most_octets:
            counters.queue_most_octets = octets

    def reveal(self, end: int, now_ns: int) -> None:
        """Note that everything below `end` was sent."""
        self.gap_detector.reveal(end, now_ns)
        self._bound_gaps()

    def _bound_gaps(self) -> None:
        while len(self._recovery.missing) > self._parameters.rxw_gaps:
            self._give_up_oldest_gap()

    def skip(self, spans: list[Span]) -> None:
        """Skip sqns that carry no packets, without reporting a loss. The spans may have cut gaps in two."""
        self.give_up(spans, None)
        self._bound_gaps()

    def take_back(self, span: Span, now_ns: int) -> None:
        """Recover a skipped span, because its packets were sent after all.

        Sqns that delivery has passed are lost. `advance` reports them by a notice, since a late `Lost` would break the order.
        """
        first, end = span
        passed = min(end, max(first, self.next_sqn))
        for gap in self._given_up.within(passed, end):
            if gap.cause is None:
                self._given_up.remove(gap)
        self._recovery.detect(passed, end, now_ns)
        self._bound_gaps()
        if passed > first:
            self._counters.lost_sqns += passed - first
            what = f"session {tsi_text(self._tsi)} sqns {first} to {passed - 1}: lost, and skipped before as never sent"
            self._effects.append(Notice("lost-skipped", what))

    def end_asking(self, actions: RecoveryActions, trail: int) -> bool:
        """Give up ranges whose recovery failed or had to make room. Return whether there were any."""
        for first, end in actions.given_up:
            source_has_from = min(max(first, trail), end)
            self.give_up([(first, source_has_from)], LossCause.WINDOW)
            self.give_up([(source_has_from, end)], LossCause.RETRIES)
        self.give_up(actions.crowded_out, LossCause.OVERLOAD)
        return bool(actions.given_up or actions.crowded_out)

    def give_up(self, spans: list[Span], cause: LossCause | None) -> None:
        """Stop waiting for missing spans; empty spans are allowed.

        Adjacent losses of the same cause are joined, so a stalled application costs one range. If there are still too
        many ranges, adjacent losses of different causes are joined too. The oldest cause is then reported.
        """
        for first, end in spans:
            if first == end:
                continue
            self._held.cut_out(first, end)
            new = LostSpan(first, end, cause)
            before, after = self._given_up.at(first - 1), self._given_up.at(end)
            if before is not None and self._may_join(before, new):
                self._given_up.remove(before)
                new = LostSpan(before.first, end, before.cause)
            if after is not None and self._may_join(new, after):
                self._given_up.remove(after)
                new.end = after.end
            self._given_up.add(new)

    def _may_join(self, left: LostSpan, right: LostSpan) -> bool:
        if left.cause is None or right.cause is None:
            return left.cause is right.cause  # sqns without packets are no loss, and must not hide a loss
        return left.cause is right.cause or len(self._given_up) >= self._parameters.rxw_gaps

    def give_up_before(self, sqn: int, cause: LossCause) -> None:
        """Stop waiting for all missing packets below `sqn`."""
        self.give_up(self._recovery.give_up_before(sqn), cause)

    def give_up_rest(self, cause: LossCause) -> None:
        """Stop waiting for everything that is missing: the session ends."""
        self.give_up_before(self.gap_detector.end, cause)

    def skip_to(self, sqn: int, cause: LossCause) -> None:
        """Continue at `sqn`, far ahead. Everything missing or unseen before it is lost."""
        self.give_up_before(sqn, cause)
        if sqn > self.gap_detector.end:
            self.give_up([(self.gap_detector.end, sqn)], cause)
            self.gap_detector.end = sqn

    def skip_all(self, cause: LossCause) -> None:
        """Give up everything known and not delivered."""
        while self._held.oldest is not None:
            run = self._held.cut_oldest(self._held.oldest.count)
            self.give_up(self._recovery.missing.uncovered(run.first, run.end), cause)
        self.give_up_before(self.gap_detector.end, cause)

    def advance(self, *, is_last: bool = False) -> list[Effect]:
        """Return the deliveries and losses that are in order now, after pending notices.

        `is_last` returns everything, even without room: the session is about to end. A window that is not open only
        enforces the memory bound.
        """
        while self.next_sqn != self.gap_detector.end:
            if self.is_open:
                if self.is_ordered:
                    self._deliver(is_last=is_last)
                else:
                    self._deliver_on_arrival(is_last=is_last)
            if self._held.pinned_octets <= self._parameters.rxw_bytes or not self._held.packets:
                break
            self._give_up_oldest()
        if not self.is_open:
            return []
        effects, self._effects = self._effects, []
        return effects

    def _deliver(self, *, is_last: bool) -> None:
        held, ranges, room = self._held, self._recovery.missing, self._room
        while room.octets > 0 or is_last:
            missing, first = ranges.oldest, self.next_sqn
            end = self._checked_end if missing is None else min(missing.first, self._checked_end)
            if end == first:
                break
            if self._conflicts.has_disputes:
                end = min(end, self._report_conflicts(first))
            oldest = held.oldest
            if oldest is not None and oldest.first == first:
                octets = NEVER if is_last else room.octets
                runs = held.take_whole(first, octets, end)
                for run in runs or [held.cut_oldest(max(1, min(octets // oldest.stride, end - first)))]:
                    self._hand_over(run)
                continue
            gap = self._given_up.oldest
            if gap is None or gap.first != first:
                break
            self._given_up.remove(gap)
            self.next_sqn = gap.end
            self._report(gap)

    def _deliver_on_arrival(self, *, is_last: bool) -> None:
        """Deliver and report everything that came or was given up."""
        if self._conflicts.has_disputes:
            self._report_conflicts(self.gap_detector.end)
        while self._room.octets > 0 or is_last:
            oldest = self._held.oldest
            if oldest is None:
                break
            most = oldest.count if is_last else max(1, self._room.octets // oldest.stride)
            self._hand_over(self._held.cut_oldest(most))
        self._report_given_up()
        self._settle_on_arrival()

    def _report_given_up(self) -> None:
        while (gap := self._given_up.oldest) is not None:
            self._given_up.remove(gap)
            self._report(gap)

    def _settle_on_arrival(self) -> None:
        """Set the next sqn to the first one about which something may still be told."""
        waiting = (self._held.oldest, self._recovery.missing.oldest, self._given_up.oldest)
        self.next_sqn = min((span.first for span in waiting if span is not None), default=self.gap_detector.end)

    def _report_conflicts(self, sqn: int) -> int:
        """Report the conflicts that delivery has reached. Return the sqn of the next one."""
        conflicts, stop = self._conflicts.reach(sqn)
        self._effects += conflicts
        return stop

    def _report(self, gap: LostSpan) -> None:
        """Report a loss; sqns that carry no packets are no loss."""
        if gap.cause is not None:
            self._counters.lost_sqns += gap.count
            self.lost_end = gap.end
            self._effects += [Lost(self._tsi, gap.first, gap.count, gap.cause), *self._kernel_drops.lost()]

    def _hand_over(self, run: Run) -> None:
        """Deliver a run that is next in order."""
        octets, count = run.count * run.stride, run.count
        self._room.octets -= octets
        self._counters.delivered_packets += count
        self._counters.delivered_octets += octets - count * run.payload_at
        self.next_sqn = run.first + count
        self._delivered.add(run)
        self._effects.append(Deliver(self._tsi, run))

    def _give_up_oldest(self) -> None:
        """Give up the gap that holds up delivery; without one, the oldest octets, with the cause OVERRUN.

        Without an order no gap holds up delivery.
        """
        held = self._held.oldest
        missing = self._recovery.missing.oldest if self.is_ordered else None
        assert held is not None
        if missing is not None and missing.first <= held.first:
            self._give_up_oldest_gap()
        else:
            run = self._held.cut_oldest(held.count if missing is None else missing.first - held.first)
            self.give_up([(run.first, run.end)], LossCause.OVERRUN)

    def _give_up_oldest_gap(self) -> None:
        oldest = self._recovery.missing.oldest
        assert oldest is not None
        self.give_up(self._recovery.arrived(oldest.first, oldest.end), LossCause.OVERLOAD)


def _parts(spans: list[Span], sqn: int) -> tuple[list[Span], list[Span]]:
    """Return the parts of ordered spans below `sqn`, and the parts from `sqn` on."""
    if spans[-1][1] <= sqn:
        return spans, []
    if spans[0][0] >= sqn:
        return [], spans
    below = [(first, min(end, sqn)) for first, end in spans if first < sqn]
    return below, [(max(first, sqn), end) for first, end in spans if end > sqn]


def _parts_of(runs: Sequence[Run], spans: Sequence[Span]) -> list[Run]:
    """Return the parts of ordered runs that ordered spans select. Each span lies in one run."""
    parts, remaining = [], iter(runs)
    run = next(remaining, None)
    for first, end in spans:
        while run is not None and run.end <= first:
            run = next(remaining, None)
        assert run is not None, (runs, spans)
        parts.append(run.part(first, end))
    return parts


# Report again after this many times as many drops: a slow receiver is warned now and then, not at each loss.
_REPORT_FACTOR = 2


class KernelDropMonitor:
    """Monitor that relates a session's losses to drops at the receiver's own socket."""

    def __init__(self, context: SessionContext) -> None:
        self._tsi = context.tsi
        self._counters = context.counters
        self._initial_drops = context.counters.socket_drops  # drops before the session began caused none of its losses
        self._report_at = 1

    def lost(self) -> Effects:
        """Note a loss. Return a notice if the socket has dropped many more datagrams."""
        drops = self._counters.socket_drops - self._initial_drops
        if drops < self._report_at:
            return NOTHING
        self._report_at = _REPORT_FACTOR * drops
        text = f"packets are lost, and the kernel has dropped {drops:,} at this receiver's own socket: the receiver is too slow"
        return (Notice("too-slow", f"session {tsi_text(self._tsi)}: {text}"),)
