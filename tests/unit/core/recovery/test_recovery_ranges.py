"""Recovery keeps ranges, and they behave like the single sqns in them."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgm.core.counters import Counters
from pgm.core.recovery.repair_table import RepairEvent, RepairState
from pgm.sim.checks.repair_latency import RepairLatency
from pgm.units import NEVER, SECOND
from tests.unit.core.makers import MS
from tests.unit.core.recovery.recoveries import BACK_OFF, EXACT, FIGURE, RDATA, REORDER, RPT, due, recovery

S, E = RepairState, RepairEvent


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
        assert made.admission.outstanding == sum(one.state is not S.BACK_OFF for one in held.values())
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
    assert made.admission.outstanding == 40


def test_pieces_far_apart_in_tries_stay_apart():
    """What was tried for long must not gain the patience of what was just found."""
    made = recovery(attrs.evolve(EXACT, nak_ncf_retries=1000))
    made.detect(0, 10, SECOND)
    for _ in range(8):  # four rounds
        due(made, made.deadline_ns)
    made.detect(10, 20, made.deadline_ns)
    made.confirmed([(0, 20)], made.deadline_ns)
    assert pieces(made) == [(0, 10, S.WAIT_DATA), (10, 20, S.WAIT_DATA)]


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


def test_asking_for_a_part_does_not_cut_ranges_beyond_the_bound():
    """What does not fit among what is asked for at a time waits, where its rest would be one range too many."""
    made = recovery(attrs.evolve(EXACT, rxw_gaps=16, nak_max_outstanding=64))
    made.detect(0, 10, SECOND)
    made.detect(20, 1020, SECOND)
    for first in range(2000, 2014):
        made.detect(first * 2, first * 2 + 1, SECOND)
    assert due(made, made.deadline_ns).spans == [(0, 10)]
    assert len(made.missing) == 16
    made.arrived(0, 10, SECOND + 20 * MS)
    assert due(made, made.deadline_ns).spans == [(20, 84)]
    assert len(made.missing) == 16


def full_of(*counts, at_once=64, counters=None):
    """A recovery whose table is full, of gaps of so many sqns, a hundred apart at least."""
    made = recovery(attrs.evolve(EXACT, rxw_gaps=len(counts), nak_max_outstanding=at_once), counters=counters)
    first = 0
    for count in counts:
        made.detect(first, first + count, SECOND)
        first += count + 100
    return made


@pytest.mark.rfc("SEC-03")
def test_a_full_table_asks_for_what_need_not_be_cut_first():
    """Nothing asked for would make a place for a part of the first gap; the small ones behind it do."""
    made = full_of(1000, *[1] * 15)
    asked = due(made, made.deadline_ns)
    assert asked.spans == [(1100 + 101 * number, 1101 + 101 * number) for number in range(15)]
    assert asked.crowded_out == []
    assert len(made.missing) == 16
    made.arrived(1100, 1101, made.deadline_ns)
    assert due(made, made.deadline_ns).spans[0][0] == 0
    assert len(made.missing) == 16


@pytest.mark.rfc("SEC-03")
def test_a_full_table_waits_for_the_back_off_of_what_need_not_be_cut():
    """What was asked for whole and in vain comes again; until then nothing is cut or given up."""
    made = full_of(1000, *[1000] * 14, 1)
    assert due(made, made.deadline_ns).spans == [(16500, 16501)]
    for _ in range(20):
        step = due(made, made.deadline_ns)
        assert (step.spans, step.crowded_out) in (([], []), ([(16500, 16501)], []))
        assert len(made.missing) == 16


class GivenUp(RepairLatency):
    """Keeps what a recovery says that it gave up."""

    def __init__(self):
        super().__init__()
        self.spans = []

    def gave_up(self, tsi, found, now_ns):
        self.spans.append((found.first, found.end))


@pytest.mark.rfc("SEC-01", "SEC-03")
def test_a_full_table_of_large_gaps_gives_up_one_and_gets_the_rest():
    """Parts of the oldest are asked for, one after the other: once there is a place there always is."""
    watch = GivenUp()
    made = full_of(*[1000] * 16, counters=Counters(watch=watch))
    crowded_out, arrived = [], 0
    while made.missing:
        step = due(made, made.deadline_ns)
        crowded_out += step.crowded_out
        assert len(made.missing) <= 16
        assert sum(end - first for first, end in step.spans) <= 64
        for first, end in step.spans:
            made.arrived(first, end, made.deadline_ns)
            arrived += end - first
    assert watch.spans == crowded_out == [(1100, 2100)]
    assert arrived == 15_000


def test_the_trail_does_not_cut_ranges_beyond_the_bound():
    """A range that the trail reaches into counts as what only caches have then."""
    made = recovery(attrs.evolve(EXACT, rxw_gaps=16))
    for first in range(0, 160, 10):
        made.detect(first, first + 4, SECOND)
    assert due(made, made.deadline_ns, trail=2).spans == [(first, first + 4) for first in range(0, 160, 10)]
    assert len(made.missing) == 16


def test_recovery_sqns_below_zero_wait_for_room():
    made = recovery(attrs.evolve(EXACT, nak_max_outstanding=64))
    made.detect(-100, 0, SECOND)
    for first, end in ((-100, -36), (-36, 0)):
        assert due(made, made.deadline_ns).spans == [(first, end)]
        made.arrived(first, end, made.deadline_ns)
    assert made.deadline_ns == NEVER
