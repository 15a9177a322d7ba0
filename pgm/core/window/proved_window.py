"""Receive window of a signed stream: packets wait until the source has proved them.

A span whose packets do not fit its proof is dropped, and requested again from another parent. The peer that gave the
fewest of the packets is accused: a repairer that alters repairs gave fewer than the relay that passes on the stream.
Packets of the span are refused from accused peers, until every known parent is accused.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

import attrs

from pgm.core.effects import Effect, LossCause, Notice, Opened
from pgm.core.recovery.parents import Parents
from pgm.core.recovery.recovery import Recovery
from pgm.core.session_context import SessionContext
from pgm.core.structures.ranges import Span
from pgm.core.window.receive_window import DeliveryBudget, LostSpan, ReceiveWindow
from pgm.units import NEVER
from pgm.wire.formats import Nla, tsi_text
from pgm.wire.train import DataWithGaps, Run

_MOST_GIFTS = 4096  # runs of packets of which the giver is remembered
_MOST_SUSPECTS = 1024  # spans with accused peers


class Judge(Protocol):
    """Verdicts about the packets of one window, in its numbers."""

    may_begin_later: bool  # packets before the first span are no loss: the session begins with the span

    def start_for(self, sqn: int) -> int:
        """Return where reception begins, such that the packets from a sqn on can be proved."""

    def span_at(self, sqn: int) -> Span | None:
        """Return the first span that ends after a sqn, and forget those before it. None: no proof has come."""

    def fits(self, runs: Sequence[Run]) -> bool:
        """Return whether the packets of the span that `span_at` returned fit its proof."""

    def may_open(self, sqn: int) -> bool:
        """Return whether the packets of the span from a sqn on can be decrypted now, or are in the clear."""

    def opened(self, run: Run) -> Iterator[Run]:
        """Yield proved packets with payloads in the clear."""


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


@attrs.define(eq=False)
class _Suspect:
    """Span that was wrong, how often, and who is accused."""

    tries: int = 0
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
        super().__init__(context, recovery, room)
        self._judge = trial.judge
        self._arrival = trial.arrival
        self._parents = trial.parents
        self._is_whole = trial.is_whole
        self._givers = _Givers()
        self._suspects: dict[Span, _Suspect] = {}
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
        """Start delivery at a later sqn, before any delivery."""
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
        if self._suspects and self._is_refused(first, end, peer):
            self._counters.forged_packets += pieces.count
            return 0
        is_new = end > self.gap_detector.end
        filled = super().insert(pieces, first, now_ns)
        if is_new or filled:
            self._givers.note(first, end, peer)
        return filled

    def _compare(self, copies: Sequence[Run], spans: Sequence[Span], now_ns: int) -> None:
        """Ignore copies: the proof decides between them."""

    def compare_delivered(self, runs: Sequence[Run]) -> None:
        """Ignore copies of delivered packets, which were proved."""

    def _is_refused(self, first: int, end: int, peer: Nla) -> bool:
        return any(
            first < span[1] and span[0] < end and peer in suspect.accused for span, suspect in self._suspects.items()
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
                break
            if self._given_up and (lost := self._given_up.within(at, whole_end)):
                whole_end = lost[0].first
            span = self._judge.span_at(at)
            if span is None:
                if not self._is_ending:
                    break
                self._drop(at, whole_end, self._waiting_cause)
            elif span[0] != at:
                self._pass_over(at, min(whole_end, span[1] if span[0] < at else span[0]))
            elif self._given_up and self._given_up.overlaps(at, span[1]):  # the other packets have no proof
                self._drop(at, whole_end, LossCause.UNPROVED)
            elif whole_end < span[1]:
                if not self._is_ending:
                    break
                self._drop(at, whole_end, self._waiting_cause)
            elif not self._judge.may_open(at):
                if not self._is_ending:
                    break
                self._drop(at, span[1], LossCause.SEALED)
            elif not self._try(span):
                break
        if self._checked_end > begun_at:
            self._givers.forget_before(self._checked_end)
            if self._suspects:
                self._suspects = {span: one for span, one in self._suspects.items() if span[1] > self._checked_end}

    def _try(self, span: Span) -> bool:
        """Compare the packets of a span with its proof. Return whether the check goes on after it."""
        first, end = span
        if self._judge.fits(list(self._held.parts(first, end))):
            self._has_begun = True
            self._checked_end = end
            self._suspects.pop(span, None)
            return True
        self._counters.forged_packets += end - first
        suspect = self._suspects.setdefault(span, _Suspect())
        suspect.tries += 1
        self._accuse(span, suspect)
        if suspect.tries > self._parameters.forged_retries or self._is_ending:
            del self._suspects[span]
            self._drop(first, end, LossCause.FORGED)
            return True
        if len(self._suspects) > _MOST_SUSPECTS:
            del self._suspects[next(iter(self._suspects))]
        self._cut(first, end)
        self._recovery.detect(first, end, self._arrival.now_ns)
        return False

    def _accuse(self, span: Span, suspect: _Suspect) -> None:
        peer = self._givers.least(span, suspect.accused)
        if peer is None:
            return
        suspect.accused.add(peer)
        now_ns = self._arrival.now_ns
        self._parents.accuse(peer, now_ns)
        if suspect.accused.issuperset(self._parents.all):
            suspect.accused.clear()
        if now_ns - self._noticed_ns >= self._parameters.notice_ivl:
            self._noticed_ns = now_ns
            text = f"the packets {span[0]} to {span[1] - 1} are not those of the source; some came from {peer}"
            self._effects.append(Notice("forged-packets", f"session {tsi_text(self._tsi)}: {text}"))

    def _pass_over(self, first: int, end: int) -> None:
        """Leave out packets for which no proof comes. A session may begin after them."""
        if self._has_begun or not self._judge.may_begin_later or first != self.next_sqn:
            self._drop(first, end, LossCause.UNPROVED)
            return
        self._cut(first, end)
        self._checked_end = self.next_sqn = end

    def _drop(self, first: int, end: int, cause: LossCause) -> None:
        self._has_begun = True
        self._cut(first, end)
        self.give_up([(first, end)], cause)
        self._checked_end = end

    def _cut(self, first: int, end: int) -> None:
        self._held.cut_out(first, end)
        if self.kept is not None:
            self.kept.cut_out(first, end)
