"""Receive window of a signed stream: packets wait until the source has proved them.

The digest of a span says whether all of its packets are right. If one of them is lost for good, or one is wrong, the
details are requested: the digest of each packet. Wrong packets alone are then dropped, and requested again from
another parent than the one that gave them. Right packets beside a lost one are delivered.

If no details come, a span that does not fit its proof is dropped as a whole, and requested again. The peer that gave the
fewest of the packets is accused: a repairer that alters repairs gave fewer than the relay that passes on the stream.
Dropped packets are refused from accused peers, until every known parent is accused.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

import attrs

from pgm.core.effects import Effect, LossCause, Notice, Opened
from pgm.core.recovery.parents import Parents
from pgm.core.recovery.recovery import Recovery
from pgm.core.session_context import SessionContext
from pgm.core.structures.ranges import Span, merged, without
from pgm.core.window.conflicts import DeliveredPackets
from pgm.core.window.receive_window import DeliveryBudget, LostSpan, ReceiveWindow
from pgm.units import NEVER
from pgm.wire.formats import Nla, tsi_text
from pgm.wire.train import DataWithGaps, Run

_MOST_GIFTS = 4096  # runs of packets of which the giver is remembered
_MOST_SUSPECTS = 1024  # spans with accused peers
_MOST_GAPS_AHEAD = 16  # whose neighbours need details with those of the oldest span
_NOBODY: Nla = ""  # as the giver of rebuilt packets
_NOTHING = (-1, False)


class Judge(Protocol):
    """Verdicts about the packets of one window, in its numbers."""

    may_begin_later: bool  # packets before the first span are no loss: the session begins with the span
    news: int  # proofs, details and key records that came, and requests for details that got no answer

    def start_for(self, sqn: int) -> int:
        """Return where reception begins, such that the packets from a sqn on can be proved."""

    def block_start(self, sqn: int) -> int:
        """Return the first sqn of the block of a packet. No span begins in one block and ends in another."""

    def span_at(self, sqn: int) -> Span | None:
        """Return the first span that ends after a sqn. None: no proof has come."""

    def forget_before(self, sqn: int) -> None:
        """Forget spans and details before a sqn."""

    def fits(self, runs: Sequence[Run]) -> bool:
        """Return whether the packets of a span that `span_at` returned fit its proof."""

    def may_open(self, first: int, end: int) -> bool:
        """Return whether proved packets can be decrypted now, or are in the clear."""

    def is_shut(self, sqn: int) -> bool:
        """Return whether no secret comes for a packet: the receiver was no reader then."""

    def opened(self, run: Run) -> Iterator[Run]:
        """Yield proved packets with payloads in the clear."""

    def detailed_until(self, first: int, end: int) -> int:
        """Return the first sqn without details among some, or `end`."""

    def wrong_of(self, runs: Sequence[Run]) -> list[int]:
        """Return the sqns of packets that differ from their details."""

    def want(self, first: int, end: int, now_ns: int, *, is_urgent: bool) -> None:
        """Request the details of some packets, at once or after the time of a repair."""

    def is_vain(self, sqn: int) -> bool:
        """Return whether the requests for details of a packet got no answer."""

    def answered(self, first: int, end: int) -> None:
        """End the requests for details of some packets."""


@attrs.define(eq=False)
class Arrival:
    """Packets that a receiver takes now: their sender and the time."""

    peer: Nla = ""
    now_ns: int = 0


@attrs.frozen
class Trial:
    """Parts that a window needs for its verdicts."""

    judge: Judge
    arrival: Arrival
    parents: Parents
    is_whole: bool = False  # the application gets the packets before its start that are there for proofs
    is_late: bool = False  # packets are delivered before they are proved
    is_ordered: bool = True  # packets are delivered in the order of their sqns


@attrs.define(eq=False)
class _Suspect:
    """Span that was wrong, how often, and who is accused."""

    tries: int = 0
    tried_ns: int = -NEVER
    accused: set[Nla] = attrs.field(factory=set)


class _Givers:
    """Peers that gave the packets of a window. The memory is bounded; the oldest packets are forgotten first."""

    def __init__(self) -> None:
        self._gifts: list[tuple[int, int, Nla]] = []

    def note(self, first: int, end: int, peer: Nla) -> None:
        """Note packets."""
        gifts = self._gifts
        if gifts and gifts[-1][1] == first and gifts[-1][2] == peer:
            first = gifts.pop()[0]
        gifts.append((first, end, peer))
        if len(gifts) > _MOST_GIFTS:
            del gifts[: _MOST_GIFTS // 2]

    def forget_before(self, sqn: int) -> None:
        """Forget packets that are proved."""
        if self._gifts and self._gifts[0][1] <= sqn:
            self._gifts = [gift for gift in self._gifts if gift[1] > sqn]

    def forget(self, first: int, end: int) -> None:
        """Forget packets that were dropped: other peers may give them next."""
        self._gifts = [
            (low, high, peer)
            for begin, stop, peer in self._gifts
            for low, high in ((begin, min(stop, first)), (max(begin, end), stop))
            if low < high
        ]

    def of(self, sqn: int) -> Nla | None:
        """Return who gave a packet last; None if nobody is known."""
        return next((peer for first, end, peer in reversed(self._gifts) if first <= sqn < end), None)

    def least(self, span: Span, but: Iterable[Nla]) -> Nla | None:
        """Return who gave the fewest packets of a span, except some peers; None if nobody else is known."""
        counts: dict[Nla, int] = {}
        for first, end, peer in reversed(self._gifts):  # of two equal ones the later, whose packets were repairs
            overlap = min(end, span[1]) - max(first, span[0])
            if overlap > 0 and peer not in but:
                counts[peer] = counts.get(peer, 0) + overlap
        return min(counts, key=lambda peer: counts[peer], default=None)


class ProvedWindow(ReceiveWindow):
    """Receive window that delivers what its judge has found right. Everything else waits, within `rxw_bytes`."""

    def __init__(self, context: SessionContext, recovery: Recovery, room: DeliveryBudget, trial: Trial) -> None:
        super().__init__(context, recovery, room, is_ordered=trial.is_ordered)
        self._delivered = DeliveredPackets(0)  # proofs decide between copies, so no receive memory is kept for that
        self._judge = trial.judge
        self._arrival = trial.arrival
        self._parents = trial.parents
        self._is_whole = trial.is_whole
        self._givers = _Givers()
        self._suspects: dict[Span, _Suspect] = {}
        self._mismatch: Span | None = None  # the span that did not fit its proof, and waits for details
        self._wanted = _NOTHING  # sqn and urgency of the last request for details
        self._first = 0  # of the application: packets before it are there for proofs alone
        self._is_ending = False
        self._waiting_cause = LossCause.UNPROVED  # of packets that still wait for their proof when the session ends
        self._has_begun = False
        self._opened: Opened | None = None  # not reported yet
        self._noticed_ns = -NEVER

    def begin(self, sqn: int) -> None:
        """Start delivery at `sqn`."""
        start = self._judge.start_for(sqn)
        self._first = start if self._is_whole else sqn
        super().begin(start)
        self._checked_end = self.next_sqn

    def begin_earlier(self, sqn: int, now_ns: int) -> None:
        """Start delivery at an earlier sqn, before any delivery."""
        if sqn < self._first:
            start = self._judge.start_for(sqn)
            self._first = start if self._is_whole else sqn
            super().begin_earlier(start, now_ns)
            self._checked_end = self.next_sqn

    def begin_later(self, sqn: int) -> None:
        """Start delivery at a later sqn, before any delivery. Earlier packets of its block are kept for the proof."""
        self._begin_with(max(self.next_sqn, self._judge.block_start(sqn)))
        self._first = sqn

    def _begin_with(self, sqn: int) -> None:
        """Start delivery at a later sqn, which begins a span or a block."""
        super().begin_later(sqn)
        self._checked_end = max(self._checked_end, self.next_sqn)

    def opening(self, opened: Opened) -> list[Effect]:
        """Keep the report until the first proof has shown where delivery begins."""
        self._opened = opened
        return []

    def late_opening(self, first: int) -> list[Effect]:
        """Return the report that delivery begins at `first`, once."""
        opened, self._opened = self._opened, None
        if opened is None:
            return []
        self._has_begun = True
        return [opened if opened.first == first else attrs.evolve(opened, first=first, at_start=False)]

    def insert(self, pieces: Run | DataWithGaps, first: int, now_ns: int) -> int:
        """Take packets, unless their sender is accused of wrong ones in their place."""
        end = pieces.end if isinstance(pieces, Run) else first + pieces.spans[-1][1]
        peer = self._arrival.peer
        if self._suspects and (refused := self._refused(first, end, peer)):
            return self._insert_rest([pieces] if isinstance(pieces, Run) else pieces.runs(first), refused, now_ns)
        known_end = self.gap_detector.end
        if first < known_end:  # copies of packets that came before are not from this peer
            for gap in self._recovery.missing.reaching(first):
                if gap.first >= end:
                    break
                self._givers.note(max(first, gap.first), min(end, gap.end), peer)
        if end > known_end:
            self._givers.note(max(first, known_end), end, peer)
        return super().insert(pieces, first, now_ns)

    def insert_rebuilt(self, run: Run, now_ns: int) -> int:
        """Take packets that parity has rebuilt: no peer gave them."""
        peer, self._arrival.peer = self._arrival.peer, _NOBODY
        filled = self.insert(run, run.first, now_ns)
        self._arrival.peer = peer
        return filled

    def _insert_rest(self, runs: Sequence[Run], refused: Sequence[Span], now_ns: int) -> int:
        """Take the packets of runs that are not refused. Return how many of them had been missing."""
        filled = 0
        for run in runs:
            for first, end in without([(run.first, run.end)], refused):
                filled += self.insert(run.part(first, end), first, now_ns)
        self._counters.forged_packets += sum(
            max(0, min(run.end, end) - max(run.first, first)) for run in runs for first, end in refused
        )
        return filled

    def _compare(self, copies: Sequence[Run], spans: Sequence[Span], now_ns: int) -> None:
        """Ignore copies: the proof decides between them."""

    def compare_delivered(self, runs: Sequence[Run]) -> None:
        """Ignore copies of delivered packets, which were proved."""

    def _refused(self, first: int, end: int, peer: Nla) -> list[Span]:
        """Return the parts of some sqns that are refused from a peer, in order."""
        return merged(
            [
                (max(first, low), min(end, high))
                for (low, high), suspect in self._suspects.items()
                if first < high and low < end and peer in suspect.accused
            ]
        )

    def may_pass(self, sqn: int, octets: int) -> bool:
        """Return False: every packet waits for its proof."""
        return False

    def _pass_on(self, run: Run) -> bool:
        return False

    def _hand_over(self, run: Run) -> None:
        if run.first < self._first:
            self.next_sqn = min(run.end, self._first)
            if run.end <= self._first:
                return
            run = run.part(self._first, run.end)
        if self._opened is not None:
            self._effects += self.late_opening(run.first)
        for opened in self._judge.opened(run):
            super()._hand_over(opened)

    def _report(self, gap: LostSpan) -> None:
        if gap.first < self._first:
            if gap.end <= self._first:
                return
            gap = LostSpan(self._first, gap.end, gap.cause)
        if self._opened is not None and gap.cause is not None:
            self._effects += self.late_opening(gap.first)
        super()._report(gap)

    def give_up_rest(self, cause: LossCause) -> None:
        """Stop waiting for missing packets and for proofs: the session ends."""
        super().give_up_rest(cause)
        self._is_ending = True
        if cause is LossCause.SEALED:
            self._waiting_cause = cause

    def _deliver(self, *, is_last: bool) -> None:
        self._check()
        super()._deliver(is_last=is_last)

    def _check(self) -> None:
        """Move the checked end as far as proofs and packets allow."""
        known_end, missing = self.gap_detector.end, self._recovery.missing
        begun_at = self._checked_end
        while (at := self._checked_end) < known_end:
            gap = self._given_up.at(at)
            if gap is not None:
                self._checked_end = gap.end
                continue
            oldest = missing.oldest
            whole_end = known_end if oldest is None else min(known_end, oldest.first)
            if whole_end <= at:
                self._want_early(at, known_end)
                break
            if self._given_up and (lost := self._given_up.within(at, whole_end)):
                whole_end = lost[0].first
            span = self._judge.span_at(at)
            if span is None and not self._is_ending:
                break
            if span is None or span[0] > at:
                goes_on = self._pass_over(at, whole_end if span is None else min(whole_end, span[0]))
            elif span[0] == at and span[1] <= whole_end:
                goes_on = self._judge_whole(span)
            elif span[0] < at and self._may_begin_after(at):
                goes_on = self._pass_over(at, min(whole_end, span[1]))
            else:
                is_lost = span[0] < at or bool(self._given_up and self._given_up.overlaps(*span))
                if not is_lost and whole_end == known_end and not self._is_ending:
                    break  # the rest of the span has yet to come
                goes_on = self._judge_singly(at, min(whole_end, span[1]), is_lost=is_lost)
            if not goes_on:
                break
        if self._checked_end > begun_at:
            self._forget_before(self._checked_end)

    def _forget_before(self, sqn: int) -> None:
        """Forget what is known about packets that are judged."""
        self._judge.forget_before(sqn)
        self._givers.forget_before(sqn)
        if self._suspects:
            self._suspects = {span: one for span, one in self._suspects.items() if span[1] > sqn}

    def _judge_whole(self, span: Span) -> bool:
        """Compare the packets of a span with its proof. Return whether the check goes on."""
        first, end = span
        judge = self._judge
        if judge.is_shut(first):
            return self._drop(first, end, LossCause.SEALED)
        if not judge.may_open(first, end):
            return self._is_ending and self._drop(first, end, LossCause.SEALED)
        if self._mismatch != span:
            if judge.fits(list(self._held.parts(first, end))):
                return self._believe(first, end)
            self._mismatch = span
        if end - first == 1:
            return self._reject([span], [first])
        unknown = judge.detailed_until(first, end)
        if unknown == end:
            self._has_details(first, end)
            wrong = judge.wrong_of(list(self._held.parts(first, end)))
            return self._reject([(sqn, sqn + 1) for sqn in wrong], wrong) if wrong else self._believe(first, end)
        if self._is_ending or judge.is_vain(unknown):
            return self._reject([span], [])
        self._want(first, end, is_urgent=True)
        return False

    def _judge_singly(self, first: int, end: int, *, is_lost: bool) -> bool:
        """Compare packets of a span that lacks others with their details. Return whether the check goes on.

        `is_lost` says that the others are lost, and not only missing.
        """
        judge = self._judge
        known_end = judge.detailed_until(first, end)
        if known_end > first:
            self._has_details(first, known_end)
            if judge.is_shut(first):
                return self._drop(first, known_end, LossCause.SEALED)
            if not judge.may_open(first, known_end):
                return self._is_ending and self._drop(first, known_end, LossCause.SEALED)
            wrong = judge.wrong_of(list(self._held.parts(first, known_end)))
            if wrong and wrong[0] == first:
                return self._reject([(sqn, sqn + 1) for sqn in wrong], wrong)
            return self._believe(first, wrong[0] if wrong else known_end)
        if self._is_ending or (is_lost and judge.is_vain(first)):
            stop = next((sqn for sqn in range(first + 1, end) if judge.detailed_until(sqn, sqn + 1) > sqn), end)
            return self._drop(first, stop, self._waiting_cause if self._is_ending else LossCause.UNPROVED)
        self._want(first, end, is_urgent=is_lost)
        return False

    def _has_details(self, first: int, end: int) -> None:
        self._judge.answered(first, end)
        self._wanted = _NOTHING

    def _want_early(self, first: int, known_end: int) -> None:
        """Request the details of the span of a missing packet, if others of it are there: the source has them now."""
        span = self._judge.span_at(first)
        if span is not None:
            held = self._recovery.missing.uncovered(first, min(span[1], known_end))
            if any(self._judge.detailed_until(*part) < part[1] for part in held):
                self._want(first, span[1], is_urgent=False)
            elif self._wanted != _NOTHING:
                self._has_details(first, span[1])

    def _want(self, first: int, end: int, *, is_urgent: bool) -> None:
        """Request the details of some packets, and those beside later gaps: each answer takes a while."""
        if self._wanted == (first, is_urgent):
            return
        self._wanted = first, is_urgent
        now_ns = self._arrival.now_ns
        self._judge.want(first, end, now_ns, is_urgent=is_urgent)
        for gaps, is_lost in ((self._recovery.missing, False), (self._given_up, True)):
            for gap in itertools.islice(gaps.reaching(end), _MOST_GAPS_AHEAD):
                for sqn in (gap.first, gap.end - 1):
                    self._judge.want(sqn, sqn + 1, now_ns, is_urgent=is_lost)

    def _believe(self, first: int, end: int) -> bool:
        """Allow the delivery of packets that are proved. Return True."""
        self._has_begun = True
        self._checked_end = end
        self._mismatch = None
        return True

    def _reject(self, spans: Sequence[Span], surely: Sequence[int]) -> bool:
        """Drop wrong packets, and request them again. Return whether the check goes on.

        Each packet of `surely` is known to be wrong; among others some are.
        """
        self._mismatch, self._wanted = None, _NOTHING
        self._counters.forged_packets += sum([end - first for first, end in spans])
        self._accuse_givers(surely)
        lost, again = [], []
        for span in spans:
            suspect = self._suspects.setdefault(span, _Suspect())
            # Copies that come sooner than a repair are forgeries that nobody asked for, and use up no try.
            if self._arrival.now_ns - suspect.tried_ns >= self._parameters.nak_rdata_min_ivl:
                suspect.tries, suspect.tried_ns = suspect.tries + 1, self._arrival.now_ns
            self._accuse(span, suspect)
            self._cut(*span)
            if suspect.tries > self._parameters.forged_retries or self._is_ending:
                del self._suspects[span]
                lost.append(span)
                continue
            again.append(span)
            if len(self._suspects) > _MOST_SUSPECTS:
                del self._suspects[next(iter(self._suspects))]
        if lost:
            self._has_begun = True
            self.give_up(lost, LossCause.FORGED)
        for first, end in merged(again):
            self._recovery.detect(first, end, self._arrival.now_ns)
        self._bound_gaps()
        return True

    def _accuse_givers(self, surely: Sequence[int]) -> None:
        """Count wrong packets to the peers that gave them."""
        counts: dict[Nla, int] = {}
        for sqn in surely:
            peer = self._givers.of(sqn)
            if peer:
                counts[peer] = counts.get(peer, 0) + 1
        for peer, packets in counts.items():
            self._parents.accuse(peer, self._arrival.now_ns, packets)
            self._notice(f"{packets} packets from {surely[0]} on are not those of the source; {peer} gave them")

    def _accuse(self, span: Span, suspect: _Suspect) -> None:
        """Refuse packets in place of those of a span from a peer that gave some of them."""
        peer = self._givers.of(span[0]) if span[1] - span[0] == 1 else self._givers.least(span, suspect.accused)
        if peer is None:
            return
        suspect.accused.add(peer)
        if span[1] - span[0] > 1:
            self._parents.accuse(peer, self._arrival.now_ns)
            self._notice(f"the packets {span[0]} to {span[1] - 1} are not those of the source; some came from {peer}")
        if suspect.accused.issuperset(self._parents.all):
            suspect.accused.clear()

    def _notice(self, text: str) -> None:
        now_ns = self._arrival.now_ns
        if now_ns - self._noticed_ns >= self._parameters.notice_ivl:
            self._noticed_ns = now_ns
            self._effects.append(Notice("forged-packets", f"session {tsi_text(self._tsi)}: {text}"))

    def _may_begin_after(self, sqn: int) -> bool:
        """Return whether the session may begin after a packet that cannot be proved."""
        return not self._has_begun and self._judge.may_begin_later and sqn == self.next_sqn

    def _pass_over(self, first: int, end: int) -> bool:
        """Judge packets for which no proof comes by their details. A session may begin after them."""
        if not self._may_begin_after(first):
            return self._judge_singly(first, end, is_lost=True)
        self._cut(first, end)
        self._checked_end = self.next_sqn = end
        return True

    def _drop(self, first: int, end: int, cause: LossCause) -> bool:
        self._has_begun = True
        self._cut(first, end)
        self.give_up([(first, end)], cause)
        self._checked_end = end
        return True

    def _cut(self, first: int, end: int) -> None:
        self._givers.forget(first, end)
        self._held.cut_out(first, end)
        if self.kept is not None:
            self.kept.cut_out(first, end)
