"""Receive window with in-order delivery (RFC 3.4, 6.1).

Each sqn from `next_sqn` to the newest is in exactly one of three places: held, in recovery, or given up. Delivery takes
runs and losses alternately from the front, as long as the application has room. A held run may have room for packets
that are in recovery (`pgm.core.window.held_runs`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import attrs

from pgm.core.effects import NOTHING, Deliver, Effect, Effects, LossCause, Lost, Notice
from pgm.core.recovery.gap_detector import GapDetector
from pgm.core.recovery.missing_range import RecoveryActions
from pgm.core.recovery.recovery import Recovery
from pgm.core.session_context import SessionContext
from pgm.core.structures.ranges import RangeTable, Span, SqnRange
from pgm.core.structures.run_store import RunStore
from pgm.core.window.held_runs import HeldRuns
from pgm.units import NEVER
from pgm.wire.formats import DATA_HEADER_OCTETS, tsi_text
from pgm.wire.train import Data, DataWithGaps, Run

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

    def __init__(self, context: SessionContext, recovery: Recovery, room: DeliveryBudget) -> None:
        self._tsi = context.tsi
        self._recovery = recovery
        self._room = room
        self._parameters = context.parameters
        self._counters = context.counters
        self.gap_detector = GapDetector(recovery)
        self._held = HeldRuns()
        self._given_up: RangeTable[LostSpan] = RangeTable()
        self._kernel_drops = KernelDropMonitor(context)
        self._notices: list[Effect] = []  # for the next call of `advance`
        self.kept: RunStore | None = None  # all data that came, even after delivery, for parity decoding
        self.next_sqn = 0  # the first sqn not yet delivered or reported

    def begin(self, sqn: int) -> None:
        """Start delivery at `sqn`."""
        self.gap_detector.begin(sqn)
        self.next_sqn = sqn

    def begin_earlier(self, sqn: int, now_ns: int) -> None:
        """Start delivery at an earlier sqn, before anything was delivered.

        The stream is announced to begin before the data that came.
        """
        if sqn < self.next_sqn:
            self._recovery.detect(sqn, self.next_sqn, now_ns)
            self.gap_detector.first = self.next_sqn = sqn

    @property
    def held_octets(self) -> int:
        """Memory of held runs in octets, in whole chunks."""
        return self._held.pinned_octets

    @property
    def is_drained(self) -> bool:
        """Whether all known sqns were delivered or reported."""
        return self.next_sqn == self.gap_detector.end

    def pass_on(self, data: Data, first: int) -> Deliver | None:
        """Deliver the next packets in order without holding them.

        The method is the fast path of `add` and `advance`. Return None and take nothing if an earlier packet waits, if
        the application lacks room, or if `kept` is in use.
        """
        gap_detector, room, octets = self.gap_detector, self._room, data.count * data.stride
        if not first == self.next_sqn == gap_detector.end or octets > room.octets or self.kept is not None:
            return None
        run = data.run(first)
        room.octets -= octets
        self.next_sqn = gap_detector.end = first + data.count
        counters = self._counters
        counters.received_packets += data.count
        counters.received_octets += octets
        counters.delivered_packets += data.count
        counters.delivered_octets += octets - data.count * data.payload_at
        return Deliver(self._tsi, run)

    def hold_on(self, data: Data, first: int, now_ns: int) -> list[Effect] | None:
        """Hold packets beyond all known sqns, and deliver those next in order.

        The method is the fast path of `add` and `advance`. Return None and take nothing if the packets are not beyond
        the known sqns, a bound is near, or `kept` is in use.
        """
        gap_detector, missing = self.gap_detector, self._recovery.missing
        if (
            first < gap_detector.end
            or self.kept is not None
            or len(missing) >= self._parameters.rxw_gaps
            or self._held.pinned_octets + data.buffer.nbytes > self._parameters.rxw_bytes
        ):
            return None
        if first > gap_detector.end:
            self._recovery.detect(gap_detector.end, first, now_ns)
        gap_detector.end = first + data.count
        self._held.add(data.run(first))
        self._counters.received_packets += data.count
        self._counters.received_octets += data.count * data.stride
        return self._advance_waiting()

    def _advance_waiting(self) -> list[Effect]:
        """Deliver after more was held.

        A delivery is possible only if the next packets were held up by nothing but the application's room.
        """
        is_waiting = self._room.octets > 0 and self._recovery.missing.at(self.next_sqn) is None
        return self.advance() if is_waiting else []

    def take_behind(self, pieces: DataWithGaps, first: int, now_ns: int) -> list[Effect] | None:
        """Take pieces beyond all known sqns, as `pass_on` and `hold_on` take a run.

        `first` is the sqn of the first packet. Return None and take nothing if one of the two would return None.
        """
        gap_detector, spans = self.gap_detector, pieces.spans
        if (
            first < gap_detector.end
            or self.kept is not None
            or len(self._recovery.missing) + len(spans) > self._parameters.rxw_gaps
            or self._held.pinned_octets + pieces.data.buffer.nbytes > self._parameters.rxw_bytes
        ):
            return None
        has_room = spans[0][1] * pieces.data.stride <= self._room.octets
        is_next = has_room and first == self.next_sqn == gap_detector.end
        effects: list[Effect] = []
        packets = pieces.count
        runs = [pieces.spread_run(first)] if pieces.open_gaps(packets // _ROOM_SHARE) else pieces.runs(first)
        if is_next:
            delivered = self.pass_on(pieces.data, first)
            assert delivered is not None
            effects.append(delivered)
            packets -= pieces.data.count
            spread = runs.pop(0)
            if spread.end > gap_detector.end:
                runs.insert(0, spread.part(gap_detector.end, spread.end))
        gaps, end = [], gap_detector.end
        for low, high in spans[is_next:]:
            if first + low > end:
                gaps.append((end, first + low))
            end = first + high
        self._recovery.detect_new(gaps, now_ns)
        gap_detector.end = end
        self._held.extend(runs)
        self._counters.received_packets += packets
        self._counters.received_octets += packets * pieces.data.stride
        return effects or self._advance_waiting()

    def fill(self, pieces: DataWithGaps, first: int, now_ns: int) -> int | None:
        """Hold pieces within the known sqns, as `add` does. Return how many were missing.

        `first` is the sqn of the first packet. Return None and take nothing if not all pieces may be held.
        """
        held, data = self._held, pieces.data
        if (
            first + pieces.spans[-1][1] > self.gap_detector.end
            or self.kept is not None
            # each piece may split a missing range
            or len(self._recovery.missing) + len(pieces.spans) > self._parameters.rxw_gaps
            or held.pinned_octets + data.buffer.nbytes > self._parameters.rxw_bytes
        ):
            return None
        spans = [(first + low, first + end) for low, end in pieces.spans]
        filled_spans = self._recovery.arrived_each(spans, now_ns)
        if filled_spans == spans:
            held.fill(pieces, first)
        else:
            held.insert(list(_within(pieces.runs(first), filled_spans)))
        filled = sum([end - low for low, end in filled_spans])
        self._counters.received_packets += filled
        self._counters.received_octets += filled * data.stride
        self._counters.duplicate_packets += pieces.count - filled
        return filled

    def repair(self, data: Data, first: int, now_ns: int) -> tuple[list[Effect], int] | None:
        """Take packets of known sqns, and deliver packets that are now in order.

        The method is the fast path of `add` and `advance` for sqns of which none was delivered. Also return how many
        packets had been missing. Return None and take nothing if a condition of the fast path fails.
        """
        held, end = self._held, first + data.count
        if (
            not self.next_sqn <= first < end <= self.gap_detector.end
            or self.kept is not None
            or len(self._recovery.missing) >= self._parameters.rxw_gaps  # the packets may split one missing range
            or held.pinned_octets + data.buffer.nbytes > self._parameters.rxw_bytes
        ):
            return None
        filled_spans = self._recovery.arrived(first, end, now_ns)
        filled = data.count if filled_spans == [(first, end)] else sum([high - low for low, high in filled_spans])
        effects: list[Effect] = []
        counters, octets = self._counters, filled * data.stride
        counters.received_packets += filled
        counters.received_octets += octets
        counters.duplicate_packets += data.count - filled
        run = data.run(first)
        oldest = held.oldest
        is_behind_all = oldest is None or oldest.first >= end  # otherwise a held run may have a hole for the packets
        if first == self.next_sqn and filled == data.count and octets <= self._room.octets and is_behind_all:
            self._room.octets -= octets
            self.next_sqn = end
            counters.delivered_packets += filled
            counters.delivered_octets += octets - filled * data.payload_at
            effects.append(Deliver(self._tsi, run))
        else:
            for low, high in filled_spans:
                held.add(run.part(low, high))
        oldest = held.oldest
        if (oldest is not None and oldest.first == self.next_sqn) or self._given_up:
            effects += self.advance()
        return effects, filled

    def may_pass(self, sqn: int, octets: int) -> bool:
        """Return whether a plain packet of `octets` is next and may be delivered at once.

        The method is `pass_on` for an application that takes the packet directly: the packet enters no queue and needs
        no run. A call of `note_passed` must follow.
        """
        return sqn == self.next_sqn == self.gap_detector.end and octets <= self._room.octets and self.kept is None

    def note_passed(self, octets: int) -> None:
        """Note that the packet admitted by `may_pass` was delivered."""
        self.next_sqn = self.gap_detector.end = self.next_sqn + 1
        counters = self._counters
        counters.received_packets += 1
        counters.received_octets += octets
        counters.delivered_packets += 1
        counters.delivered_octets += octets - DATA_HEADER_OCTETS
        if octets > counters.queue_most_octets:
            counters.queue_most_octets = octets

    def add(self, run: Run, now_ns: int) -> int:
        """Take data. Return how many of its packets had been missing."""
        accepted, filled = self.gap_detector.accept(run, now_ns)
        for part in accepted:
            self._held.add(part)
            if self.kept is not None:
                self.kept.add(part)
            self._counters.received_packets += part.count
            self._counters.received_octets += part.octets
        self._counters.duplicate_packets += run.count - sum(part.count for part in accepted)
        self._bound_gaps()
        return filled

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
            self._notices.append(Notice("lost-skipped", what))

    def end_asking(self, actions: RecoveryActions, trail: int) -> bool:
        """Give up ranges whose recovery failed or had to make room.

        Return whether there were any.
        """
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

    def skip_to(self, sqn: int, cause: LossCause) -> None:
        """Continue at `sqn`, far ahead. Everything missing or unseen before it is lost."""
        self.give_up(self._recovery.give_up_before(sqn), cause)
        if sqn > self.gap_detector.end:
            self.give_up([(self.gap_detector.end, sqn)], cause)
            self.gap_detector.end = sqn

    def skip_all(self, cause: LossCause) -> None:
        """Give up everything known and not delivered."""
        while self._held.oldest is not None:
            run = self._held.cut_oldest(self._held.oldest.count)
            self.give_up(self._recovery.missing.uncovered(run.first, run.end), cause)
        self.give_up(self._recovery.give_up_before(self.gap_detector.end), cause)

    def advance(self, *, is_last: bool = False) -> list[Effect]:
        """Return the deliveries and losses that are in order now, after pending notices.

        `is_last` returns everything, even without room: the session is about to end.
        """
        effects, self._notices = [*self._notices, *self._deliver(is_last=is_last)], []
        while self._is_too_full:
            self._give_up_oldest()
            effects += self._deliver(is_last=is_last)
        return effects

    def keep_bounds(self) -> None:
        """Enforce the memory bound while nothing may be delivered yet."""
        while self._is_too_full:
            self._give_up_oldest()

    def _deliver(self, *, is_last: bool) -> list[Effect]:
        effects: list[Effect] = []
        while self._room.octets > 0 or is_last:
            held, missing, first = self._held, self._recovery.missing.oldest, self.next_sqn
            end = NEVER if missing is None else missing.first
            runs = held.take_whole(first, NEVER if is_last else self._room.octets, end)
            oldest = held.oldest
            if not runs and oldest is not None and oldest.first == first < end:
                most = NEVER if is_last else max(1, self._room.octets // oldest.stride)
                runs = [held.cut_oldest(min(most, end - first))]
            if runs:
                effects += self._handed_over(runs)
                continue
            gap = self._given_up.oldest
            if gap is None or gap.first != self.next_sqn:
                break
            self._given_up.remove(gap)
            self.next_sqn = gap.end
            if gap.cause is not None:
                effects += self._lost(gap, gap.cause)
        return effects

    def _lost(self, gap: LostSpan, cause: LossCause) -> list[Effect]:
        self._counters.lost_sqns += gap.count
        return [Lost(self._tsi, gap.first, gap.count, cause), *self._kernel_drops.lost()]

    def _handed_over(self, runs: list[Run]) -> list[Effect]:
        """Return deliveries of runs that are next in order."""
        packets = sum([run.count for run in runs])
        octets = sum([run.count * run.stride for run in runs])
        self._room.octets -= octets
        self._counters.delivered_packets += packets
        self._counters.delivered_octets += octets - sum([run.count * run.payload_at for run in runs])
        self.next_sqn = runs[-1].end
        return [Deliver(self._tsi, run) for run in runs]

    @property
    def _is_too_full(self) -> bool:
        return self._held.pinned_octets > self._parameters.rxw_bytes and self._held.oldest is not None

    def _give_up_oldest(self) -> None:
        """Give up the gap that holds up delivery, or the oldest octets if no gap does.

        Without a gap, the application holds up delivery, and the cause of the loss is OVERRUN.
        """
        held, missing = self._held.oldest, self._recovery.missing.oldest
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


def _within(runs: Sequence[Run], spans: Sequence[Span]) -> Iterator[Run]:
    """Yield the parts of runs that ordered spans select. Each span lies in one run."""
    remaining = iter(runs)
    run = next(remaining, None)
    for first, end in spans:
        while run is not None and run.end <= first:
            run = next(remaining, None)
        assert run is not None, (runs, spans)
        yield run.part(first, end)


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
