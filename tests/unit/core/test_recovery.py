"""Recovery of missing packets, driven through the repair table: every state, every event, exact timers, both counters."""

from __future__ import annotations

import itertools
import random
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgm.core.counters import Counters
from pgm.core.parents import Parents
from pgm.core.recovery import Recovery
from pgm.core.repair_table import RECEIVER, Interval, RepairEvent, RepairState, Retries, Transition
from pgm.units import NEVER, SECOND
from tests.unit.core.makers import MS, parameters

S, E = RepairState, RepairEvent
REORDER, RPT, RDATA = 1 * MS, 50 * MS, 200 * MS
# A back-off drawn from 1 to 1 ns is exact; the drawing has tests of its own.
BACK_OFF = 1
EXACT = parameters(
    reorder_ivl=REORDER,
    nak_bo_ivl=BACK_OFF,
    nak_rpt_ivl=RPT,
    nak_rdata_ivl=RDATA,
    nak_max_ivl=MS,  # intervals that do not grow: see test_patience
)


def recovery(settings=EXACT, seed=1):
    made = Recovery(settings, random.Random(seed), Counters(), Parents((), settings, Counters()).patience)
    made.may_ask = True
    return made


def only(made):
    [found] = made.missing
    return found


def due(made, now, **changes):
    return made.handle_deadline(now, **{"may_give_up": True} | changes)


def in_state(state, first=10, end=13):
    """A recovery whose range has just entered a state, and when that was."""
    made, now = recovery(), SECOND
    made.detect(first, end, now)
    if state is not S.BACK_OFF:
        now = made.deadline_ns
        due(made, now)
    if state is S.WAIT_DATA:
        now += 5 * MS
        made.confirmed([(first, end)], now)
    found = only(made)
    assert found.state is state
    return made, found, now


# The RFC's figure (6.3), written down a second time: state, event, next state, its timer, what is counted.
FIGURE = [
    (S.BACK_OFF, E.TIMER, S.WAIT_NCF, RPT, (0, 0)),
    (S.BACK_OFF, E.NAK_HEARD, S.WAIT_NCF, RPT, (0, 0)),
    (S.BACK_OFF, E.NCF_HEARD, S.WAIT_DATA, RDATA, (0, 0)),
    (S.WAIT_NCF, E.TIMER, S.BACK_OFF, BACK_OFF, (1, 0)),
    (S.WAIT_NCF, E.NAK_HEARD, S.WAIT_NCF, RPT, (0, 0)),
    (S.WAIT_NCF, E.NCF_HEARD, S.WAIT_DATA, RDATA, (0, 0)),
    (S.WAIT_DATA, E.TIMER, S.BACK_OFF, BACK_OFF, (0, 1)),
    (S.WAIT_DATA, E.NAK_HEARD, S.WAIT_DATA, RDATA, (0, 0)),
    (S.WAIT_DATA, E.NCF_HEARD, S.WAIT_DATA, RDATA, (0, 0)),
]


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
        made.detect(first, first + 1, SECOND + first)
        found = made.missing.at(first)
        assert (found.state, found.ncf_retries, found.data_retries) == (S.BACK_OFF, 0, 0)
        draws.append(found.deadline_ns - SECOND - first - REORDER)
    assert 0 < min(draws) < MS / 2
    assert 9.5 * MS < max(draws) <= 10 * MS
    assert abs(sum(draws) / len(draws) - 5 * MS) < MS / 2


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
    made.hurry(20, 22, 5 * SECOND + 7 * MS)
    assert backing_off.deadline_ns <= 5 * SECOND + 7 * MS


@pytest.mark.parametrize("state", [S.WAIT_NCF, S.WAIT_DATA])
def test_hurrying_leaves_what_is_under_way(state):
    made, found, now = in_state(state)
    at = found.deadline_ns
    made.hurry(10, 13, now)
    assert (found.state, found.deadline_ns) == (state, at)


@pytest.mark.rfc("DLR-14", "DLR-36")
def test_a_repairer_asked_by_its_own_parent_answers_with_a_nak():
    """What the parent promised on the segment it expects from us."""
    for state in (S.BACK_OFF, S.WAIT_DATA):
        made, found, now = in_state(state)
        made.hurry(10, 13, now + MS, is_relied_on=True)
        assert (found.state, found.deadline_ns) == (S.BACK_OFF, now + MS)
        assert made._outstanding == 0
        assert due(made, now + MS).naks == [[10, 11, 12]]
    made, found, now = in_state(S.WAIT_NCF)
    found.asked = "10.0.0.2"
    made.hurry(10, 13, now + MS, is_relied_on=True)
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
        made, found, now = in_state(S.BACK_OFF)
        backing_off_until = found.deadline_ns
        getattr(made, hear)([(10, 13)], now)
        assert due(made, backing_off_until).naks == []
        assert made._counters.naks_suppressed == 1
        getattr(made, hear)([(10, 13)], now)
        assert made._counters.naks_suppressed == 1


@pytest.mark.rfc("RCV-46")
def test_what_is_not_missing_is_nobodys_business():
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


def test_what_waits_for_room_has_no_timer():
    """Looking at each of ten thousand losses again and again would leave no time for the packets that end them."""
    made = recovery(attrs.evolve(EXACT, nak_max_outstanding=10))
    for sqn in range(0, 20_000, 2):
        made.detect(sqn, sqn + 1, SECOND)
    asked = []
    for served in range(0, 2000, 20):
        now = made.deadline_ns
        asked += [sqn for part in due(made, now).naks for sqn in part]
        assert sum(one.deadline_ns != NEVER for one in made.missing) == 10
        assert len(made.missing._heap) < 20_000, "and nothing is left of the first one"
        made.arrived(served, served + 20, now)
    assert asked == list(range(0, 2000, 2)), "oldest first"


@pytest.mark.rfc("RCV-41")
@given(
    steps=st.lists(
        st.tuples(
            st.sampled_from(["lose", "due", "due", "arrive", "ncf", "nak", "hurry"]),
            st.integers(0, 200),
            st.integers(1, 40),
        ),
        max_size=60,
    ),
    most=st.integers(1, 30),
    trail=st.integers(0, 100),
)
def test_whatever_happens_nothing_is_forgotten(steps, most, trail):
    made, now = recovery(attrs.evolve(EXACT, nak_max_outstanding=most)), SECOND
    for what, first, count in steps:
        span = (first, first + count)
        if what == "lose":
            made.detect(*span, now)
        elif what == "due" and made.deadline_ns != NEVER:
            now = max(now, made.deadline_ns)
            step = due(made, now, trail=trail, may_give_up=False)
            assert not step.naks or made._outstanding <= most
        elif what == "arrive":
            made.arrived(*span, now)
        elif what == "ncf":
            made.confirmed([span], now)
        elif what == "nak":
            made.overheard([span], now)
        elif what == "hurry":
            made.hurry(*span, now)
        waiting = [one for one in made.missing if one.deadline_ns == NEVER]
        assert not waiting or made._look_at_ns <= now + RPT, "somebody looks after what has no timer"
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
    assert made._outstanding == expected == 20 - 7 - 2 + 5
    made.arrived(0, 100)
    assert made._outstanding == 0


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
def test_without_an_ncf_there_are_so_many_repeats_after_the_first_nak(retries):
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


# Ranges against single sqns


@attrs.define
class OneSqn:
    """What a recovery of a single sqn would do, by the figure."""

    state: RepairState
    deadline: int
    ncf: int = 0
    data: int = 0


class BySqn:
    """A recovery without ranges: a dictionary."""

    def __init__(self, retries: int) -> None:
        self.sqns: dict[int, OneSqn] = {}
        self.retries = retries

    def detect(self, first: int, end: int, now: int) -> None:
        for sqn in range(first, end):
            self.sqns.setdefault(sqn, OneSqn(S.BACK_OFF, now + REORDER + BACK_OFF))

    def step(self, sqn: int, event: RepairEvent, now: int) -> None:
        one = self.sqns[sqn]
        for state, happening, following, ivl, (ncf, data) in FIGURE:
            if (state, happening) == (one.state, event):
                self.sqns[sqn] = OneSqn(following, now + ivl, one.ncf + ncf, one.data + data)

    def heard(self, spans: list[tuple[int, int]], event: RepairEvent, now: int) -> None:
        for first, end in spans:
            for sqn in range(first, end):
                if sqn in self.sqns:
                    self.step(sqn, event, now)

    def deadline(self, now: int) -> tuple[list[int], list[int]]:
        asked, given_up = [], []
        for sqn, one in sorted(self.sqns.items()):
            if one.deadline > now:
                continue
            if one.state is S.BACK_OFF:
                asked.append(sqn)
            self.step(sqn, E.TIMER, now)
            one = self.sqns[sqn]
            if one.ncf > self.retries or one.data > self.retries:
                del self.sqns[sqn]
                given_up.append(sqn)
        return asked, given_up


spans = st.tuples(st.integers(0, 25), st.integers(1, 12)).map(lambda pair: (pair[0], pair[0] + pair[1]))
happenings = st.one_of(
    st.tuples(st.just("detect"), spans),
    st.tuples(st.just("ncf"), st.lists(spans, min_size=1, max_size=3)),
    st.tuples(st.just("nak"), st.lists(spans, min_size=1, max_size=3)),
    st.tuples(st.just("arrived"), spans),
    st.tuples(st.just("trail"), st.integers(0, 30)),
    st.tuples(st.just("time"), st.sampled_from([1, MS, RPT - 1, RPT, RDATA, SECOND])),
    st.tuples(st.just("deadline"), st.just(None)),
)


@pytest.mark.rfc("RCV-34", "RCV-35", "RCV-36", "RCV-37", "RCV-38", "RCV-39", "RCV-40")
@given(history=st.lists(st.tuples(st.just(None), happenings).map(lambda pair: pair[1]), max_size=40))
def test_ranges_behave_like_single_sqns(history: list[tuple[str, Any]]) -> None:
    """One state for a range is one state for each of its sqns."""
    made = recovery(attrs.evolve(EXACT, nak_ncf_retries=2, nak_data_retries=2, nak_max_outstanding=1000))
    model, now = BySqn(2), SECOND
    for what, value in history:
        if what == "detect":
            made.detect(*value, now)
            model.detect(*value, now)
        elif what in ("ncf", "nak"):
            event = E.NCF_HEARD if what == "ncf" else E.NAK_HEARD
            (made.confirmed if what == "ncf" else made.overheard)(value, now)
            model.heard(value, event, now)
        elif what in ("arrived", "trail"):
            first, end = value if what == "arrived" else (0, value)
            found = made.arrived(first, end) if what == "arrived" else made.give_up_before(end)
            expected = [sqn for sqn in range(first, end) if model.sqns.pop(sqn, None)]
            assert [sqn for low, high in found for sqn in range(low, high)] == expected
        else:
            now = max(now, min(made.deadline_ns, now + 10 * SECOND)) if what == "deadline" else now + value
            step = due(made, now)
            asked, given_up = model.deadline(now)
            assert [sqn for part in step.naks for sqn in part] == asked
            assert sorted(sqn for low, high in step.given_up for sqn in range(low, high)) == given_up
        held = {
            sqn: OneSqn(one.state, one.deadline_ns, one.ncf_retries, one.data_retries)
            for one in made.missing
            for sqn in range(one.first, one.end)
        }
        assert {sqn: (one.state, one.deadline) for sqn, one in held.items()} == {
            sqn: (one.state, one.deadline) for sqn, one in model.sqns.items()
        }
        for sqn, one in held.items():
            # Ranges that become one again take the lesser counts, of neighbours that were tried about as often.
            assert 0 <= model.sqns[sqn].ncf - one.ncf <= 2
            assert 0 <= model.sqns[sqn].data - one.data <= 2
        model.sqns = held
        assert made._outstanding == sum(one.state is not S.BACK_OFF for one in held.values())
        assert made.deadline_ns == min((one.deadline for one in model.sqns.values()), default=NEVER)


# Ranges that become one again


def pieces(made):
    return [(one.first, one.end, one.state) for one in made.missing]


def test_pieces_that_are_in_step_again_become_one_range():
    """Otherwise a long repair ends in a NAK for every few sqns."""
    made = recovery(attrs.evolve(EXACT, nak_ncf_retries=1000))
    made.detect(0, 40, SECOND)
    due(made, made.deadline_ns)
    for first in range(0, 40, 2):
        made.confirmed([(first, first + 1)], SECOND + 2 * MS)
    assert len(made.missing) == 40
    for _ in range(4):
        due(made, made.deadline_ns)
    made.confirmed([(0, 40)], 2 * SECOND)
    assert pieces(made) == [(0, 40, S.WAIT_DATA)]
    step = due(made, made.deadline_ns)
    assert step.naks == []
    assert due(made, made.deadline_ns).naks == [list(range(40))]
    assert made._outstanding == 40


def test_pieces_far_apart_in_tries_stay_apart():
    """What was tried for long must not gain the patience of what was just found."""
    made = recovery(attrs.evolve(EXACT, nak_ncf_retries=1000))
    made.detect(0, 10, SECOND)
    for _ in range(8):  # four rounds
        due(made, made.deadline_ns)
    made.detect(10, 20, made.deadline_ns)
    made.confirmed([(0, 20)], made.deadline_ns)
    assert pieces(made) == [(0, 10, S.WAIT_DATA), (10, 20, S.WAIT_DATA)]


def test_table_can_be_exchanged():
    """E-08 is switchable: the prose of the RFC, where a NAK heard in BACK_OFF means that data is awaited."""
    prose = dict(RECEIVER)
    prose[S.BACK_OFF, E.NAK_HEARD] = Transition(S.WAIT_DATA, Interval.NAK_RDATA_IVL)
    made = Recovery(EXACT, random.Random(1), Counters(), Parents((), EXACT, Counters()).patience, prose)
    made.may_ask = True
    made.detect(10, 11, SECOND)
    made.overheard([(10, 11)], SECOND)
    assert only(made).state is S.WAIT_DATA
    assert made.deadline_ns == SECOND + RDATA


@pytest.mark.rfc("SEC-03")
def test_answers_do_not_cut_ranges_beyond_the_bound():
    """NCFs for every other sqn would make a range of each."""
    made = recovery(attrs.evolve(EXACT, rxw_gaps=16))
    made.detect(0, 1000, SECOND)
    for sqn in range(1, 1000, 2):
        made.confirmed([(sqn, sqn + 1)], SECOND)
        made.overheard([(sqn, sqn + 1)], SECOND)
    assert len(made.missing) <= 16
    assert made.missing.sqns == 1000


# What only caches have


@pytest.mark.rfc("RCV-41")
def test_what_the_source_still_has_is_asked_for_first():
    """Below the trail only a cache can repair, and what is in the window must not fall out of it meanwhile."""
    made = recovery(attrs.evolve(EXACT, nak_max_outstanding=10))
    made.detect(0, 30, SECOND)
    step = due(made, made.deadline_ns, trail=25)
    assert step.naks == [[0, 1, 2, 3, 4, 25, 26, 27, 28, 29]]
    assert made._outstanding == 10
    assert made.missing.sqns == 30
    made.detect(40, 42, SECOND)
    made.arrived(0, 5)
    made.arrived(25, 30)
    assert due(made, made.deadline_ns, trail=25).naks == [[5, 6, 7, 8, 9, 10, 11, 12, 40, 41]], "what waited, too"


def test_what_may_all_be_asked_for_waits_for_nobody():
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


def test_what_no_cache_has_is_given_up_soon():
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


def test_what_caches_still_repair_is_not_given_up_early():
    """As long as anything of its kind comes, the rest may come too."""
    made = recovery(attrs.evolve(EXACT, nak_ncf_retries=1000))
    made.detect(10, 12, SECOND)
    for _ in range(40):
        now = made.deadline_ns
        made.old_repair_ns = now - RDATA
        assert due(made, now, trail=15).given_up == []
