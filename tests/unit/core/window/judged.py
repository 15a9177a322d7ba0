"""Receive windows of signed streams with a judge that knows the truth, for tests."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence

import attrs
import numpy as np

from pgm.core.counters import Counters
from pgm.core.effects import Deliver, Forged, LossCause, Lost, Notice, Opened
from pgm.core.recovery.parents import Parents
from pgm.core.recovery.recovery import Recovery
from pgm.core.structures.ranges import Span
from pgm.core.window.proved_window import Arrival, Trial
from pgm.core.window.proved_windows import proved_window
from pgm.core.window.receive_window import DeliveryBudget
from pgm.units import SECOND
from pgm.wire.train import Run
from tests.reference import DATA_PORT, TSI
from tests.unit.core.makers import parameters, payload_of, run_of, session_context

RELAY, FIRST_REPAIRER, SECOND_REPAIRER = "10.0.0.2", "10.0.0.3", "10.0.0.4"
PARENTS = (FIRST_REPAIRER, SECOND_REPAIRER, RELAY)
SIZE = 8  # packets of a span


def is_true(run: Run) -> bool:
    size = run.stride - run.payload_at
    return all(row.tobytes() == payload_of(run.first + at, size) for at, row in enumerate(run.payloads))


@attrs.define(eq=False)
class KnownTruth:
    """Judge that knows the right packets. Proofs and details come when the test says so."""

    may_begin_later: bool = False
    spans: list[Span] = attrs.field(factory=list)
    details: set[int] = attrs.field(factory=set)  # sqns
    wanted: dict[int, bool] = attrs.field(factory=dict)  # by sqn, whether it was urgent
    vain: set[int] = attrs.field(factory=set)
    compared: int = 0
    sealed_from: int = 1 << 62  # no secret is there for packets from here on
    news: int = 0

    def start_for(self, sqn: int) -> int:
        return sqn // SIZE * SIZE

    def block_start(self, sqn: int) -> int:
        return sqn // SIZE * SIZE

    def span_at(self, sqn: int) -> Span | None:
        return next((span for span in self.spans if span[1] > sqn), None)

    def forget_before(self, sqn: int) -> None:
        self.spans = [span for span in self.spans if span[1] > sqn]

    def fits(self, runs: Sequence[Run]) -> bool:
        self.compared += 1
        assert (runs[0].first, runs[-1].end) == self.span_at(runs[0].first)
        return all(is_true(run) for run in runs)

    def detailed_until(self, first: int, end: int) -> int:
        return next((sqn for sqn in range(first, end) if sqn not in self.details), end)

    def wrong_of(self, runs: Sequence[Run]) -> list[int]:
        packets = [(sqn, run.part(sqn, sqn + 1)) for run in runs for sqn in range(run.first, run.end)]
        assert self.details.issuperset(sqn for sqn, _ in packets)
        return [sqn for sqn, one in packets if not is_true(one)]

    def may_open(self, first: int, end: int) -> bool:
        return first < self.sealed_from

    def is_shut(self, sqn: int) -> bool:
        return False

    def opened(self, run: Run) -> Iterator[Run]:
        yield run

    def want(self, first: int, end: int, now_ns: int, *, is_urgent: bool) -> None:
        self.wanted.update(dict.fromkeys(range(first, end), is_urgent))

    def is_vain(self, sqn: int) -> bool:
        return sqn in self.vain

    def answered(self, first: int, end: int) -> None:
        groups = range(first // SIZE, -(-end // SIZE))
        self.wanted = {sqn: urgency for sqn, urgency in self.wanted.items() if sqn // SIZE not in groups}


class Receiver:
    """A window from sqn `start` with its parts, and what it has told its application."""

    def __init__(
        self,
        *,
        retries: int = 2,
        may_begin_later: bool = False,
        is_late: bool = False,
        start: int = 0,
        is_whole: bool = False,
        is_ordered: bool = True,
        **changes: object,
    ) -> None:
        self.counters = Counters()
        context = session_context(
            parameters(forged_retries=retries, **changes), counters=self.counters, rng=random.Random(1)
        )
        self.parents = Parents(context, PARENTS)
        self.recovery = Recovery(context, self.parents.response_timeout)
        self.judge = KnownTruth(may_begin_later)
        self.arrival = Arrival()
        trial = Trial(self.judge, self.arrival, self.parents, is_late=is_late, is_whole=is_whole, is_ordered=is_ordered)
        self.is_late = is_late
        self.room = DeliveryBudget(1 << 30)
        self.window = proved_window(context, self.recovery, self.room, trial)
        self.window.begin(start)
        self.window.opening(Opened(TSI, 0, RELAY, DATA_PORT))
        self.window.open()
        self.delivered: list[int] = []
        self.lost: dict[int, LossCause] = {}
        self.notices: list[str] = []
        self.forged: dict[int, LossCause] = {}

    def get(self, sqns: Iterable[int], peer: str = RELAY, *, false: Iterable[int] = (), after_ns: int = SECOND) -> None:
        """Take packets of a peer, of which some are false."""
        self.arrival.peer, self.arrival.now_ns = peer, self.arrival.now_ns + after_ns
        for sqn in sqns:
            run = run_of(sqn, 1)
            if sqn in false:
                buffer = np.array(run.buffer)
                buffer[run.offset + run.payload_at] ^= 1
                run = attrs.evolve(run, buffer=buffer)
            if sqn >= self.window.next_sqn:
                self.window.insert(run, sqn, self.arrival.now_ns)
        self.go_on()

    def prove(self, *spans: Span) -> None:
        self.judge.spans += spans
        self.judge.news += 1
        self.go_on()

    def detail(self, sqns: Iterable[int]) -> None:
        self.judge.details.update(sqns)
        self.judge.news += 1
        self.go_on()

    def fail(self, sqns: Iterable[int]) -> None:
        """No answer came to requests for details."""
        self.judge.vain.update(sqns)
        self.judge.news += 1
        self.go_on()

    def lose(self, *sqns: int) -> None:
        """Give up missing packets."""
        for sqn in sqns:
            self.window.give_up(self.recovery.arrived(sqn, sqn + 1), LossCause.RETRIES)
        self.go_on()

    def end(self) -> None:
        self.window.give_up_rest(LossCause.SOURCE_GONE)
        self.go_on(is_last=True)

    def go_on(self, *, is_last: bool = False) -> None:
        for effect in self.window.advance(is_last=is_last):
            if isinstance(effect, Deliver):
                assert self.is_late or is_true(effect.run)
                self.delivered += range(effect.run.first, effect.run.end)
            elif isinstance(effect, Lost):
                self.lost.update({effect.first + at: effect.cause for at in range(effect.count)})
            elif isinstance(effect, Forged):
                assert effect.first + effect.count <= self.window.next_sqn
                self.forged.update({effect.first + at: effect.cause for at in range(effect.count)})
            elif isinstance(effect, Notice):
                self.notices.append(effect.text)

    @property
    def missing(self) -> list[int]:
        return [sqn for gap in self.recovery.missing for sqn in range(gap.first, gap.end)]
