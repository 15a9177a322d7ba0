"""Long ranges of one child alone go to it by unicast; what a second child asks for goes to all."""

from __future__ import annotations

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgm.core.counters import Counters
from pgm.core.in_place import replace_children, replace_parameters
from pgm.core.named_children import NamedChildren
from pgm.core.repair.lone_askers import LoneAskers, Responders
from pgm.core.repair.responder import Responder
from pgm.core.structures.ranges import Span
from pgm.core.structures.run_store import RunStore
from pgm.units import SECOND
from pgm.wire.formats import Nla
from tests.unit.core.makers import MS, OWN, SEGMENT, parameters, run_of, session_context

DESK, OTHER, ELEMENT, UNKNOWN = "10.0.0.11", "10.0.0.12", "10.0.0.13", "10.0.0.99"
CHILDREN = NamedChildren(frozenset({DESK, OTHER, ELEMENT, OWN}), frozenset({ELEMENT}))
LEAST, STORED = 100, 2000
SETTINGS = parameters(unicast_repair_min_sqns=LEAST, rdata_ignore_ivl=10 * MS, nak_max_ivl=SECOND)


@attrs.define
class Parent:
    """A parent's answers on one segment."""

    lone: LoneAskers
    to_all: Responder
    ones: dict[Nla, Responder]
    counters: Counters

    @classmethod
    def of(cls, **changes: object) -> Parent:
        store, counters = RunStore(), Counters()
        store.add(run_of(0, STORED))
        context = session_context(attrs.evolve(SETTINGS, **changes), counters=counters)
        ones = {child: Responder(context, store, SEGMENT, child) for child in (DESK, OTHER, ELEMENT, UNKNOWN)}
        to_all = Responder(context, store, SEGMENT)
        return cls(LoneAskers(context, CHILDREN, SEGMENT), to_all, ones, counters)

    def on_nak(self, spans: list[Span], child: Nla, now_ns: int) -> list[Span]:
        """Take a NAK, and return what is repaired for all."""
        for_all = spans
        if self.lone.concerns(sum(end - first for first, end in spans)):
            for_all = self.lone.take(spans, child, Responders(self.to_all, self.ones.__getitem__), now_ns)
        self.to_all.request(for_all, now_ns)
        return for_all

    def repair(self, now_ns: int) -> None:
        """Send all owed repairs."""
        for responder in (self.to_all, *self.ones.values()):
            while responder.next_train(1 << 20, 0, now_ns) is not None:
                pass


def test_a_long_range_of_one_child_goes_to_it_alone() -> None:
    parent = Parent.of()
    assert parent.on_nak([(0, LEAST)], DESK, 0) == []
    assert parent.on_nak([(LEAST, LEAST + 7)], DESK, MS) == [], "the end of the range"
    assert parent.on_nak([(1000, 1007)], DESK, MS) == [(1000, 1007)], "another, short one"
    assert parent.ones[DESK].pending_sqns == parent.counters.unicast_repair_sqns == LEAST + 7
    parent.repair(10 * MS)
    assert parent.on_nak([(0, 50)], DESK, 11 * MS) == [], "an echo"
    assert parent.on_nak([(0, 50), (107, 300)], DESK, 50 * MS) == [(0, 50)], "perhaps the child hears no unicast"
    assert parent.ones[DESK].pending_sqns == 300 - 107


def test_child_without_unicast_gets_multicast_while_more_is_sent() -> None:
    """Only what has just left and what is still owed to it are echoes, not all that lies between."""
    parent, one = Parent.of(), DESK
    assert parent.on_nak([(0, 1000)], one, 0) == []
    for at_ms in range(30):
        assert parent.ones[one].next_train(1 << 20, 0, at_ms * MS, 20) is not None
    sent, echoes = 1000 - parent.ones[one].pending_sqns, 9 * 20
    assert echoes < sent < 1000
    for_all = parent.on_nak([(0, 1000)], one, 30 * MS)
    assert for_all == [(0, sent - echoes)]
    assert parent.ones[one].pending_sqns == 1000 - sent


@pytest.mark.parametrize(("rdata_ivl", "max_ivl"), [(SECOND, 20 * MS), (20 * MS, SECOND)])
def test_a_range_is_known_until_its_child_has_asked_again(rdata_ivl: int, max_ivl: int) -> None:
    """A receiver waits for the longer of both before it asks again."""
    parent = Parent.of(nak_rdata_ivl=rdata_ivl, nak_max_ivl=max_ivl)
    assert parent.on_nak([(0, 300)], DESK, 0) == []
    parent.repair(10 * MS)
    assert parent.on_nak([(0, 300)], DESK, SECOND + 100 * MS) == [(0, 300)]


def test_repair_beyond_the_share_is_not_taken_for_one_in_vain() -> None:
    """At a low rate most of the request is dropped: nothing of that was sent, so the child may be served alone again."""
    parent = Parent.of(txw_max_rte=50_000)
    assert parent.on_nak([(0, 1000)], DESK, 0) == []
    owed = parent.ones[DESK].pending_sqns
    assert 0 < owed < 900
    parent.repair(10 * MS)
    assert parent.on_nak([(0, 1000)], DESK, 60 * MS) == [(0, owed)]


@pytest.mark.parametrize("child", [ELEMENT, UNKNOWN, OWN])
def test_elements_and_strangers_are_served_with_all_others(child: Nla) -> None:
    assert Parent.of().on_nak([(0, LEAST)], child, 0) == [(0, LEAST)]


@pytest.mark.parametrize(("least", "spans"), [(LEAST, [(0, LEAST - 1)]), (LEAST, [(at, at + 1) for at in range(0, 400, 2)]), (0, [(0, 900)])])  # fmt: skip
def test_short_ranges_and_a_least_of_zero_are_for_all(least: int, spans: list[Span]) -> None:
    assert Parent.of(unicast_repair_min_sqns=least).on_nak(spans, DESK, 0) == spans


@pytest.mark.parametrize("second", [OTHER, UNKNOWN, ELEMENT])
def test_a_second_child_makes_the_repair_multicast(second: Nla) -> None:
    parent = Parent.of()
    parent.on_nak([(0, 500)], DESK, 0)
    assert parent.on_nak([(0, 300)], second, MS) == [(0, 300)]
    assert parent.ones[DESK].pending_sqns == 200, "the rest is owed already, and nobody else has asked for it"
    assert parent.on_nak([(500, 900)], DESK, 2 * MS) == [(500, 900)], "of the same outage"
    parent.repair(3 * MS)
    at_ns = 3 * SECOND  # the outage is forgotten
    assert parent.on_nak([(0, 300)], DESK, at_ns) == []


def test_second_child_leaves_the_first_what_lies_between() -> None:
    parent = Parent.of()
    parent.on_nak([(0, 900)], DESK, 0)
    asked = [(0, 200), (700, 900)]
    assert parent.on_nak(asked, OTHER, MS) == asked
    assert parent.ones[DESK].owed_within(0, 900) == [(200, 700)]


def test_a_few_packets_of_another_child_do_not_end_it() -> None:
    parent = Parent.of()
    parent.on_nak([(0, 500)], DESK, 0)
    assert parent.on_nak([(40, 41)], OTHER, MS) == [(40, 41)]
    assert parent.on_nak([(500, 700)], DESK, 2 * MS) == []


def test_range_that_is_owed_to_all_is_not_sent_again() -> None:
    parent = Parent.of()
    parent.to_all.request([(10, 20)], 0)
    assert parent.on_nak([(0, 300)], DESK, 0) == [(0, 300)]


def test_children_and_parameters_that_change_in_place_count_at_once() -> None:
    children = NamedChildren(frozenset({OTHER}))
    settings = attrs.evolve(SETTINGS)
    parent = Parent.of()
    parent.lone = LoneAskers(session_context(settings, counters=parent.counters), children, SEGMENT)
    assert parent.on_nak([(0, 300)], DESK, 0) == [(0, 300)]
    replace_children(children, CHILDREN)
    assert parent.on_nak([(300, 600)], DESK, 0) == []
    replace_parameters(settings, attrs.evolve(settings, unicast_repair_min_sqns=0))
    assert parent.on_nak([(600, 900)], DESK, 0) == [(600, 900)]


SPANS = st.tuples(st.integers(0, STORED - 400), st.integers(1, 400)).map(lambda one: (one[0], one[0] + one[1]))
NAKS = st.lists(
    st.tuples(st.sampled_from([DESK, OTHER, ELEMENT, UNKNOWN]), SPANS, st.integers(0, 100), st.booleans()), max_size=30
)


@given(NAKS)
def test_every_asker_gets_each_packet_by_unicast_or_with_all(naks: list[tuple[Nla, Span, int, bool]]) -> None:
    """A child has asked, and its own repairs or those of the segment owe each packet, or have just sent it."""
    parent, now_ns = Parent.of(), 0
    for child, (first, end), wait_ms, repairs in naks:
        now_ns += wait_ms * MS
        for_all = parent.on_nak([(first, end)], child, now_ns)
        asked_of_all = {sqn for low, high in for_all for sqn in range(low, high)}
        for sqn in range(first, end):
            of_own = parent.ones[child].has_repaired_or_owes(sqn, sqn + 1, now_ns)
            of_all = parent.to_all.has_repaired_or_owes(sqn, sqn + 1, now_ns)
            assert (sqn in asked_of_all and of_all) or of_own
        if repairs:
            parent.repair(now_ns)
