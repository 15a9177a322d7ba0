"""Signed streams without order: packets leave as their spans are proved, and false ones never do."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgm.core.effects import LossCause
from pgm.units import KIB
from tests.unit.core.window.judged import FIRST_REPAIRER, RELAY, SIZE, Receiver


def loose(**more: object) -> Receiver:
    return Receiver(is_ordered=False, **more)


def test_packets_wait_for_their_proof_and_for_no_other_span():
    receiver = loose()
    receiver.get([*range(3), *range(8, 24)])
    assert receiver.delivered == []
    receiver.prove((0, 8), (8, 16))
    assert receiver.delivered == list(range(8, 16))
    receiver.prove((16, 24))
    assert receiver.delivered == list(range(8, 24))
    receiver.get(range(3, 8), FIRST_REPAIRER)
    assert receiver.delivered == [*range(8, 24), *range(8)]
    assert receiver.window.next_sqn == 24


def test_a_false_packet_is_dropped_by_details_and_asked_for_again():
    receiver = loose()
    receiver.get(range(8), false=[5])
    receiver.prove((0, 8))
    assert receiver.delivered == []
    receiver.detail(range(8))
    assert receiver.delivered == [0, 1, 2, 3, 4, 6, 7]
    assert receiver.missing == [5]
    receiver.get([5], RELAY)  # refused: the relay gave the false one
    assert receiver.missing == [5]
    receiver.get([5], FIRST_REPAIRER)
    assert sorted(receiver.delivered) == list(range(8))
    assert not receiver.lost


def test_a_false_span_is_asked_for_as_a_whole_without_details():
    receiver = loose()
    receiver.get(range(8), false=[5])
    receiver.prove((0, 8))
    receiver.fail(range(8))
    assert receiver.missing == list(range(8))
    receiver.get(range(8), FIRST_REPAIRER)
    assert receiver.delivered == list(range(8))


def test_packets_beside_a_lost_one_leave_by_details_or_are_unproved():
    receiver = loose()
    receiver.get([0, 1, 2, *range(4, 8)])
    receiver.prove((0, 8))
    assert not any(receiver.judge.wanted.values())  # the repair may still come
    receiver.lose(3)
    assert receiver.judge.wanted[0]
    receiver.detail([0, 1, 2])
    assert receiver.delivered == [0, 1, 2]
    receiver.fail(range(4, 8))
    assert receiver.lost == {3: LossCause.RETRIES, **dict.fromkeys(range(4, 8), LossCause.UNPROVED)}
    assert receiver.window.next_sqn == 8


def test_packets_between_two_spans_need_details():
    receiver = loose()
    receiver.get(range(16))
    receiver.prove((0, 4), (12, 16))
    assert receiver.delivered == [*range(4), *range(12, 16)]
    receiver.detail(range(4, 12))
    assert sorted(receiver.delivered) == list(range(16))


def test_a_joiner_begins_with_the_first_span_that_is_proved():
    receiver = loose(may_begin_later=True, start=3)
    receiver.get(range(3, 16))
    receiver.prove((0, 8), (8, 16))
    assert receiver.delivered == list(range(8, 16))
    assert not receiver.lost


def test_proved_packets_wait_for_room_in_the_memory_of_the_window():
    receiver = loose(rxw_bytes=64 * KIB)
    receiver.room.octets = 1
    receiver.get(range(8))
    receiver.prove((0, 8))
    assert receiver.delivered == [0]
    receiver.room.octets = 1 << 30
    receiver.go_on()
    assert receiver.delivered == list(range(8))


def test_packets_without_proofs_are_bounded_and_reported():
    receiver = loose(rxw_bytes=64 * KIB)
    receiver.get(range(4000))
    assert receiver.delivered == []
    assert receiver.window.held_octets <= 64 * KIB
    assert set(receiver.lost.values()) == {LossCause.OVERRUN}
    receiver.end()
    assert len(receiver.lost) == 4000


def test_sealed_packets_wait_for_their_secret_alone():
    receiver = loose()
    receiver.judge.sealed_from = 8
    receiver.get(range(16))
    receiver.prove((0, 8), (8, 16))
    assert receiver.delivered == list(range(8))
    receiver.window.give_up_rest(LossCause.SEALED)
    receiver.go_on()
    assert receiver.lost == dict.fromkeys(range(8, 16), LossCause.SEALED)


def test_late_proofs_report_false_packets_of_streams_without_order():
    receiver = loose(is_late=True)
    receiver.get([0, 1, 3, *range(8, 16)], false=[3, 9])
    assert receiver.delivered == [0, 1, 3, *range(8, 16)]
    receiver.prove((0, 8), (8, 16))
    receiver.detail(range(16))
    receiver.get([2, *range(4, 8)], FIRST_REPAIRER)
    assert receiver.forged == {3: LossCause.FORGED, 9: LossCause.FORGED}
    assert receiver.window.is_drained


COUNT = 5 * SIZE
steps = st.lists(
    st.one_of(
        st.tuples(st.just("get"), st.integers(0, COUNT - 1), st.booleans()),
        st.tuples(st.just("repair"), st.integers(0, COUNT - 1), st.booleans()),
        st.tuples(st.just("lose"), st.integers(0, COUNT - 1), st.just(False)),
        st.tuples(st.just("detail"), st.integers(0, COUNT - 1), st.just(False)),
        st.tuples(st.just("fail"), st.integers(0, COUNT - 1), st.just(False)),
        st.tuples(st.just("prove"), st.integers(1, 9), st.booleans()),
        st.tuples(st.just("room"), st.integers(0, 4000), st.just(False)),
    ),
    max_size=60,
)


@pytest.mark.parametrize("is_late", [False, True])
@given(steps)
def test_every_sqn_is_told_once_and_none_is_false(is_late: bool, steps: list[tuple[str, int, bool]]) -> None:
    receiver = loose(is_late=is_late, retries=1)
    peers = itertools.cycle(["10.0.0.2", "10.0.0.3", "10.0.0.4"])
    proved, came, lead = 0, set(), -1
    for what, sqn, flag in steps:
        if what == "get" and sqn > lead:
            lead = sqn
            receiver.get([sqn], false=[sqn] if flag else [])
            came.add(sqn)
        elif what == "repair" and sqn in receiver.missing:
            receiver.get([sqn], next(peers), false=[sqn] if flag else [])
        elif what == "lose" and sqn in receiver.missing:
            receiver.lose(sqn)
        elif what == "detail":
            receiver.detail(range(sqn // SIZE * SIZE, sqn // SIZE * SIZE + SIZE))
        elif what == "fail":
            receiver.fail([sqn])
        elif what == "prove":
            if flag:  # some packets stay without a span
                proved += 1
            receiver.prove((proved, proved + sqn))
            proved += sqn
        elif what == "room":
            receiver.room.octets = sqn
    receiver.room.octets = 1 << 30
    receiver.go_on()
    receiver.end()
    told = [*receiver.delivered, *receiver.lost]
    assert len(told) == len(set(told))
    assert set(told) == set(range(lead + 1))
    assert receiver.window.is_drained
