"""Recovery of missing packets, driven through the repair table: every state, every event, exact timers, both counters."""

from __future__ import annotations

import itertools

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgm.core.counters import Counters
from pgm.core.recovery.parents import Parents
from pgm.core.recovery.recovery import Recovery
from pgm.core.recovery.repair_table import RECEIVER, Interval, RepairEvent, RepairState, Retries, Transition
from pgm.units import NEVER, SECOND
from tests.memory import kept_by
from tests.unit.core.makers import MS, session_context
from tests.unit.core.recovery.recoveries import (
    BACK_OFF,
    EXACT,
    FIGURE,
    RDATA,
    REORDER,
    RPT,
    due,
    in_state,
    only,
    recovery,
)

S, E = RepairState, RepairEvent


@pytest.mark.rfc("RCV-34", "RCV-35", "RCV-36", "RCV-37", "RCV-38")
def test_the_figure_is_the_table():
    """Covers E-08."""
    assert {(state, event) for state, event, *_ in FIGURE} == set(RECEIVER) == set(itertools.product(S, E))
    ivls = {Interval.NAK_RB_IVL: BACK_OFF, Interval.NAK_RPT_IVL: RPT, Interval.NAK_RDATA_IVL: RDATA}
    counts = {None: (0, 0), Retries.NCF: (1, 0), Retries.DATA: (0, 1)}
    for state, event, following, ivl, counted in FIGURE:
        row = RECEIVER[state, event]
        assert (row.next_state, ivls[row.restarts], counts[row.counts]) == (following, ivl, counted)


@pytest.mark.rfc("RCV-34", "RCV-35", "RCV-36", "RCV-37", "RCV-38")
@pytest.mark.parametrize(("state", "event", "following", "ivl", "counted"), FIGURE)
def test_transition(state, event, following, ivl, counted):
    made, found, now = in_state(state)
    if event is E.TIMER:
        now = found.deadline_ns
        assert due(made, now - 1).naks == []
        assert found.state is state
        step = due(made, now)
        assert step.naks == ([[10, 11, 12]] if state is S.BACK_OFF else [])
        assert step.given_up == []
    else:
        now += 3 * MS
        (made.confirmed if event is E.NCF_HEARD else made.overheard)([(10, 13)], now)
    assert found.state is following
    assert found.deadline_ns == now + ivl
    assert made.deadline_ns == now + ivl
    assert (found.ncf_retries, found.data_retries) == counted


@pytest.mark.rfc("RCV-39")
@pytest.mark.parametrize("state", S)
def test_data_ends_recovery_in_every_state(state):
    made, _, _ = in_state(state)
    assert made.arrived(11, 12) == [(11, 12)]
    assert [(found.first, found.end) for found in made.missing] == [(10, 11), (12, 13)]
    assert made.arrived(0, 100) == [(10, 11), (12, 13)]
    assert made.deadline_ns == NEVER
    assert not made.is_missing(10)
    assert due(made, 100 * SECOND).naks == []


@pytest.mark.rfc("RCV-11", "RCV-39")
@pytest.mark.parametrize("state", S)
def test_trail_ends_recovery_in_every_state(state):
    made, _, _ = in_state(state)
    assert made.give_up_before(10) == []
    assert made.give_up_before(12) == [(10, 12)]
    assert [(found.first, found.end) for found in made.missing] == [(12, 13)]
    assert made.give_up_before(50) == [(12, 13)]
    assert made.deadline_ns == NEVER


# Beginning


@pytest.mark.rfc("RCV-32", "RCV-33")
def test_recovery_begins_with_cleared_counts_and_a_random_back_off():
    """Uniform below NAK_BO_IVL, after the tolerance for reordering."""
    settings = attrs.evolve(EXACT, nak_bo_ivl=10 * MS)
    made = recovery(settings)
    draws = []
    for first in range(0, 4000, 2):
        made.detect(first, first + 1, first * SECOND)
        found = made.missing.at(first)
        assert (found.state, found.ncf_retries, found.data_retries) == (S.BACK_OFF, 0, 0)
        draws.append(found.deadline_ns - first * SECOND - REORDER)
    assert 0 < min(draws) < MS / 2
    assert 9.5 * MS < max(draws) <= 10 * MS
    assert abs(sum(draws) / len(draws) - 5 * MS) < MS / 2


@pytest.mark.rfc("RCV-33", "RCV-47")
def test_gaps_found_during_a_back_off_end_it_together():
    """But none is asked for before it may have been merely out of order, and what comes after the end draws anew."""
    made = recovery(attrs.evolve(EXACT, nak_bo_ivl=10 * MS))
    made.detect(1, 2, 0)
    leaves_ns = made.missing.at(1).deadline_ns
    made.detect(3, 4, leaves_ns - REORDER)
    made.detect(5, 6, leaves_ns - REORDER + 1)
    assert made.missing.at(3).deadline_ns == leaves_ns
    assert made.missing.at(5).deadline_ns > leaves_ns


def test_a_back_off_of_a_longer_interval_is_not_shared():
    """Whoever is above may advertise a minute and then, when few have answered, milliseconds."""
    made = recovery(attrs.evolve(EXACT, nak_bo_ivl=60 * SECOND))
    made.detect(1, 2, 0)
    assert made.missing.at(1).deadline_ns > SECOND
    made.nak_bo_ivl = 10 * MS
    made.detect(3, 4, MS)
    assert made.missing.at(3).deadline_ns <= MS + REORDER + 10 * MS


@pytest.mark.rfc("RCV-33", "RCV-47")
def test_gaps_of_one_read_share_their_back_off():
    """Otherwise each would get a NAK of its own instead of a place in a list."""
    made = recovery(attrs.evolve(EXACT, nak_bo_ivl=10 * MS))
    for first in range(0, 60, 2):
        made.detect(first, first + 1, SECOND)
    assert due(made, made.deadline_ns).naks == [list(range(0, 60, 2))]
    assert made.deadline_ns == next(iter(made.missing)).deadline_ns


@pytest.mark.rfc("RCV-32")
def test_reordered_packets_are_never_asked_for():
    made = recovery()
    made.detect(10, 12, SECOND)
    assert made.deadline_ns > SECOND + REORDER
    assert made.arrived(10, 12) == [(10, 12)]
    assert due(made, 2 * SECOND).naks == []


@pytest.mark.rfc("RCV-42")
def test_detecting_again_changes_nothing_for_what_is_known():
    made, found, _ = in_state(S.WAIT_NCF)
    at = found.deadline_ns
    made.detect(8, 15, 2 * SECOND)
    assert [(one.first, one.end, one.state) for one in made.missing] == [
        (8, 10, S.BACK_OFF),
        (10, 13, S.WAIT_NCF),
        (13, 15, S.BACK_OFF),
    ]
    assert found.deadline_ns == at


@pytest.mark.rfc("NE-10")
def test_an_element_that_asks_for_a_child_draws_no_back_off():
    made = recovery(attrs.evolve(EXACT, nak_bo_ivl=SECOND))
    made.detect(10, 12, 5 * SECOND, at_once=True)
    assert made.deadline_ns == 5 * SECOND + REORDER
    made.detect(20, 22, 5 * SECOND)
    backing_off = made.missing.at(20)
    made.expedite(20, 22, 5 * SECOND + 7 * MS)
    assert backing_off.deadline_ns <= 5 * SECOND + 7 * MS


@pytest.mark.parametrize("state", [S.WAIT_NCF, S.WAIT_DATA])
def test_hurrying_leaves_what_is_under_way(state):
    made, found, now = in_state(state)
    at = found.deadline_ns
    made.expedite(10, 13, now)
    assert (found.state, found.deadline_ns) == (state, at)


@pytest.mark.rfc("DLR-14", "DLR-36")
def test_a_repairer_asked_by_its_own_parent_answers_with_a_nak():
    """What the parent promised on the segment it expects from us."""
    for state in (S.BACK_OFF, S.WAIT_DATA):
        made, found, now = in_state(state)
        made.expedite(10, 13, now + MS, is_relied_on=True)
        assert (found.state, found.deadline_ns) == (S.BACK_OFF, now + MS)
        assert made.admission.outstanding == 0
        assert due(made, now + MS).naks == [[10, 11, 12]]
    made, found, now = in_state(S.WAIT_NCF)
    found.asked = "10.0.0.2"
    made.expedite(10, 13, now + MS, is_relied_on=True)
    assert found.state is S.WAIT_NCF  # it was told already


@pytest.mark.rfc("RCV-22")
def test_nothing_is_asked_for_before_the_path_is_known():
    """The gap waits, however long; it is neither asked for nor lost."""
    made = recovery()
    made.may_ask = False
    made.detect(10, 13, SECOND)
    assert made.deadline_ns == NEVER
    made.may_ask = True
    assert made.deadline_ns < 2 * SECOND
    assert due(made, 50 * SECOND).naks == [[10, 11, 12]]


# Asking


@pytest.mark.rfc("RCV-41", "RCV-47", "W-33")
def test_naks_are_lists_of_63_oldest_first():
    made = recovery()
    for first, end in ((500, 503), (100, 170), (300, 301)):
        made.detect(first, end, SECOND)
    step = due(made, 2 * SECOND)
    assert step.naks == [list(range(100, 163)), [*range(163, 170), 300, 500, 501, 502]]
    assert [(found.first, found.end) for found in step.asking] == [(100, 170), (300, 301), (500, 503)]


@pytest.mark.rfc("RCV-34", "RCV-48")
def test_a_confirmation_cuts_out_what_it_names():
    """Each sqn has its own state from then on."""
    made, found, now = in_state(S.BACK_OFF, 10, 20)
    backing_off_until = found.deadline_ns
    made.confirmed([(12, 14), (17, 18), (25, 30)], now + MS)
    assert [(one.first, one.end, one.state, one.deadline_ns) for one in made.missing] == [
        (10, 12, S.BACK_OFF, backing_off_until),
        (12, 14, S.WAIT_DATA, now + MS + RDATA),
        (14, 17, S.BACK_OFF, backing_off_until),
        (17, 18, S.WAIT_DATA, now + MS + RDATA),
        (18, 20, S.BACK_OFF, backing_off_until),
    ]
    assert due(made, backing_off_until).naks == [[10, 11, 14, 15, 16, 18, 19]]


@pytest.mark.rfc("RCV-34", "RCV-35", "RCV-42")
def test_suppressed_naks_are_counted_and_not_sent():
    for hear in ("confirmed", "overheard"):
        counters = Counters()
        made, found, now = in_state(S.BACK_OFF, counters=counters)
        backing_off_until = found.deadline_ns
        getattr(made, hear)([(10, 13)], now)
        assert due(made, backing_off_until).naks == []
        assert counters.naks_suppressed == 1
        getattr(made, hear)([(10, 13)], now)
        assert counters.naks_suppressed == 1


@pytest.mark.rfc("RCV-46")
def test_recovery_sqns_not_missing_are_ignored():
    made = recovery()
    made.confirmed([(5, 8)], SECOND)
    made.overheard([(5, 8)], SECOND)
    assert len(made.missing) == 0


@pytest.mark.rfc("RCV-41")
@pytest.mark.parametrize("most", [1, 5, 63, 64, 100])
def test_at_most_so_many_sqns_are_asked_for_at_a_time(most):
    """What is behind waits, oldest first, and its retries with it."""
    made = recovery(attrs.evolve(EXACT, nak_max_outstanding=most))
    made.detect(0, 150, SECOND)
    made.detect(200, 250, SECOND)
    step = due(made, made.deadline_ns)
    asked = [sqn for part in step.naks for sqn in part]
    assert asked == list(range(most))
    asked_at = [asked]
    while len(asked_at) < 400 and made.missing:
        now = made.deadline_ns
        outstanding = [one for one in made.missing if one.state is not S.BACK_OFF]
        assert sum(one.count for one in outstanding) <= most
        for one in outstanding:
            made.arrived(one.first, one.end)
        asked_at.append([sqn for part in due(made, now).naks for sqn in part])
        assert all(one.ncf_retries == one.data_retries == 0 for one in made.missing)
    assert [sqn for asked in asked_at for sqn in asked] == [*range(150), *range(200, 250)]


def test_recovery_parked_range_has_no_timer():
    """Looking at each of ten thousand losses again and again would leave no time for the packets that end them."""
    made = recovery(attrs.evolve(EXACT, nak_max_outstanding=10))
    for sqn in range(0, 20_000, 2):
        made.detect(sqn, sqn + 1, SECOND)
    asked = []
    for served in range(0, 2000, 20):
        now = made.deadline_ns
        asked += [sqn for part in due(made, now).naks for sqn in part]
        assert sum(one.deadline_ns != NEVER for one in made.missing) == 10
        made.arrived(served, served + 20, now)
    entries = sum(len(one) for one in kept_by(made.missing) if isinstance(one, list))
    assert entries < 20_000, "and nothing is left of the timers before the first NAK"
    assert asked == list(range(0, 2000, 2)), "oldest first"


@pytest.mark.rfc("RCV-41")
@given(
    steps=st.lists(
        st.tuples(
            st.sampled_from(["lose", "due", "due", "arrive", "ncf", "nak", "hurry", "drop"]),
            st.integers(0, 200),
            st.integers(1, 40),
        ),
        max_size=60,
    ),
    most=st.one_of(st.integers(1, 30), st.integers(100, 200)),
    trail=st.integers(0, 100),
)
def test_recovery_any_sequence_of_events_forgets_nothing(steps, most, trail):
    counters = Counters()
    made, now = recovery(attrs.evolve(EXACT, nak_max_outstanding=most), counters=counters), SECOND
    for what, first, count in steps:
        span = (first, first + count)
        if what == "lose":
            made.detect(*span, now)
        elif what == "due" and made.deadline_ns != NEVER:
            now = max(now, made.deadline_ns)
            step = due(made, now, trail=trail, may_give_up=False)
            assert not step.naks or made.admission.outstanding <= most
        elif what == "arrive":
            made.arrived(*span, now)
        elif what == "ncf":
            made.confirmed([span], now)
        elif what == "nak":
            made.overheard([span], now)
        elif what == "hurry":
            made.expedite(*span, now)
        elif what == "drop":
            counters.socket_drops += 1
        waiting = [one for one in made.missing if one.deadline_ns == NEVER]
        assert not waiting or made.admission.at_ns <= now + RPT, "somebody looks after what has no timer"
    until = now + 100 * SECOND
    while made.missing and now < until:
        now = max(now, made.deadline_ns)
        for part in due(made, now, trail=trail, may_give_up=False).naks:
            for sqn in part:
                made.arrived(sqn, sqn + 1, now)
    assert not made.missing


def test_outstanding_is_counted_exactly_through_splits_and_ends():
    made = recovery(attrs.evolve(EXACT, nak_max_outstanding=20))
    made.detect(0, 100, SECOND)
    now = made.deadline_ns
    due(made, now)
    made.confirmed([(3, 5), (10, 12)], now)
    made.arrived(4, 11)
    made.give_up_before(2)
    made.overheard([(50, 55)], now)
    expected = sum(one.count for one in made.missing if one.state is not S.BACK_OFF)
    assert made.admission.outstanding == expected == 20 - 7 - 2 + 5
    made.arrived(0, 100)
    assert made.admission.outstanding == 0


# Ranges that become one again


def test_table_can_be_exchanged():
    """E-08 is switchable: the prose of the RFC, where a NAK heard in BACK_OFF means that data is awaited."""
    prose = dict(RECEIVER)
    prose[S.BACK_OFF, E.NAK_HEARD] = Transition(S.WAIT_DATA, Interval.NAK_RDATA_IVL)
    context = session_context(EXACT)
    made = Recovery(context, Parents(context, ()).response_timeout, prose)
    made.may_ask = True
    made.detect(10, 11, SECOND)
    made.overheard([(10, 11)], SECOND)
    assert only(made).state is S.WAIT_DATA
    assert made.deadline_ns == SECOND + RDATA
