"""Packets of a signed stream: delivered once they are proved, requested again or lost once they are not."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Iterator, Sequence

import attrs
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgm.core.counters import Counters
from pgm.core.effects import Deliver, LossCause, Lost, Notice, Opened
from pgm.core.recovery.parents import Parents
from pgm.core.recovery.recovery import Recovery
from pgm.core.structures.ranges import Span
from pgm.core.window.proved_window import Arrival, ProvedWindow, Trial
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

    def start_for(self, sqn: int) -> int:
        return sqn

    def span_at(self, sqn: int) -> Span | None:
        self.spans = [span for span in self.spans if span[1] > sqn]
        return self.spans[0] if self.spans else None

    def fits(self, runs: Sequence[Run]) -> bool:
        self.compared += 1
        assert (runs[0].first, runs[-1].end) == self.spans[0]
        return all(is_true(run) for run in runs)

    def detailed_until(self, first: int, end: int) -> int:
        return next((sqn for sqn in range(first, end) if sqn not in self.details), end)

    def wrong_of(self, runs: Sequence[Run]) -> list[int]:
        packets = [(sqn, run.part(sqn, sqn + 1)) for run in runs for sqn in range(run.first, run.end)]
        assert self.details.issuperset(sqn for sqn, _ in packets)
        return [sqn for sqn, one in packets if not is_true(one)]

    def may_open(self, first: int, end: int) -> bool:
        return first < self.sealed_from

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
    """A window from sqn 0 with its parts, and what it has told its application."""

    def __init__(self, *, retries: int = 2, may_begin_later: bool = False) -> None:
        self.counters = Counters()
        context = session_context(parameters(forged_retries=retries), counters=self.counters, rng=random.Random(1))
        self.parents = Parents(context, PARENTS)
        self.recovery = Recovery(context, self.parents.response_timeout)
        self.judge = KnownTruth(may_begin_later)
        self.arrival = Arrival()
        trial = Trial(self.judge, self.arrival, self.parents)
        self.window = ProvedWindow(context, self.recovery, DeliveryBudget(1 << 30), trial)
        self.window.begin(0)
        self.window.opening(Opened(TSI, 0, RELAY, DATA_PORT))
        self.window.open()
        self.delivered: list[int] = []
        self.lost: dict[int, LossCause] = {}
        self.notices: list[str] = []

    def get(self, sqns: Iterable[int], peer: str = RELAY, *, false: Iterable[int] = ()) -> None:
        """Take packets of a peer, of which some are false."""
        self.arrival.peer, self.arrival.now_ns = peer, self.arrival.now_ns + SECOND
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
        self.go_on()

    def detail(self, sqns: Iterable[int]) -> None:
        self.judge.details.update(sqns)
        self.go_on()

    def fail(self, sqns: Iterable[int]) -> None:
        """No answer came to requests for details."""
        self.judge.vain.update(sqns)
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
                assert is_true(effect.run)
                self.delivered += range(effect.run.first, effect.run.end)
            elif isinstance(effect, Lost):
                self.lost.update({effect.first + at: effect.cause for at in range(effect.count)})
            elif isinstance(effect, Notice):
                self.notices.append(effect.text)

    @property
    def missing(self) -> list[int]:
        return [sqn for gap in self.recovery.missing for sqn in range(gap.first, gap.end)]


def test_packets_wait_for_the_proof_of_their_span():
    receiver = Receiver()
    receiver.get(range(12))
    assert receiver.delivered == []
    receiver.prove((0, 8), (8, 16))
    assert receiver.delivered == list(range(8))
    assert not receiver.judge.wanted
    receiver.get(range(12, 16))
    assert receiver.delivered == list(range(16))
    assert (receiver.judge.compared, receiver.counters.forged_packets) == (2, 0)


def test_wrong_packet_alone_is_requested_again():
    """Its giver is counted, and is refused in its place."""
    receiver = Receiver()
    receiver.get([0, 1, 2, 4, 5, 6, 7])
    receiver.get([3], FIRST_REPAIRER, false=[3])
    receiver.prove((0, 8))
    assert (receiver.delivered, receiver.missing) == ([], [])
    assert all(receiver.judge.wanted[sqn] for sqn in range(8))
    receiver.go_on()
    assert receiver.judge.compared == 1
    receiver.detail(range(8))
    assert receiver.missing == [3]
    assert receiver.delivered == [0, 1, 2]
    assert receiver.parents.forged == {FIRST_REPAIRER: 1}
    assert receiver.parents.current == SECOND_REPAIRER
    assert f"{FIRST_REPAIRER} gave them" in receiver.notices[0]
    receiver.get([3], FIRST_REPAIRER)
    assert receiver.missing == [3]
    receiver.get([3], SECOND_REPAIRER)
    assert receiver.delivered == list(range(8))
    assert receiver.counters.forged_packets == 2  # the wrong one, and the refused one


def test_giver_of_few_repairs_among_copies_is_found():
    """A copy of a packet that came before says nothing about the giver of the first one."""
    receiver = Receiver()
    receiver.get([0, 1, 2, 3, 7])
    receiver.get([4, 5], FIRST_REPAIRER, false=[4])
    receiver.get([4, 5, 6], SECOND_REPAIRER)
    receiver.detail(range(8))
    receiver.prove((0, 8))
    assert receiver.parents.forged == {FIRST_REPAIRER: 1}


@pytest.mark.parametrize("lost", [0, 3, 7])
def test_packets_beside_a_lost_one_are_delivered_by_details(lost):
    receiver = Receiver()
    others = [sqn for sqn in range(8) if sqn != lost]
    receiver.get([*others, *range(8, 16)])
    receiver.prove((0, 8), (8, 16))
    receiver.lose(lost)
    assert len(receiver.delivered) == 0
    assert receiver.judge.wanted[others[0]]
    receiver.detail(range(8))
    assert receiver.delivered == [*others, *range(8, 16)]
    assert receiver.lost == {lost: LossCause.RETRIES}


def test_details_before_the_repair_deliver_what_is_there():
    receiver = Receiver()
    receiver.get([0, 1, 2, 4, 5, 6, 7])
    receiver.prove((0, 8))
    assert receiver.judge.wanted[0] is False  # the repair may still come
    receiver.detail(range(8))
    assert receiver.delivered == [0, 1, 2]
    receiver.go_on()
    assert not receiver.judge.wanted
    receiver.get([3], FIRST_REPAIRER)
    assert receiver.delivered == list(range(8))
    assert not receiver.judge.wanted


def test_details_of_a_span_without_its_first_packet_are_requested():
    """And none of spans that are missing as a whole."""
    receiver = Receiver()
    receiver.get(range(1, 8))
    receiver.prove((0, 8), (8, 16))
    assert receiver.judge.wanted[7] is False
    receiver.detail(range(8))
    assert not receiver.judge.wanted
    other = Receiver()
    other.get(range(16, 24))
    other.prove((0, 8), (8, 16), (16, 24))
    assert not other.judge.wanted


def test_details_of_later_blocks_are_requested_together():
    receiver = Receiver()
    receiver.get(sqn for sqn in range(32) if sqn % 8 != 4)
    receiver.prove((0, 8), (8, 16), (16, 24), (24, 32))
    receiver.lose(4)
    assert [receiver.judge.wanted[sqn] for sqn in (0, 12, 20, 28)] == [True, False, False, False]
    receiver.lose(12, 20, 28)
    receiver.detail(range(32))
    assert receiver.delivered == [sqn for sqn in range(32) if sqn % 8 != 4]


def test_packets_without_details_are_unproved_beside_a_lost_one():
    receiver = Receiver()
    receiver.get([0, 1, 2, 4, 5, 6, 7])
    receiver.prove((0, 8))
    receiver.lose(3)
    receiver.detail([0, 1, 5])
    assert receiver.delivered == [0, 1]
    receiver.fail(range(8))
    assert receiver.delivered == [0, 1, 5]
    unproved = LossCause.UNPROVED
    assert receiver.lost == {2: unproved, 3: LossCause.RETRIES, 4: unproved, 6: unproved, 7: unproved}


def test_packets_of_a_lost_proof_are_delivered_by_details():
    receiver = Receiver()
    receiver.get(range(16))
    receiver.prove((8, 16))
    assert all(receiver.judge.wanted[sqn] for sqn in range(8))
    receiver.detail(range(8))
    assert receiver.delivered == list(range(16))


def test_whole_span_is_requested_again_if_no_details_come():
    """From another parent than the peer that gave the fewest packets."""
    receiver = Receiver()
    receiver.get([0, 1, 2, 3, 4, 7])
    receiver.get([5, 6], FIRST_REPAIRER, false=[6])
    receiver.prove((0, 8))
    receiver.fail(range(8))
    assert receiver.missing == list(range(8))
    assert receiver.parents.forged == {FIRST_REPAIRER: 0}
    assert receiver.parents.current == SECOND_REPAIRER
    receiver.get(range(8), FIRST_REPAIRER)
    assert receiver.missing == list(range(8))
    receiver.get(range(8), SECOND_REPAIRER)
    assert receiver.delivered == list(range(8))


@pytest.mark.parametrize("has_details", [True, False])
def test_packets_that_stay_wrong_are_lost_after_retries(has_details):
    receiver = Receiver(retries=2)
    receiver.get([0, 1, 2, 3, 4, 5, 7])
    if has_details:
        receiver.detail(range(8))
    else:
        receiver.fail(range(8))
    receiver.prove((0, 8))
    for peer in PARENTS:
        assert not receiver.lost
        receiver.get(list(receiver.missing), peer, false=[6])
    wrong = [6] if has_details else list(range(8))
    assert receiver.lost == dict.fromkeys(wrong, LossCause.FORGED)
    assert receiver.delivered == [sqn for sqn in range(8) if sqn not in wrong]


def test_rebuilt_packets_are_counted_to_nobody():
    """And are refused in place of a wrong one that was rebuilt."""
    receiver = Receiver()
    receiver.get([0, 1, 2, 4, 5, 6, 7])
    receiver.detail(range(8))
    receiver.prove((0, 8))
    receiver.arrival.peer = RELAY
    run = run_of(3, 1)
    false = attrs.evolve(run, buffer=np.array(run.buffer) ^ 1)
    receiver.window.insert_rebuilt(false, 1)
    receiver.go_on()
    assert (receiver.missing, receiver.parents.forged) == ([3], {})
    assert receiver.window.insert_rebuilt(run, 1) == 0
    receiver.get([3])
    assert receiver.delivered == list(range(8))


def test_session_begins_after_packets_without_a_proof():
    receiver = Receiver(may_begin_later=True)
    receiver.get(range(3, 16))
    receiver.lose(0, 1, 2)
    receiver.prove((8, 16))
    assert receiver.delivered == []  # the losses came first, so delivery has begun
    late = Receiver(may_begin_later=True)
    late.get(range(16))
    late.prove((8, 16))
    assert (late.delivered, late.lost) == (list(range(8, 16)), {})


def test_accused_peer_is_refused_in_one_place_alone():
    receiver = Receiver()
    receiver.get([0, 1, 2, 4, 5, 6, 7])
    receiver.get([3], FIRST_REPAIRER, false=[3])
    receiver.detail(range(8))
    receiver.prove((0, 8), (8, 16))
    receiver.arrival.peer = FIRST_REPAIRER
    receiver.window.insert(run_of(3, 10), 3, 1)
    receiver.go_on()
    assert receiver.missing == [3]
    assert receiver.window.gap_detector.end == 13


# Any order of packets, true and false, from any peer; proofs and details; losses; the end.
STEPS = st.one_of(
    st.tuples(st.just("get"), st.integers(0, 31), st.integers(1, 12), st.sampled_from(PARENTS), st.booleans()),
    st.tuples(st.just("prove")),
    st.tuples(st.just("detail"), st.integers(0, 31), st.integers(1, 12)),
    st.tuples(st.just("fail"), st.integers(0, 31), st.integers(1, 12)),
    st.tuples(st.just("lose"), st.integers(0, 31)),
)
LENGTHS = st.lists(st.integers(1, SIZE), min_size=6, max_size=12)


@given(LENGTHS, st.lists(STEPS, max_size=40), st.booleans(), st.booleans())
def test_every_packet_is_delivered_proved_once_or_lost(lengths, steps, lacks_proof, ends):
    receiver = Receiver(retries=3)
    edges = [sum(lengths[:at]) for at in range(len(lengths) + 1)]
    spans = list(itertools.pairwise(edges))
    proofs = spans[:1] + spans[2:] if lacks_proof else list(spans)
    proved: set[int] = set()
    given_up: set[int] = set()
    for act, *arguments in steps:
        if act == "get":
            first, count, peer, is_false = arguments
            receiver.get(range(first, first + count), peer, false=[first] if is_false else ())
        elif act == "prove" and proofs:
            proved.update(range(*proofs[0]))
            receiver.prove(proofs.pop(0))
        elif act in ("detail", "fail"):
            sqns = range(arguments[0], sum(arguments))
            getattr(receiver, act)(sqns)
        elif act == "lose":
            given_up.update({arguments[0]} & set(receiver.missing))
            receiver.lose(arguments[0])
        assert set(receiver.delivered) <= proved | receiver.judge.details
        assert receiver.delivered == sorted(set(receiver.delivered))
        assert not set(receiver.delivered) & set(receiver.lost)
        told = len(receiver.delivered) + len(receiver.lost)
        assert told == receiver.window.next_sqn
    known = receiver.window.gap_detector.end
    if ends:
        receiver.end()
    else:
        for span in proofs:
            receiver.prove(span)
        receiver.get(range(edges[-1]))
        receiver.prove((edges[-1], edges[-1] + 1))
        receiver.detail(range(edges[-1]))
        for peer in PARENTS * 3:
            receiver.get(range(edges[-1]), peer)
        known = edges[-1]
        causes = {cause for sqn, cause in receiver.lost.items() if sqn not in given_up}
        assert causes <= {LossCause.UNPROVED, LossCause.FORGED}
        assert bool(causes & {LossCause.UNPROVED}) <= bool(receiver.judge.vain)
    assert sorted([*receiver.delivered, *receiver.lost])[:known] == list(range(known))
