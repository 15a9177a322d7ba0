"""Packets of a signed stream: delivered once they are proved, requested again or lost once they are not."""

from __future__ import annotations

import itertools

import attrs
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgm.core.effects import LossCause
from pgm.units import MICROSECOND
from pgm.wire.train import Run
from tests.memory import kept_by
from tests.unit.core.makers import payload_of, run_of
from tests.unit.core.window.judged import FIRST_REPAIRER, PARENTS, RELAY, SECOND_REPAIRER, SIZE, Receiver


def packets_in(receiver: Receiver) -> int:
    """Return how many objects with packets the window keeps."""
    text = payload_of(3)[:8]
    return sum(isinstance(one, Run) or (isinstance(one, bytes) and text in one) for one in kept_by(receiver.window))


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


def test_delivered_packets_are_not_kept():
    """The proof decides between two copies, so no delivered one is needed for a comparison."""
    receiver = Receiver()
    receiver.get(range(8))
    held = packets_in(receiver)
    receiver.prove((0, 8))
    assert receiver.delivered == list(range(8))
    assert (held > 0, packets_in(receiver)) == (True, 0)


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


def test_flood_of_forgeries_uses_up_no_retries():
    receiver = Receiver(retries=2)
    receiver.prove(*((sqn, sqn + 1) for sqn in range(8)))
    for number in range(100):
        receiver.get([0], f"10.0.1.{number}", false=[0], after_ns=MICROSECOND)
    assert receiver.missing == [0]
    receiver.get([0], after_ns=MICROSECOND)
    assert (receiver.delivered, receiver.lost) == ([0], {})


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


@pytest.mark.parametrize(("is_whole", "first"), [(False, 5), (True, 0)])
def test_recorder_gets_the_packets_before_its_start(is_whole, first):
    """An archive proves rows by whole spans, so it needs the packets that only complete the first span."""
    receiver = Receiver(start=5, is_whole=is_whole)
    receiver.judge.spans.append((0, SIZE))
    receiver.get(range(SIZE))
    assert receiver.delivered == list(range(first, SIZE))
