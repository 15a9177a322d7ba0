"""Packets that are delivered before they are proved: false ones are reported afterwards, in order."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgm.core.effects import LossCause
from pgm.units import KIB
from tests.unit.core.window.judged import PARENTS, RELAY, SIZE, Receiver

FORGED, UNPROVED = LossCause.FORGED, LossCause.UNPROVED


def test_late_proof_settles_what_was_delivered_at_once():
    receiver = Receiver(is_late=True)
    receiver.get(range(12))
    assert receiver.delivered == list(range(12))
    assert receiver.window.settled_sqn == 0
    receiver.prove((0, 8), (8, 16))
    assert receiver.window.settled_sqn == 8
    assert not receiver.window.is_drained
    receiver.get(range(12, 16))
    assert receiver.window.settled_sqn == 16
    assert receiver.window.is_drained
    assert (receiver.forged, receiver.judge.wanted) == ({}, {})


def test_late_proof_reports_the_false_packets_by_details():
    receiver = Receiver(is_late=True)
    receiver.get(range(16), false=[3, 4, 9])
    receiver.prove((0, 8), (8, 16))
    assert not receiver.forged
    assert receiver.judge.wanted[0]
    receiver.detail(range(8))
    assert receiver.forged == {3: FORGED, 4: FORGED}
    receiver.detail(range(8, 16))
    assert receiver.forged == {3: FORGED, 4: FORGED, 9: FORGED}
    assert receiver.counters.forged_sqns == 3
    assert receiver.window.settled_sqn == 16


def test_late_proof_reports_the_whole_span_without_details():
    receiver = Receiver(is_late=True)
    receiver.get(range(16), false=[3])
    receiver.prove((0, 8), (8, 16))
    receiver.fail(range(8))
    assert receiver.forged == dict.fromkeys(range(8), FORGED)
    assert receiver.window.settled_sqn == 16


def test_late_proof_beside_a_lost_packet_needs_details():
    receiver = Receiver(is_late=True)
    receiver.get([0, 1, 2, 4, 5, 6, 7])
    receiver.prove((0, 8))
    assert not receiver.judge.wanted  # the repair may still come
    receiver.lose(3)
    assert receiver.delivered == [0, 1, 2, 4, 5, 6, 7]
    assert receiver.judge.wanted[0]
    receiver.detail([0, 1, 2, 4, 5])
    receiver.fail([6, 7])
    assert receiver.forged == {6: UNPROVED, 7: UNPROVED}
    assert receiver.window.settled_sqn == 8


def test_end_reports_what_no_proof_came_for():
    receiver = Receiver(is_late=True)
    receiver.get(range(12))
    receiver.prove((0, 8))
    receiver.end()
    assert receiver.forged == dict.fromkeys(range(8, 12), UNPROVED)
    assert receiver.window.is_drained


def test_packets_that_wait_for_proofs_are_bounded():
    receiver = Receiver(is_late=True, rxw_bytes=64 * KIB)
    receiver.get(range(4000))
    assert 0 < receiver.window.settled_sqn == len(receiver.forged) < 4000
    assert set(receiver.forged.values()) == {UNPROVED}


STEPS = st.one_of(
    st.tuples(st.just("get"), st.integers(0, 31), st.integers(1, 12), st.booleans()),
    st.tuples(st.just("prove")),
    st.tuples(st.just("detail"), st.integers(0, 31), st.integers(1, 12)),
    st.tuples(st.just("lose"), st.integers(0, 31)),
)


@pytest.mark.parametrize("is_answered", [True, False])
@given(lengths=st.lists(st.integers(1, SIZE), min_size=6, max_size=12), steps=st.lists(STEPS, max_size=40))
def test_late_proofs_report_each_false_packet_and_no_other(is_answered, lengths, steps):
    receiver = Receiver(is_late=True)
    edges = [sum(lengths[:at]) for at in range(len(lengths) + 1)]
    proofs = list(itertools.pairwise(edges))
    false: set[int] = set()
    for act, *arguments in steps:
        if act == "get":
            first, count, is_false = arguments
            known_end = receiver.window.gap_detector.end
            new = [sqn for sqn in range(first, first + count) if sqn in receiver.missing or sqn >= known_end]
            false.update(new[:1] if is_false else [])
            receiver.get(new, RELAY, false=false)
        elif act == "prove" and proofs:
            receiver.prove(proofs.pop(0))
        elif act == "detail":
            receiver.detail(range(arguments[0], sum(arguments)))
        elif act == "lose":
            receiver.lose(arguments[0])
        assert receiver.window.settled_sqn <= receiver.window.next_sqn
        assert {sqn for sqn in receiver.forged if sqn not in false} == set()
    for peer in PARENTS:
        known_end = receiver.window.gap_detector.end
        receiver.get([sqn for sqn in range(edges[-1]) if sqn in receiver.missing or sqn >= known_end], peer)
    for span in proofs:
        receiver.prove(span)
    if is_answered:
        receiver.detail(range(edges[-1]))
        proved = {sqn for sqn in receiver.delivered if sqn < receiver.window.settled_sqn}
        assert set(receiver.forged) == false & proved
        assert receiver.window.settled_sqn >= edges[-1]
    else:
        receiver.end()
        assert false & set(receiver.delivered) <= set(receiver.forged)
        assert receiver.window.is_drained
