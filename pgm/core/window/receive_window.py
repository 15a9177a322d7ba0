"""Delivery in order: what has arrived and waits for a gap, and what was given up (RFC 3.4, 6.1).

Everything between `next_sqn` and the newest sqn is in exactly one of three places: held, being
recovered, or given up. Delivery takes runs and losses alternately from the front, as long as the
application has room. A run that is held may have room for what is being recovered (`pgm.core.window.held_runs`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import attrs

from pgm.core.counters import Counters
from pgm.core.effects import NOTHING, Deliver, Effect, Effects, LossCause, Lost, Notice
from pgm.core.recovery.gap_detector import GapDetector
from pgm.core.recovery.missing_range import RecoveryActions
from pgm.core.recovery.recovery import Recovery
from pgm.core.structures.ranges import RangeTable, Span, SqnRange
from pgm.core.structures.run_store import RunStore
from pgm.core.window.held_runs import HeldRuns
from pgm.parameters import Parameters
from pgm.units import NEVER
from pgm.wire.formats import DATA_HEADER_OCTETS, Tsi, tsi_text
from pgm.wire.train import Data, DataWithGaps, Run

# Packets of a read for each that there may be room for: where more is missing, it comes as runs that are worth it.
_ROOM_SHARE = 8


@attrs.define
class DeliveryBudget:
    """Octets that the application's queue still takes; shared by the sessions of one receiver."""

    octets: int


@attrs.define(eq=False)
class LostSpan(SqnRange):
    """Sqns that will not be delivered, until that has been said in order."""

    cause: LossCause | None  # None: they never were


class ReceiveWindow:
    """The receive window of one session."""

    def __init__(
        self, tsi: Tsi, recovery: Recovery, room: DeliveryBudget, parameters: Parameters, counters: Counters
    ) -> None:
        self._tsi = tsi
        self._recovery = recovery
        self._room = room
        self._parameters = parameters
        self._counters = counters
        self.gap_detector = GapDetector(recovery)
        self._held = HeldRuns()
        self._given_up: RangeTable[LostSpan] = RangeTable()
        self._slowness = KernelDropMonitor(tsi, counters)
        self._notices: list[Effect] = []  # for when something is said the next time
        self.kept: RunStore | None = None  # what came, also after it was delivered: parity needs it
        self.next_sqn = 0  # the first sqn not yet delivered or reported

    def begin(self, sqn: int) -> None:
        """Delivery starts with this sqn."""
        self.gap_detector.begin(sqn)
        self.next_sqn = sqn

    def begin_earlier(self, sqn: int, now_ns: int) -> None:
        """Nothing was delivered yet, and the stream is said to begin before what has come."""
        if sqn < self.next_sqn:
            self._recovery.detect(sqn, self.next_sqn, now_ns)
            self.gap_detector.first = self.next_sqn = sqn

    @property
    def held_octets(self) -> int:
        """Memory of what waits, whole chunks."""
        return self._held.pinned_octets

    @property
    def is_drained(self) -> bool:
        """Whether everything known was delivered or reported."""
        return self.next_sqn == self.gap_detector.end

    def pass_on(self, data: Data, first: int) -> Deliver | None:
        """Deliver what comes next in order at once, if nothing waits before it and the application has room for all of it.

        The same as `add` and `advance` in a fraction of their calls; None, and nothing was taken, where it is not so plain.
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
        """Keep what comes behind all that is known, and deliver what may be now: nothing while what is next in order is missing.

        The same as `add` and `advance` in a fraction of their calls; None, and nothing was taken, where it is not so plain.
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
        return self._advance_behind_room()

    def _advance_behind_room(self) -> list[Effect]:
        """`advance`, where more is held than before: something only if what is next waits for the application's room alone."""
        is_waiting = self._room.octets > 0 and self._recovery.missing.at(self.next_sqn) is None
        return self.advance() if is_waiting else []

    def take_behind(self, some: DataWithGaps, first: int, now_ns: int) -> list[Effect] | None:
        """`pass_on` and `hold_on` for pieces that lie behind all that is known, the first packet at sqn `first`; None, and nothing was taken, where one of them would not."""
        gap_detector, spans = self.gap_detector, some.spans
        if (
            first < gap_detector.end
            or self.kept is not None
            or len(self._recovery.missing) + len(spans) > self._parameters.rxw_gaps
            or self._held.pinned_octets + some.data.buffer.nbytes > self._parameters.rxw_bytes
        ):
            return None
        has_room = spans[0][1] * some.data.stride <= self._room.octets
        is_next = has_room and first == self.next_sqn == gap_detector.end
        effects: list[Effect] = []
        packets = some.count
        runs = [some.spread_run(first)] if some.open_gaps(packets // _ROOM_SHARE) else some.runs(first)
        if is_next:
            delivered = self.pass_on(some.data, first)
            assert delivered is not None
            effects.append(delivered)
            packets -= some.data.count
            taken = runs.pop(0)
            if taken.end > gap_detector.end:
                runs.insert(0, taken.part(gap_detector.end, taken.end))
        gaps, end = [], gap_detector.end
        for low, high in spans[is_next:]:
            if first + low > end:
                gaps.append((end, first + low))
            end = first + high
        self._recovery.detect_new(gaps, now_ns)
        gap_detector.end = end
        self._held.extend(runs)
        self._counters.received_packets += packets
        self._counters.received_octets += packets * some.data.stride
        return effects or self._advance_behind_room()

    def fill(self, some: DataWithGaps, first: int, now_ns: int) -> int | None:
        """`add` for pieces of what is known, the first packet at sqn `first`, as long as all of them may be held; returns how many had been missing."""
        held, data = self._held, some.data
        if (
            first + some.spans[-1][1] > self.gap_detector.end
            or self.kept is not None
            or len(self._recovery.missing) + len(some.spans) > self._parameters.rxw_gaps  # each may cut one in two
            or held.pinned_octets + data.buffer.nbytes > self._parameters.rxw_bytes
        ):
            return None
        spans = [(first + low, first + end) for low, end in some.spans]
        found = self._recovery.arrived_each(spans, now_ns)
        if found == spans:
            held.fill(some, first)
        else:
            held.insert(list(_within(some.runs(first), found)))
        filled = sum([end - low for low, end in found])
        self._counters.received_packets += filled
        self._counters.received_octets += filled * data.stride
        self._counters.duplicate_packets += some.count - filled
        return filled

    def repair(self, data: Data, first: int, now_ns: int) -> tuple[list[Effect], int] | None:
        """Take in packets of what is known, none of which was delivered, and deliver what is in order now; also returns how many had been missing.

        The same as `add` and `advance` in a fraction of their calls; None, and nothing was taken, where it is not so plain.
        """
        held, end = self._held, first + data.count
        if (
            not self.next_sqn <= first < end <= self.gap_detector.end
            or self.kept is not None
            or len(self._recovery.missing) >= self._parameters.rxw_gaps  # one may be cut in two
            or held.pinned_octets + data.buffer.nbytes > self._parameters.rxw_bytes
        ):
            return None
        found = self._recovery.arrived(first, end, now_ns)
        filled = data.count if found == [(first, end)] else sum([high - low for low, high in found])
        effects: list[Effect] = []
        counters, octets = self._counters, filled * data.stride
        counters.received_packets += filled
        counters.received_octets += octets
        counters.duplicate_packets += data.count - filled
        run = data.run(first)
        oldest = held.oldest
        is_behind_all = oldest is None or oldest.first >= end  # else there is room for it in memory
        if first == self.next_sqn and filled == data.count and octets <= self._room.octets and is_behind_all:
            self._room.octets -= octets
            self.next_sqn = end
            counters.delivered_packets += filled
            counters.delivered_octets += octets - filled * data.payload_at
            effects.append(Deliver(self._tsi, run))
        else:
            for low, high in found:
                held.add(run.part(low, high))
        oldest = held.oldest
        if (oldest is not None and oldest.first == self.next_sqn) or self._given_up:
            effects += self.advance()
        return effects, filled

    def may_pass(self, sqn: int, octets: int) -> bool:
        """Whether a packet, plain and of so many octets, is next and may be delivered to an application that takes it at once.

        As `pass_on`, but that it waits in no queue and so needs no run; together with `note_passed`.
        """
        return sqn == self.next_sqn == self.gap_detector.end and octets <= self._room.octets and self.kept is None

    def note_passed(self, octets: int) -> None:
        """Note that such a packet was delivered."""
        self.next_sqn = self.gap_detector.end = self.next_sqn + 1
        counters = self._counters
        counters.received_packets += 1
        counters.received_octets += octets
        counters.delivered_packets += 1
        counters.delivered_octets += octets - DATA_HEADER_OCTETS
        if octets > counters.queue_most_octets:
            counters.queue_most_octets = octets

    def add(self, run: Run, now_ns: int) -> int:
        """Take data in. Returns how many of its packets had been missing."""
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
        """Learn that everything below `end` was sent."""
        self.gap_detector.reveal(end, now_ns)
        self._bound_gaps()

    def _bound_gaps(self) -> None:
        while len(self._recovery.missing) > self._parameters.rxw_gaps:
            self._give_up_oldest_gap()

    def skip(self, spans: list[Span]) -> None:
        """Go on behind these sqns without a word: they were not used. A gap may have been cut in two for that, or revealed."""
        self.give_up(spans, None)
        self._bound_gaps()

    def take_back(self, span: Span, now_ns: int) -> None:
        """Recover what was skipped, as it was sent after all; what delivery has gone past is lost, which `advance` says by a notice."""
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

    def end_asking(self, step: RecoveryActions, trail: int) -> bool:
        """Stop waiting for what was asked for in vain or had to make room for it. Says whether there was any."""
        for first, end in step.given_up:
            source_has_from = min(max(first, trail), end)
            self.give_up([(first, source_has_from)], LossCause.WINDOW)
            self.give_up([(source_has_from, end)], LossCause.RETRIES)
        self.give_up(step.crowded_out, LossCause.OVERLOAD)
        return bool(step.given_up or step.crowded_out)

    def give_up(self, spans: list[Span], cause: LossCause | None) -> None:
        """Stop waiting for missing spans, empty ones aside.

        Neighbours are joined, so an application that stands still costs one range; when there are too many all the
        same, neighbours of different causes are joined too, and the oldest one's is told.
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

    def _may_join(self, one: LostSpan, other: LostSpan) -> bool:
        if one.cause is None or other.cause is None:
            return one.cause is other.cause  # what never was is no loss, and no loss is hidden in it
        return one.cause is other.cause or len(self._given_up) >= self._parameters.rxw_gaps

    def skip_to(self, sqn: int, cause: LossCause) -> None:
        """Go on at `sqn`, far ahead; what was missing or never seen before it is lost."""
        self.give_up(self._recovery.give_up_before(sqn), cause)
        if sqn > self.gap_detector.end:
            self.give_up([(self.gap_detector.end, sqn)], cause)
            self.gap_detector.end = sqn

    def skip_all(self, cause: LossCause) -> None:
        """Give up all that is known and not delivered."""
        while self._held.oldest is not None:
            run = self._held.cut_oldest(self._held.oldest.count)
            self.give_up(self._recovery.missing.uncovered(run.first, run.end), cause)
        self.give_up(self._recovery.give_up_before(self.gap_detector.end), cause)

    def advance(self, *, is_last: bool = False) -> list[Effect]:
        """What can be said in order now. `is_last` says it all, room or not: the session is about to go."""
        effects, self._notices = [*self._notices, *self._deliver(is_last=is_last)], []
        while self._is_too_full:
            self._give_up_oldest()
            effects += self._deliver(is_last=is_last)
        return effects

    def keep_bounds(self) -> None:
        """Hold no more than allowed while nothing may be delivered yet."""
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
        return [Lost(self._tsi, gap.first, gap.count, cause), *self._slowness.lost()]

    def _handed_over(self, runs: list[Run]) -> list[Effect]:
        """Runs that are next in order, as deliveries."""
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
        """Stop waiting for the gap that holds up delivery; if there is none, the application does, and the oldest octets go."""
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
    """The parts of runs that spans in order say, each of which lies in one run."""
    left = iter(runs)
    run = next(left, None)
    for first, end in spans:
        while run is not None and run.end <= first:
            run = next(left, None)
        assert run is not None, (runs, spans)
        yield run.part(first, end)


_TOLD_AGAIN = 2  # times as many drops: who stays too slow hears of it now and then, not at each loss


class KernelDropMonitor:
    """What one session's losses have to do with its receiver's own socket."""

    def __init__(self, tsi: Tsi, counters: Counters) -> None:
        self._tsi = tsi
        self._counters = counters
        self._before = counters.socket_drops  # the session began: no matter of its losses
        self._tells_at = 1

    def lost(self) -> Effects:
        """Note that something is lost for good."""
        drops = self._counters.socket_drops - self._before
        if drops < self._tells_at:
            return NOTHING
        self._tells_at = _TOLD_AGAIN * drops
        text = (
            f"packets are lost, and the kernel has dropped {drops:,} of this receiver's own socket: it does not keep up"
        )
        return (Notice("too-slow", f"session {tsi_text(self._tsi)}: {text}"),)
