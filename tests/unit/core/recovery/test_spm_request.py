"""Asking for an SPM."""

import itertools
import random

import pytest

from pgm.core.counters import Counters
from pgm.core.recovery.spm_request import SpmRequest
from pgm.units import NEVER, SECOND
from pgm.wire.formats import PacketType
from tests.reference import TSI
from tests.unit.core.makers import MS, SEGMENT, SOURCE, parameters, sent_control, session_context

SETTINGS = parameters(spmr_bo_ivl=250 * MS, spmr_spm_ivl=SECOND)


def request(seed=1):
    counters = Counters()
    return SpmRequest(session_context(SETTINGS, counters=counters, rng=random.Random(seed)), SEGMENT), counters


@pytest.mark.rfc("SPMR-02", "SPMR-03")
def test_spm_request_after_random_delay_goes_to_group_and_source():
    delays = set()
    for seed in range(30):
        wish, counters = request(seed)
        assert wish.deadline_ns == NEVER
        wish.want(SOURCE, 5 * SECOND)
        delay = wish.deadline_ns - 5 * SECOND
        assert 0 <= delay <= 250 * MS
        delays.add(delay)
        assert wish.handle_deadline(wish.deadline_ns - 1) == ()
        effects = wish.handle_deadline(wish.deadline_ns)
        assert [(send.to, send.hops) for send in effects] == [(None, 1), (SOURCE, None)]
        assert [item.tsi for item in sent_control(effects, PacketType.SPMR)] == [TSI, TSI]
        assert counters.spmr_packets == 1
    assert len(delays) > 20


def test_wanting_again_changes_nothing():
    wish, _ = request()
    wish.want(SOURCE, 0)
    at = wish.deadline_ns
    wish.want(SOURCE, at // 2)
    assert wish.deadline_ns == at


@pytest.mark.rfc("SPMR-04")
def test_somebody_elses_request_is_as_good():
    wish, counters = request()
    wish.want(SOURCE, 0)
    wish.heard_request(1)
    assert wish.deadline_ns == 1 + SECOND
    assert (counters.spmr_packets, counters.spmrs_suppressed) == (0, 1)
    # While waiting for the SPM another request changes nothing.
    wish.heard_request(5)
    assert wish.deadline_ns == 1 + SECOND


@pytest.mark.rfc("SPMR-05")
def test_an_spm_ends_it():
    wish, _ = request()
    wish.want(SOURCE, 0)
    wish.heard_spm()
    assert wish.deadline_ns == NEVER
    assert wish.handle_deadline(10 * SECOND) == ()


@pytest.mark.rfc("SPMR-06")
def test_without_an_spm_it_is_repeated():
    """After SPMR_SPM_IVL a fresh random delay, then another request."""
    wish, counters = request()
    wish.want(SOURCE, 0)
    sent_at = []
    while len(sent_at) < 5:
        now = wish.deadline_ns
        if wish.handle_deadline(now):
            sent_at.append(now)
    gaps = [later - sooner for sooner, later in itertools.pairwise(sent_at)]
    assert all(SECOND <= gap <= SECOND + 250 * MS for gap in gaps)
    assert counters.spmr_packets == 5
