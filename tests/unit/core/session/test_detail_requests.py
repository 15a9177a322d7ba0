"""Requests for details: at once or after the time of a repair, repeated, and vain in the end."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from pgm.core.session.detail_requests import DetailRequests
from pgm.units import NEVER
from tests.unit.core.makers import MS, parameters

SETTINGS = parameters(nak_bo_ivl=10 * MS, details_ivl=100 * MS, details_retries=2)
MOST = 64


def made() -> DetailRequests:
    return DetailRequests(SETTINGS, random.Random(1))


def test_urgent_request_waits_for_a_back_off_alone():
    requests = made()
    requests.want(0, 0, is_urgent=False)
    assert 100 * MS < requests.deadline_ns <= 110 * MS
    requests.want(0, 0, is_urgent=True)
    assert 0 < requests.deadline_ns <= 10 * MS
    assert requests.handle_deadline(10 * MS) == ([0], False)
    requests.want(0, 11 * MS, is_urgent=True)  # under way
    assert requests.deadline_ns == 110 * MS


def test_request_is_repeated_and_then_vain():
    requests, now, sent = made(), 10 * MS, 0
    requests.want(0, 0, is_urgent=True)
    while requests.deadline_ns != NEVER:
        assert not requests.is_vain(0)
        due, has_failed = requests.handle_deadline(now)
        sent += len(due)
        assert has_failed == requests.is_vain(0)
        now += 100 * MS
    assert (sent, requests.is_vain(0)) == (3, True)
    requests.want(0, now, is_urgent=True)
    assert requests.deadline_ns == NEVER


def test_answer_and_delivery_end_requests():
    requests = made()
    for block in (0, 32, 64):
        requests.want(block, 0, is_urgent=True)
    requests.answered(32)
    requests.drop_before(32)
    assert requests.handle_deadline(10 * MS) == ([64], False)


@given(st.lists(st.integers(0, 500), min_size=1, max_size=300))
def test_oldest_blocks_are_requested_among_many(blocks):
    requests = made()
    for block in blocks:
        requests.want(block, 0, is_urgent=True)
    due, _ = requests.handle_deadline(10 * MS)
    assert len(due) <= MOST
    assert min(blocks) in due
