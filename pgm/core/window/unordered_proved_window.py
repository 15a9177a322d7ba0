"""Receive window of a signed stream without order: packets leave as their spans are proved, in any order.

A span waits for its own packets alone. Right packets of a span that lacks others leave by their details, as in ordered
streams (`pgm.core.window.proved_window`). Packets between two spans have no proof, and need details as well.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from pgm.core.effects import LossCause
from pgm.core.recovery.recovery import Recovery
from pgm.core.session_context import SessionContext
from pgm.core.structures.ranges import RangeTable, Span, SqnRange, without
from pgm.core.window.proved_window import Judge, ProvedWindow, Trial
from pgm.core.window.receive_window import DeliveryBudget
from pgm.units import NEVER
from pgm.wire.train import Run

_UNSEEN = (-1, -1, -1)


@attrs.define(eq=False)
class _OpenSpan:
    """Span with packets that are not judged yet."""

    first: int
    end: int
    has_proof: bool  # else it lies between two spans
    left: list[Span]  # not judged: held, missing, lost, or to come
    is_mismatch: bool = False  # its packets did not fit its proof, so some are wrong
    seen: tuple[int, int, int] = _UNSEEN  # packets held, packets lost, and news at the last look

    @property
    def is_whole(self) -> bool:
        """Whether no packet is judged yet."""
        return self.left == [(self.first, self.end)]

    def judged(self, parts: Sequence[Span]) -> None:
        """Note packets that need no verdict any more."""
        self.left = without(self.left, parts)


class UnorderedProvedWindow(ProvedWindow):
    """Proved window that delivers each span once it is proved."""

    def __init__(self, context: SessionContext, recovery: Recovery, room: DeliveryBudget, trial: Trial) -> None:
        super().__init__(context, recovery, room, trial)
        self._open: list[_OpenSpan] = []  # ascending
        self._spans_end = 0  # the end of the last of them, judged or not
        self._right: RangeTable[SqnRange] = RangeTable()  # held, proved, and not delivered

    def begin(self, sqn: int) -> None:
        """Start delivery at `sqn`."""
        super().begin(sqn)
        self._spans_end = self.next_sqn

    def begin_earlier(self, sqn: int, now_ns: int) -> None:
        """Start delivery at an earlier sqn, before any delivery."""
        super().begin_earlier(sqn, now_ns)
        self._spans_end = self.next_sqn

    def _deliver_on_arrival(self, *, is_last: bool) -> None:
        """Deliver the packets that are proved now, and report losses once it is known where the session begins."""
        self._take_spans()
        news, known_end = self._judge.news, self.gap_detector.end
        self._open = [one for one in self._open if not self._is_settled(one, known_end, news)]
        may_report = self._has_begun or self._is_ending or is_last or not self._judge.may_begin_later
        if may_report and (self._right or self._given_up):
            self._effects += self.late_opening(max(self.next_sqn, self._first))
            self._deliver_right(NEVER if is_last else self._room.octets)
            self._report_given_up()
        begun_at = self.next_sqn
        self._settle_on_arrival()
        if self.next_sqn > begun_at:
            self._forget_before(self.next_sqn)

    def _take_spans(self) -> None:
        """Open the spans of proofs that came, and the gaps between them."""
        known_end = self.gap_detector.end
        while self._spans_end < known_end:
            at = self._spans_end
            span = self._judge.span_at(at)
            if self._may_begin_after(at) and span is not None and span[0] != at:
                self._begin_with(span[0] if span[0] > at else span[1])
                self._spans_end = self.next_sqn
            elif span is not None and span[0] <= at:
                self._add(at, span[1], has_proof=span[0] == at)
            elif span is not None or self._is_ending:
                self._add(at, known_end if span is None else min(span[0], known_end), has_proof=False)
            else:
                break

    def _add(self, first: int, end: int, *, has_proof: bool) -> None:
        self._has_begun = True
        self._open.append(_OpenSpan(first, end, has_proof, [(first, end)]))
        self._spans_end = end

    def _is_settled(self, one: _OpenSpan, known_end: int, news: int) -> bool:
        """Judge what can be judged of a span. Return whether nothing is left of it."""
        held, here = self._unjudged(one, known_end)
        count = sum([run.count for run in held])
        known = sum([end - first for first, end in here])
        lost = sum([end - first for part in here for first, end in self._recovery.missing.uncovered(*part)]) - count
        if one.seen == (count, lost, news) and not self._is_ending:
            return False
        one.seen = count, lost, news
        is_complete = count == one.end - one.first
        if is_complete and one.has_proof and not one.is_mismatch and not self._compare_span(one, held):
            return not one.left
        is_broken = lost > 0 or not one.has_proof or one.is_mismatch or not one.is_whole
        if held and (is_broken or known > count):
            self._judge_parts(one, held, is_broken=is_broken)
            here = self._unjudged(one, known_end)[1]
        is_over = one.end <= known_end or self._is_ending
        return is_over and not any(self._may_come(*part) for part in here)

    def _unjudged(self, one: _OpenSpan, known_end: int) -> tuple[list[Run], list[Span]]:
        """Return the held packets of a span that are not judged, and its known sqns that are not."""
        here = [(first, min(end, known_end)) for first, end in one.left if first < known_end]
        return [run for part in here for run in self._held.parts(*part)], here

    def _may_come(self, first: int, end: int) -> bool:
        """Return whether packets among some are held or missing: the others are lost."""
        return next(self._held.parts(first, end), None) is not None or self._recovery.missing.overlaps(first, end)

    def _compare_span(self, one: _OpenSpan, held: Sequence[Run]) -> bool:
        """Compare a whole span with its proof. Return whether its packets must be judged one by one."""
        is_shut = self._judge.is_shut(one.first)
        if is_shut or not self._judge.may_open(one.first, one.end):
            if is_shut or self._is_ending:
                self._lose(one, (one.first, one.end), LossCause.SEALED)
            return False
        if self._judge.fits(held):
            self._trust(one, [(one.first, one.end)])
            return False
        one.is_mismatch = True
        return True

    def _judge_parts(self, one: _OpenSpan, held: Sequence[Run], *, is_broken: bool) -> None:
        """Judge packets by their details, and request those that are missing."""
        judge, now_ns = self._judge, self._arrival.now_ns
        is_whole = sum([run.count for run in held]) == one.end - one.first
        if is_whole and one.end - one.first == 1:
            one.is_mismatch = False
            self._reject([(one.first, one.end)], [one.first])
            return
        for part in _by_details(self._judge, held):
            first, end = part
            if judge.detailed_until(first, end) == end:
                self._judge_detailed(one, part)
            elif self._is_ending or (is_broken and judge.is_vain(first)):
                if is_whole and one.is_mismatch:
                    one.is_mismatch, one.seen = False, _UNSEEN
                    self._reject([(one.first, one.end)], [])
                    return
                self._lose(one, part, self._waiting_cause if self._is_ending else LossCause.UNPROVED)
            else:
                judge.want(first, end, now_ns, is_urgent=is_broken)

    def _judge_detailed(self, one: _OpenSpan, part: Span) -> None:
        """Compare packets with their details."""
        self._judge.answered(*part)
        is_shut = self._judge.is_shut(part[0])
        if is_shut or not self._judge.may_open(*part):
            if is_shut or self._is_ending:
                self._lose(one, part, LossCause.SEALED)
            return
        wrong = self._judge.wrong_of(list(self._held.parts(*part)))
        spans = [(sqn, sqn + 1) for sqn in wrong]
        self._trust(one, without([part], spans))
        if wrong:
            self._reject(spans, wrong)

    def _trust(self, one: _OpenSpan, parts: Sequence[Span]) -> None:
        """Allow the delivery of packets that are proved."""
        one.judged(parts)
        for first, end in parts:
            self._right.add(SqnRange(first, end))

    def _lose(self, one: _OpenSpan, part: Span, cause: LossCause) -> None:
        """Drop packets that cannot be proved or decrypted."""
        one.judged([part])
        self._drop(*part, cause)

    def _deliver_right(self, octets: int) -> None:
        """Deliver proved packets, as far as the application has room: one packet at least."""
        while octets > 0 and (right := self._right.oldest) is not None:
            run = next(self._held.parts(right.first, right.end), None)
            if run is None:  # given up since
                self._right.remove(right)
                continue
            run = run.part(run.first, min(run.end, run.first + max(1, octets // run.stride)))
            octets -= run.octets
            self._hand_over(run)
            self._held.cut_out(run.first, run.end)
            self._right.discard(right.first, run.end)

    def _give_up_oldest(self) -> None:
        """Give up the oldest held run: the window has no room for packets that wait."""
        self._has_begun = True
        super()._give_up_oldest()


def _by_details(judge: Judge, runs: Sequence[Run]) -> list[Span]:
    """Return packets in parts of which all have details, or none has."""
    parts: list[Span] = []
    for run in runs:
        at = run.first
        while at < run.end:
            end = judge.detailed_until(at, run.end)
            if end == at:
                end = next((sqn for sqn in range(at + 1, run.end) if judge.detailed_until(sqn, sqn + 1) > sqn), run.end)
            parts.append((at, end))
            at = end
    return parts
