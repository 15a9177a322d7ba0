"""Receive window of a signed stream that delivers at once, and reports what the source has not sent (`verify = "after"`).

Delivered packets are kept until they are proved, within `rxw_bytes`. Those that differ from the packets of the source are
reported as `Forged`, in order. Nothing is requested again: the application has the packets already. The session ends, and
packets count as delivered for acks, only when they are proved or reported.
"""

from __future__ import annotations

from collections.abc import Sequence

from pgm.core.effects import Effect, Forged, LossCause
from pgm.core.recovery.recovery import Recovery
from pgm.core.session_context import SessionContext
from pgm.core.structures.ranges import Span, spans_of
from pgm.core.structures.run_store import RunStore
from pgm.core.window.proved_window import Trial
from pgm.core.window.receive_window import DeliveryBudget, ReceiveWindow
from pgm.units import KIB
from pgm.wire.train import Run

_SMALL_OCTETS = 8 * KIB  # of runs that are copied, because each would keep a whole chunk of memory


class LateProvedWindow(ReceiveWindow):
    """Receive window that delivers at once. Its judge decides about packets that were delivered."""

    def __init__(self, context: SessionContext, recovery: Recovery, room: DeliveryBudget, trial: Trial) -> None:
        super().__init__(context, recovery, room, is_ordered=trial.is_ordered)
        self._judge = trial.judge
        self._arrival = trial.arrival
        self._unproved = RunStore()  # delivered
        self._settled = 0  # the first sqn that is neither proved nor reported
        self._mismatch: Span | None = None  # the span that did not fit its proof, and waits for details
        self._is_ending = False

    def begin(self, sqn: int) -> None:
        """Start delivery at `sqn`."""
        super().begin(sqn)
        self._settled = self.next_sqn

    def begin_earlier(self, sqn: int, now_ns: int) -> None:
        """Start delivery at an earlier sqn, before any delivery."""
        super().begin_earlier(sqn, now_ns)
        self._settled = self.next_sqn

    def begin_later(self, sqn: int) -> None:
        """Start delivery at a later sqn, before any delivery."""
        super().begin_later(sqn)
        self._settled = self.next_sqn

    @property
    def settled_sqn(self) -> int:
        """The first sqn that is neither proved, nor reported as lost or forged."""
        return self._settled

    @property
    def is_drained(self) -> bool:
        """Whether all known sqns were delivered or reported, and all delivered ones proved or reported."""
        return super().is_drained and self._settled == self.next_sqn

    def may_pass(self, sqn: int, octets: int) -> bool:
        """Return False: every packet is kept until it is proved."""
        return False

    def _hand_over(self, run: Run) -> None:
        super()._hand_over(run)
        octets = run.count * run.stride
        if octets <= _SMALL_OCTETS:
            copy = run.buffer[run.offset : run.offset + octets].copy()
            run = Run(run.first, run.count, copy, 0, run.stride, run.payload_at)
        self._unproved.add(run)

    def give_up_rest(self, cause: LossCause) -> None:
        """Stop waiting for missing packets and for proofs: the session ends."""
        super().give_up_rest(cause)
        self._is_ending = True

    def advance(self, *, is_last: bool = False) -> list[Effect]:
        """Return the deliveries and losses that are in order now, and reports about earlier deliveries."""
        effects = super().advance(is_last=is_last)
        if self.is_open and self._settled < self.next_sqn:
            self._is_ending = self._is_ending or is_last
            effects += self._review()
        return effects

    def _review(self) -> list[Effect]:
        """Judge delivered packets as far as proofs allow. Return reports of those that are not the source's."""
        reports: list[Effect] = []
        while (at := self._settled) < self.next_sqn:
            oldest = self._unproved.oldest
            if oldest is None or oldest.first > at:  # these sqns were reported lost
                self._settled = self.next_sqn if oldest is None else min(self.next_sqn, oldest.first)
                continue
            found = self._judged(at, self._judge.span_at(at))
            if found is None:
                break
            end, false, cause = found
            for first, stop in false:
                self._counters.forged_sqns += stop - first
                last = reports[-1] if reports else None
                if isinstance(last, Forged) and last.first + last.count == first and last.cause is cause:
                    last.count += stop - first
                else:
                    reports.append(Forged(self._tsi, first, stop - first, cause))
            self._settled, self._mismatch = end, None
            self._unproved.drop_before(end)
            self._judge.forget_before(end)
        return reports

    def _judged(self, at: int, span: Span | None) -> tuple[int, Sequence[Span], LossCause] | None:
        """Return up to which sqn packets are judged, and those to report with the cause; None: nothing can be told yet."""
        may_wait = not self._is_ending and self._unproved.pinned_octets <= self._parameters.rxw_bytes
        if span is None:
            end = self._held_until(at, self.next_sqn if self._is_ending else at + 1)
            return None if may_wait else (end, [(at, end)], LossCause.UNPROVED)
        if span[0] <= at and span[1] > self.next_sqn and may_wait:
            return None
        end = self._held_until(at, min(self.next_sqn, span[1] if span[0] <= at else span[0]))
        is_whole = (at, end) == span
        if is_whole and self._mismatch != span:
            if self._judge.fits(list(self._unproved.parts(*span))):
                return end, (), LossCause.FORGED
            self._mismatch = span
        known_end = self._judge.detailed_until(at, end)
        if known_end == end or (known_end > at and not is_whole):
            self._judge.answered(at, known_end)
            wrong = self._judge.wrong_of(list(self._unproved.parts(at, known_end)))
            return known_end, spans_of(wrong), LossCause.FORGED
        if may_wait and not self._judge.is_vain(known_end):
            self._judge.want(at, end, self._arrival.now_ns, is_urgent=True)
            return None
        return end, [(at, end)], LossCause.FORGED if is_whole else LossCause.UNPROVED

    def _held_until(self, first: int, end: int) -> int:
        """Return the end of the packets that were delivered from `first` on without a gap, `end` at most."""
        for part in self._unproved.parts(first, end):
            if part.first != first:
                break
            first = part.end
        return first
