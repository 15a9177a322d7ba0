"""When recovery gives up, and what only caches have."""

from __future__ import annotations

import attrs
import pytest

from pgm.core.recovery.repair_table import RepairState
from pgm.units import NEVER, SECOND
from tests.unit.core.makers import MS
from tests.unit.core.recovery.recoveries import BACK_OFF, EXACT, RDATA, REORDER, RPT, due, in_state, only, recovery

S = RepairState


# Giving up


def rounds_until_given_up(made, answer=None, **changes):
    """Serve deadlines until the range is given up; returns when each NAK left, and when it ended."""
    asked_at = []
    while True:
        now = made.deadline_ns
        assert now != NEVER
        step = due(made, now, **changes)
        if step.naks:
            asked_at.append(now)
            if answer:
                answer(now)
        if step.given_up:
            assert not made.missing
            return asked_at, now, step


@pytest.mark.rfc("RCV-36", "RCV-37", "RCV-40", "RCV-49")
@pytest.mark.parametrize("retries", [1, 2, 3, 7])
def test_recovery_without_ncf_repeats_nak_ncf_retries_times(retries):
    """Given up when the count exceeds NAK_NCF_RETRIES."""
    made = recovery(attrs.evolve(EXACT, nak_ncf_retries=retries, nak_data_retries=1))
    made.detect(10, 12, SECOND)
    asked_at, ended, step = rounds_until_given_up(made)
    first = SECOND + REORDER + BACK_OFF
    assert asked_at == [first + count * (RPT + BACK_OFF) for count in range(retries + 1)]
    assert ended == asked_at[-1] + RPT
    assert step.given_up == [(10, 12)]
    assert made.deadline_ns == NEVER


@pytest.mark.rfc("RCV-38", "RCV-40")
@pytest.mark.parametrize("retries", [1, 2, 3, 7])
def test_without_data_there_are_so_many_repeats_after_the_first_nak(retries):
    made = recovery(attrs.evolve(EXACT, nak_ncf_retries=1, nak_data_retries=retries))
    made.detect(10, 12, SECOND)
    asked_at, ended, step = rounds_until_given_up(made, lambda now: made.confirmed([(10, 12)], now + MS))
    first = SECOND + REORDER + BACK_OFF
    assert asked_at == [first + count * (MS + RDATA + BACK_OFF) for count in range(retries + 1)]
    assert ended == asked_at[-1] + MS + RDATA
    assert step.given_up == [(10, 12)]
    assert step.unanswered == []


@pytest.mark.rfc("RCV-38")
def test_counts_live_for_the_whole_recovery():
    """WAIT_DATA does not clear the count of missing NCFs."""
    made = recovery(attrs.evolve(EXACT, nak_ncf_retries=2, nak_data_retries=10))
    made.detect(10, 11, SECOND)
    answers = iter([False, True, True, False, True, False])
    history = []

    def answer(now):
        history.append((only(made).ncf_retries, only(made).data_retries))
        if next(answers):
            made.confirmed([(10, 11)], now)

    asked_at, _, _ = rounds_until_given_up(made, answer)
    assert history == [(0, 0), (1, 0), (1, 1), (1, 2), (2, 2), (2, 3)]
    assert len(asked_at) == 6


@pytest.mark.rfc("RCV-35", "RCV-37")
def test_a_nak_of_another_receiver_postpones_ours():
    made, found, now = in_state(S.WAIT_NCF)
    for _ in range(10):
        now += RPT - 1
        made.overheard([(10, 13)], now)
        assert (found.deadline_ns, found.ncf_retries) == (now + RPT, 0)


def test_nothing_is_given_up_while_the_session_is_silent():
    """An outage above is no loss. The retries are those of a session that can be heard, so they are all there afterwards."""
    made = recovery(attrs.evolve(EXACT, nak_ncf_retries=2))
    made.detect(10, 12, SECOND)
    asked = 0
    for _ in range(100):
        step = due(made, made.deadline_ns, may_give_up=False)
        asked += len(step.naks)
        assert step.given_up == []
    assert asked >= 45
    asked_at, _, _ = rounds_until_given_up(made)
    assert len(asked_at) >= 2


def test_unanswered_naks_are_told_once_by_parent():
    """One NAK may list many gaps: its loss is one NAK that was not answered."""
    made = recovery()
    for first in range(0, 60, 2):
        made.detect(first, first + 1, SECOND)
    step = due(made, 2 * SECOND)
    assert len(step.naks) == 1
    for found in step.asking:
        found.asked = "10.0.0.2" if found.first < 30 else "10.0.0.3"
    step = due(made, made.deadline_ns)
    assert sorted(step.unanswered) == ["10.0.0.2", "10.0.0.3"]


def test_answered_naks_are_not_told():
    made, _, now = in_state(S.WAIT_NCF)
    made.confirmed([(10, 13)], now)
    assert due(made, made.deadline_ns).unanswered == []


# What only caches have


@pytest.mark.rfc("RCV-41")
def test_recovery_sqns_in_source_window_are_requested_first():
    """Below the trail only a cache can repair, and what is in the window must not fall out of it meanwhile."""
    made = recovery(attrs.evolve(EXACT, nak_max_outstanding=10))
    made.detect(0, 30, SECOND)
    step = due(made, made.deadline_ns, trail=25)
    assert step.naks == [[0, 1, 2, 3, 4, 25, 26, 27, 28, 29]]
    assert made.admission.outstanding == 10
    assert made.missing.sqns == 30
    made.detect(40, 42, SECOND)
    made.arrived(0, 5)
    made.arrived(25, 30)
    assert due(made, made.deadline_ns, trail=25).naks == [[5, 6, 7, 8, 9, 10, 11, 12, 40, 41]], "what waited, too"


def test_recovery_ranges_within_limit_are_not_parked():
    """Room is only waited for when there is more to ask for than there may be."""
    made = recovery(attrs.evolve(EXACT, nak_max_outstanding=10))
    made.detect(0, 12, SECOND)
    now = made.deadline_ns
    assert due(made, now).naks == [list(range(10))]
    made.arrived(0, 10, now)
    made.detect(20, 22, now)
    now += REORDER + BACK_OFF
    assert due(made, now).naks == [[10, 11, 20, 21]]


def test_promises_to_others_do_not_make_it_forget_what_waits():
    """They count among what is asked for, and may be more of it than there may be."""
    made = recovery(attrs.evolve(EXACT, nak_max_outstanding=10))
    made.detect(0, 40, SECOND)
    now = made.deadline_ns
    due(made, now)
    made.confirmed([(20, 40)], now)
    assert due(made, now + RPT).naks == []
    made.arrived(0, 10, now + RPT)
    made.arrived(20, 40, now + RPT)
    assert due(made, made.deadline_ns).naks == [list(range(10, 20))]


def test_recovery_sqns_in_no_cache_are_given_up_soon():
    """A few tries each, and not all retries for every nak_max_outstanding sqns in turn."""
    made = recovery(attrs.evolve(EXACT, nak_ncf_retries=1000))
    made.detect(10, 12, SECOND)
    made.detect(20, 22, SECOND)
    naks = []
    while made.is_missing(10):
        step = due(made, made.deadline_ns, trail=15)
        naks += step.naks
    assert step.given_up == [(10, 12)]
    assert len(naks) == 3
    assert made.is_missing(20)


def test_recovery_sqns_that_caches_repair_are_not_given_up_early():
    """As long as anything of its kind comes, the rest may come too."""
    made = recovery(attrs.evolve(EXACT, nak_ncf_retries=1000))
    made.detect(10, 12, SECOND)
    for _ in range(40):
        now = made.deadline_ns
        made.old_repair_ns = now - RDATA
        assert due(made, now, trail=15).given_up == []
