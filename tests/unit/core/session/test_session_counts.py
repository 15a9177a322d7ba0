"""Counters by session: whatever happens, the shares add up to what was counted in somebody's turn."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pgm.core.counters import Counters
from pgm.core.session.session_counters import SESSION_COUNTERS, SessionCounts, counts_of

KEYS = st.sampled_from("abc")
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("turn"), KEYS),
        st.tuples(st.just("forget"), KEYS),
        st.tuples(st.just("look"), KEYS),
        st.tuples(st.just("count"), st.sampled_from(SESSION_COUNTERS), st.integers(1, 9)),
    )
)


@given(STEPS)
def test_shares_are_what_was_counted_in_their_turns(steps: list[tuple[str, str] | tuple[str, str, int]]) -> None:
    counters = Counters()
    shares: SessionCounts[str] = SessionCounts(counters)
    expected: dict[str, dict[str, int]] = {}
    owner: str | None = None
    for step in steps:
        if step[0] == "turn":
            owner = step[1]
            expected.setdefault(owner, {})
            shares.turn(owner)
        elif step[0] == "forget":
            expected.pop(step[1], None)
            owner = None if owner == step[1] else owner
            shares.forget(step[1])
        elif step[0] == "look":
            assert shares.counts(step[1]) == expected.get(step[1], {})
        else:
            _, name, more = step
            setattr(counters, name, getattr(counters, name) + more)
            if owner is not None:
                expected[owner][name] = expected[owner].get(name, 0) + more
    for key in "abc":
        assert shares.counts(key) == expected.get(key, {})


def test_of_a_core_with_one_session_all_is_its_share() -> None:
    counters = Counters()
    counters.odata_packets, counters.trains_in = 3, 5
    assert counts_of(counters) == {"odata_packets": 3}
