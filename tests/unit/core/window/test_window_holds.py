"""A window that is full before its time waits, for a while, for what is asked for of its oldest part."""

from __future__ import annotations

import pytest

from pgm.core.window.transmit_window import owes_nothing
from pgm.units import SECOND
from tests.unit.core.makers import MS
from tests.unit.core.window.test_transmit_window import sent_at, window


def filled(share=1.0):
    """A window of 30 packets that is full for the second time: a second in all, 30 ms a packet since."""
    made = window(txw_sqns=30, txw_adv_secs=SECOND, txw_secs=100 * SECOND, txw_adv_ivl=20 * MS, txw_hold_share=share)
    sent_at(made, 30, SECOND)
    sent_at(made, 1, 2 * SECOND)
    assert made.trail == 3
    sent_at(made, 2, 2 * SECOND + 30 * MS)
    made.append([b"next"] * 9)
    return made


def moves_at(made, since, owes=owes_nothing):
    """When a full window sends again."""
    now = since
    while made.next_train(1, now, owes=owes) is None:
        assert now < made.retry_at() <= now + SECOND
        now = made.retry_at()
    return now - since


@pytest.mark.parametrize(("sqn", "holds"), [(2, False), (3, True), (12, True), (13, False), (32, False)])
def test_window_full_early_waits_for_requests_of_oldest_part(sqn, holds):
    """Until nobody has asked for txw_adv_ivl."""
    made, now = filled(), 2 * SECOND + 100 * MS
    made.note_nak(sqn, now)
    assert moves_at(made, now) == (20 * MS if holds else 0)
    assert made.trail == 6


@pytest.mark.parametrize("share", [1.0, 0.5, 0.0])
def test_full_window_waits_for_at_most_a_share_of_fill_time(share):
    """However often it is asked, and whatever repairs are owed: half of the rate is left to all others."""
    made, now = filled(share), 2 * SECOND + 100 * MS
    assert moves_at(made, now, lambda first, end: first == made.trail < end) == 100 * MS * share
    assert made.trail == 6


def test_window_with_confirmed_packets_does_not_wait():
    """The window of an acknowledged stream has its acks for that; what they lack holds it without end."""
    made, now = filled(), 2 * SECOND + 100 * MS
    made.keep_from(6)
    made.note_nak(5, now)
    assert moves_at(made, now, lambda first, end: first < end) == 0
    assert made.trail == 6
    assert [made.next_train(1, now) is None for _ in range(3)] == [False, False, True]
    assert made.next_train(1, now + 100 * SECOND) is None


@pytest.mark.rfc("SRC-11", "SRC-12")
@pytest.mark.parametrize(("sqn", "holds"), [(2, False), (3, True), (17, True), (18, False), (32, False)])
def test_data_driven_window_with_long_increment_waits_for_half(sqn, holds):
    """All of it is one increment here. Waiting for NAKs for what was just sent, it would wait always."""
    made = window(txw_adv_mode="data", txw_sqns=30, txw_adv_secs=SECOND, txw_adv_ivl=20 * MS)
    sent_at(made, 31, SECOND)
    sent_at(made, 2, SECOND)
    assert (made.trail, made.lead) == (3, 32)
    made.append([b"next"] * 9)
    made.note_nak(sqn, 2 * SECOND)
    assert moves_at(made, 2 * SECOND) == (20 * MS if holds else 0)
