"""Waits that follow what answers take, and double while none comes (RFC 6298 applied to RFC 3208, 6.3)."""

from __future__ import annotations

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgm.core.recovery.recovery import Recovery
from pgm.core.recovery.response_timeout import ResponseTimeout
from pgm.units import SECOND
from tests.unit.core.makers import MS, parameters, session_context

FLOOR, CEILING = 50 * MS, 1000 * MS


def test_quick_answers_leave_the_floor():
    response_timeout = ResponseTimeout(FLOOR, CEILING)
    for _ in range(20):
        response_timeout.answered(2 * MS)
    assert response_timeout.ivl_ns == FLOOR
    assert response_timeout.retries == 1


def test_late_answers_are_waited_for():
    response_timeout = ResponseTimeout(FLOOR, CEILING)
    for _ in range(40):
        response_timeout.answered(200 * MS)
    assert 200 * MS <= response_timeout.ivl_ns <= 210 * MS
    assert response_timeout.retries == 4
    for _ in range(60):
        response_timeout.answered(MS)
    assert response_timeout.ivl_ns == FLOOR


def test_response_timeout_timeouts_double_it_until_an_answer():
    response_timeout = ResponseTimeout(FLOOR, CEILING)
    now, waits = 0, []
    for _ in range(7):
        waits.append(response_timeout.ivl_ns // MS)
        now += response_timeout.ivl_ns
        response_timeout.timed_out(now)
    assert waits == [50, 100, 200, 400, 800, 1000, 1000]
    response_timeout.answered(2 * MS)
    assert response_timeout.ivl_ns == FLOOR


def test_waits_that_ran_side_by_side_count_once():
    response_timeout = ResponseTimeout(FLOOR, CEILING)
    for late in range(30):
        response_timeout.timed_out(SECOND + late * MS)
    assert response_timeout.ivl_ns == 2 * FLOOR


def test_another_parent_is_met_without_prejudice():
    response_timeout = ResponseTimeout(FLOOR, CEILING)
    response_timeout.answered(300 * MS)
    response_timeout.timed_out(SECOND)
    response_timeout.start_anew()
    assert response_timeout.ivl_ns == FLOOR


@given(
    st.integers(1, 10**9),
    st.integers(0, 10**10),
    st.lists(st.one_of(st.integers(0, 10**11), st.none()), max_size=60),
)
def test_the_bounds_hold_whatever_happens(floor, more, events):
    response_timeout = ResponseTimeout(floor, floor + more)
    now = 0
    for took in events:
        now += response_timeout.ivl_ns
        if took is None:
            response_timeout.timed_out(now)
        else:
            response_timeout.answered(took)
        assert floor <= response_timeout.ivl_ns <= floor + more
        assert response_timeout.retries >= 1


def recovering(**changes):
    times = {"nak_rpt_ivl": FLOOR, "nak_rdata_ivl": 200 * MS, "nak_rdata_min_ivl": 40 * MS}
    settings = parameters(reorder_ivl=MS, nak_bo_ivl=1, **times, **changes)
    response_timeout = ResponseTimeout(settings.nak_rpt_ivl, settings.nak_max_ivl)
    made = Recovery(session_context(settings), response_timeout)
    made.may_ask = True
    return made


def ask(made, first, end, now):
    made.detect(first, end, now, at_once=True)
    step = made.handle_deadline(made.deadline_ns, may_give_up=True)
    for found in step.asking:
        found.asked = "parent"
    return step


def test_an_overloaded_parent_is_asked_ever_more_rarely():
    """A thousand gaps of one sqn that nobody answers for ten seconds: the NAKs per second fall twentyfold."""
    made = recovering(nak_ncf_retries=10_000, nak_max_outstanding=1008)
    now = SECOND
    for sqn in range(0, 2000, 2):
        made.detect(sqn, sqn + 1, now)
    asked = {}
    while made.deadline_ns < 11 * SECOND:
        step = made.handle_deadline(made.deadline_ns, may_give_up=True)
        for sqns in step.naks:
            second = step.asking[0].since_ns // SECOND
            asked[second] = asked.get(second, 0) + len(sqns)
    assert asked[1] >= 3000
    assert 0 < asked[9] + asked[10] <= 2 * 1008 + 1008


def test_late_ncfs_are_measured_and_later_gaps_wait_for_them():
    made = recovering()
    now = SECOND
    for sqn in range(0, 80, 2):
        ask(made, sqn, sqn + 1, now)
        made.confirmed([(sqn, sqn + 1)], now + MS + 30 * MS, "parent")
        made.arrived(sqn, sqn + 1, now + MS + 40 * MS)
        now += SECOND
    assert made.ncf_timeout.ivl_ns == FLOOR
    for sqn in range(100, 180, 2):
        ask(made, sqn, sqn + 1, now)
        made.confirmed([(sqn, sqn + 1)], now + MS + 45 * MS, "parent")
        made.arrived(sqn, sqn + 1, now + 190 * MS)
        now += SECOND
    assert FLOOR <= made.ncf_timeout.ivl_ns < 2 * FLOOR
    assert 140 * MS < made.data_timeout.ivl_ns < 200 * MS


def test_response_timeout_of_an_overload_ends_with_the_last_loss():
    """Waits as long as those of an overload would keep the next lost repair from being requested again."""
    made = recovering()
    ask(made, 0, 20, SECOND)
    made.confirmed([(0, 20)], SECOND, "parent")
    for sqn in range(19):
        made.arrived(sqn, sqn + 1, (5 + sqn) * SECOND)
    assert made.data_timeout.ivl_ns == SECOND
    made.arrived(19, 20, 25 * SECOND)
    assert 199 * MS < made.data_timeout.ivl_ns <= 200 * MS


def test_response_timeout_ncf_after_repeated_nak_is_not_measured():
    """Karn: nobody can tell which of the NAKs was answered."""
    made = recovering()
    ask(made, 10, 11, SECOND)
    made.handle_deadline(made.deadline_ns, may_give_up=True)  # the wait for the NCF is over
    made.handle_deadline(made.deadline_ns, may_give_up=True)  # asked again
    before = attrs.asdict(made.ncf_timeout)
    made.confirmed([(10, 11)], 2 * SECOND, None)
    assert attrs.asdict(made.ncf_timeout) == before


def test_giving_up_comes_no_later_than_with_waits_that_do_not_grow():
    """`nak_ncf_retries` bounds the time: a wait of four floors counts as four retries."""
    ends = {}
    for most in (MS, SECOND):
        made = recovering(nak_ncf_retries=40, nak_max_ivl=max(most, FLOOR))
        made.detect(10, 11, SECOND)
        while made.is_missing(10):
            now = made.deadline_ns
            made.handle_deadline(now, may_give_up=True)
        ends[most] = now
    assert ends[SECOND] <= ends[MS] + SECOND


def test_recovery_closing_source_is_asked_at_lower_bound():
    """It goes when nobody has asked for `fin_quiet_ivl`: who waits longer than that would never be heard."""
    made = recovering(nak_ncf_retries=10_000)
    made.detect(10, 11, SECOND)
    for _ in range(12):
        made.handle_deadline(made.deadline_ns, may_give_up=True)
    now = made.deadline_ns - 400 * MS
    assert made.ncf_timeout.ivl_ns == SECOND
    made.source_leaves(now)
    assert made.deadline_ns <= now + FLOOR
    for _ in range(6):
        now = made.deadline_ns
        made.handle_deadline(now, may_give_up=True)
        assert made.deadline_ns <= now + FLOOR


def test_recovery_first_repair_shortens_waits_for_promised_data():
    """Else the first repair that is lost holds up delivery for nak_rdata_ivl, whatever the others take."""
    made = recovering()
    for sqn in (10, 20, 30):
        made.detect(sqn, sqn + 1, SECOND, at_once=True)
    made.handle_deadline(made.deadline_ns, may_give_up=True)
    promised = SECOND + 2 * MS
    made.confirmed([(10, 11), (20, 21)], promised)
    assert [found.deadline_ns for found in made.missing][:2] == [promised + 200 * MS] * 2
    waits_for_ncf = made.missing.at(30).deadline_ns
    made.arrived(10, 11, promised + 3 * MS)
    assert made.missing.at(20).deadline_ns == promised + 40 * MS
    assert made.missing.at(30).deadline_ns == waits_for_ncf
    made.handle_deadline(promised + 40 * MS, may_give_up=True)
    assert made.missing.at(20).data_retries == 1


def test_repairs_that_come_at_once_are_asked_for_again_soon():
    made = recovering()
    now = SECOND
    for sqn in range(0, 80, 2):
        ask(made, sqn, sqn + 1, now)
        made.confirmed([(sqn, sqn + 1)], now + 2 * MS, "parent")
        made.arrived(sqn, sqn + 1, now + 4 * MS)
        now += SECOND
    assert made.data_timeout.ivl_ns == 40 * MS
    ask(made, 100, 101, now)
    made.confirmed([(100, 101)], now + 2 * MS, "parent")
    made.handle_deadline(now + 42 * MS, may_give_up=True)
    [found] = made.missing
    assert (found.data_retries, found.data_waits) == (1, 0.2)


def test_short_waits_do_not_bring_giving_up_nearer():
    made = recovering(nak_data_retries=2)
    for sqn in range(0, 80, 2):
        ask(made, sqn, sqn + 1, SECOND)
        made.confirmed([(sqn, sqn + 1)], SECOND + 2 * MS, "parent")
        made.arrived(sqn, sqn + 1, SECOND + 4 * MS)
    begun = now = 2 * SECOND
    ask(made, 100, 101, now)
    while made.missing:
        made.confirmed([(100, 101)], now, "parent")
        made.arrived(0, 1, now)  # others are answered all the time
        made.data_timeout.answered(MS)
        now = made.deadline_ns
        made.handle_deadline(now, may_give_up=True)
    assert now - begun >= 2 * 200 * MS


def test_response_timeout_repeated_slow_answers_lengthen_it():
    response_timeout = ResponseTimeout(200 * MS, SECOND, 40 * MS)
    response_timeout.answered(2 * MS)
    for _ in range(20):
        response_timeout.answered(150 * MS, is_repeated=True)
    assert response_timeout.ivl_ns > 150 * MS


def test_response_timeout_lost_repair_does_not_lengthen_it():
    response_timeout = ResponseTimeout(200 * MS, SECOND, 40 * MS)
    for _ in range(40):
        response_timeout.answered(5 * MS)
    for _ in range(3):  # one in ten
        response_timeout.answered(200 * MS, is_repeated=True)
        assert response_timeout.ivl_ns < 60 * MS
        for _ in range(10):
            response_timeout.answered(5 * MS)
    assert response_timeout.ivl_ns == 40 * MS


@given(
    began=st.integers(0, 3),
    answers=st.lists(st.tuples(st.integers(MS, 300 * MS), st.integers(1, 60)), min_size=1, max_size=8),
)
def test_answers_that_come_together_count_each(began, answers):
    """Else a few repairs that got lost would outweigh all those that came at once."""
    one_by_one, together = (ResponseTimeout(200 * MS, 1000 * MS, 40 * MS) for _ in range(2))
    for response_timeout in (one_by_one, together):
        for _ in range(began):
            response_timeout.answered(2 * MS)
    for took, times in answers:
        together.answered(took, times=times)
        for _ in range(times):
            one_by_one.answered(took)
    assert together.ivl_ns == pytest.approx(one_by_one.ivl_ns, abs=1000)
