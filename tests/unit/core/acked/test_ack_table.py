"""The least that all children have, kept as it changes, against looking at all of them."""

from hypothesis import given
from hypothesis import strategies as st

from pgm.core.acked.ack_table import AckChild, AckTable

PLACES = [(0, "10.0.0.1"), (0, "10.0.0.2"), (1, "10.0.0.1"), (1, "10.0.0.9")]


def child(acked, members=1):
    return AckChild(acked=acked, members=members, holder=f"holder-{acked}", is_element=False, heard_ns=0, moved_ns=0)


@given(
    st.lists(
        st.tuples(st.sampled_from(PLACES), st.one_of(st.none(), st.integers(-1, 6)), st.integers(1, 5)), max_size=60
    )
)
def test_the_minimum_is_that_of_all_children(steps):
    table, model = AckTable(len(PLACES)), {}
    for place, acked, members in steps:
        if acked is None:
            assert (place in table) == (place in model)
            if place in model:
                assert table.remove(place).acked == model.pop(place)[0]
        else:
            table.note(place, child(acked, members))
            model[place] = (acked, members)
        low = min((one for one, _ in model.values()), default=-9)
        assert table.low_or(-9) == low
        assert table.members == sum(members for _, members in model.values())
        assert len(table) == len(model)
        assert table.is_full == (len(model) == len(PLACES))
        assert table.holder == (f"holder-{low}" if model else "")


def test_the_slowest_are_shown_first():
    table = AckTable(10)
    for number in range(5):
        table.note((0, f"10.0.0.{number}"), child(10 - number))
    slowest = [(place[1], one.acked) for place, one in table.slowest(2)]
    assert slowest == [("10.0.0.4", 6), ("10.0.0.3", 7)]
