"""What was repaired lately, against a dictionary by sqn."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pgm.core.repair.recent_repairs import RecentRepairs
from pgm.wire.sequence_numbers import spans_of

LASTS = 10


@given(
    steps=st.lists(
        st.tuples(
            st.sampled_from(["list", "list", "scattered", "spans", "any of spans", "one", "rest"]),
            st.lists(st.integers(-5, 40), min_size=1, max_size=12, unique=True).map(sorted),
            st.sampled_from([0, 1, LASTS // 2, LASTS]),
        ),
        max_size=40,
    )
)
def test_it_is_remembered_for_its_time_however_it_was_repaired(steps):
    made, until, now = RecentRepairs(LASTS), {}, 0
    for what, sqns, wait in steps:
        now += wait
        made.expire(now)
        until = {sqn: at for sqn, at in until.items() if at > now}
        is_served = not until.keys().isdisjoint(sqns)
        first, end = sqns[0], sqns[-1] + 1
        if what == "list":
            assert made.overlaps_any(spans_of(sqns)) == is_served
            if not is_served:
                made.note_list(sqns, now)
                until |= dict.fromkeys(sqns, now + LASTS)
        elif what == "scattered":
            if not is_served:
                made.note_scattered([(sqn, sqn + 1) for sqn in sqns], now)
                until |= dict.fromkeys(sqns, now + LASTS)
        elif what == "spans":
            made.note(spans_of(sqns), now)
            until |= dict.fromkeys(sqns, now + LASTS)
        elif what == "any of spans":
            assert made.overlaps_any(spans_of(sqns)) == is_served
        elif what == "one":
            assert made.overlaps(first, end) == any(sqn in until for sqn in range(first, end))
        else:
            assert made.uncovered(first, end) == spans_of(sqn for sqn in range(first, end) if sqn not in until)
        assert len(made) <= len(until)


def test_lists_fade():
    made = RecentRepairs(LASTS)
    for now in range(1000):
        made.expire(now)
        made.note_list((2 * now, 2 * now + 1), now)
    assert len(made) == LASTS
