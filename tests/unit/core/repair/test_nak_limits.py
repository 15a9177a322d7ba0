"""Budgets per child and per session."""

import pytest

from pgm.core.counters import Counters
from pgm.core.named_children import NamedChildren
from pgm.core.repair.fair_share import NEWCOMERS
from pgm.core.repair.nak_limits import NakLimits
from pgm.units import SECOND
from tests.unit.core.makers import MS, parameters, session_context


def nak_limits(**changes):
    counters = Counters()
    return NakLimits(session_context(parameters(**changes), counters=counters)), counters


@pytest.mark.rfc("SEC-01", "SEC-09")
def test_one_child_cannot_use_up_anothers_budget():
    brake, counters = nak_limits(child_nak_rte=10, session_nak_rte=1000, brake_burst_ivl=SECOND)
    assert sum(brake.admit_nak("10.0.0.1", 0) for _ in range(50)) == 10
    assert counters.nak_packets_braked == 40
    assert brake.admit_nak("10.0.0.2", 0)
    assert not brake.admit_nak("10.0.0.1", 100 * MS - 1)
    assert brake.admit_nak("10.0.0.1", 100 * MS)


@pytest.mark.rfc("SEC-01")
def test_all_children_together_have_a_budget_too():
    """A flood from many addresses."""
    brake, counters = nak_limits(child_nak_rte=10, session_nak_rte=100, brake_burst_ivl=SECOND)
    admitted = sum(brake.admit_nak(f"10.0.{child >> 8}.{child & 255}", 0) for child in range(1000))
    assert admitted == 100
    assert counters.nak_packets_braked == 900


@pytest.mark.rfc("SEC-01")
def test_children_remembered_are_bounded():
    """The child that was silent for longest is forgotten."""
    brake, _ = nak_limits(child_nak_rte=1, session_nak_rte=10_000, brake_burst_ivl=SECOND, max_children=2)
    assert brake.admit_nak("a", 0)
    assert brake.admit_nak("b", 0)
    assert not brake.admit_nak("a", 1)
    assert brake.admit_nak("c", 1)  # forgets b, not a
    assert not brake.admit_nak("a", 1)
    assert {asker.address for asker in brake.askers()} == {"a", "c"}


def test_ncfs_have_a_budget():
    brake, counters = nak_limits(session_ncf_rte=5, brake_burst_ivl=SECOND)
    assert [brake.admit_ncf(0) for _ in range(7)] == [True] * 5 + [False] * 2
    assert counters.ncf_packets_braked == 2


@pytest.mark.rfc("SRC-26")
def test_spmrs_are_answered_once_in_ihb_min():
    brake, counters = nak_limits(ihb_min=50 * MS)
    answered = [at for at in range(200) if brake.admit_spmr(at * MS)]
    assert answered == [0, 50, 100, 150]
    assert counters.spmr_packets_braked == 196


NAMED = NamedChildren(frozenset({"desk", "relay"}), frozenset({"relay"}))
RATES = {"txw_max_rte": 4 * 1472 * 100, "rdata_share": 0.25, "brake_burst_ivl": SECOND}  # 100 repairs a second


def limits_of(named=NAMED, **changes):
    counters = Counters()
    return NakLimits(session_context(parameters(**RATES | changes), counters=counters), named), counters


def ask(brake, child, now, sqns=1):
    return brake.admit_nak(child, now, sqns, 1000, newest=999)


def flood(brake, addresses, begin, end, rate=10_000):
    return sum(
        ask(brake, f"forged-{index % addresses}", begin + index * SECOND // rate)
        for index in range((end - begin) * rate // SECOND)
    )


@pytest.mark.parametrize("addresses", [1, 100, 10_000])
def test_newcomers_together_have_the_share_of_one_child(addresses):
    brake, counters = limits_of()
    admitted = 0
    for second in range(1, 5):
        assert ask(brake, "desk", second * SECOND)
        admitted = flood(brake, addresses, second * SECOND, (second + 1) * SECOND)
        assert brake.asker("forged-0", second * SECOND) == NEWCOMERS
    assert 40 <= admitted <= 80  # half of the repairs for two askers, and a quarter divided among newcomers
    assert counters.nak_packets_braked > 30_000
    assert all(ask(brake, "desk", 5 * SECOND + index * MS) for index in range(100))


def test_newcomers_alone_have_everything():
    brake, _ = limits_of()
    assert all(ask(brake, f"forged-{index}", SECOND + index * MS, 63) for index in range(1000))
    assert brake.asker("forged-0", SECOND) == "forged-0"


def test_newcomer_is_proven_after_quiet_time_and_keeps_its_budgets():
    brake, _ = limits_of(child_proof_ivl=2 * SECOND)
    for now in range(SECOND, 4 * SECOND, 100 * MS):
        assert ask(brake, "desk", now)
        assert ask(brake, "new", now)
    assert brake.asker("new", 4 * SECOND) == "new"
    flood(brake, 100, 4 * SECOND, 8 * SECOND)
    assert all(ask(brake, child, 8 * SECOND) for child in ("desk", "new"))
    assert {brake.asker(f"forged-{index}", 8 * SECOND) for index in range(100)} == {NEWCOMERS}


def test_element_of_the_topology_never_sends_excessive_naks():
    brake, _ = limits_of(excess_nak_window_ivl=100 * MS, excess_nak_check_ivl=200 * MS, excess_nak_min_sqns=10)
    for now in range(SECOND, 3 * SECOND, 10 * MS):
        assert brake.admit_nak("relay", now, 63, now // MS, newest=now // MS)
        brake.admit_nak("desk", now, 63, now // MS, newest=now // MS)
    assert brake.has_excess_naks("desk")
    assert not brake.has_excess_naks("relay")


def test_naks_that_no_node_can_need_cost_their_sender_alone():
    brake, _ = limits_of(child_nak_rte=10, session_nak_rte=12)
    for _ in range(10):
        brake.charge("desk", 1, SECOND)
    assert not ask(brake, "desk", SECOND)
    assert ask(brake, "relay", SECOND)


def test_upward_share_is_not_spent_by_one_child():
    brake, counters = limits_of(NamedChildren(frozenset({"desk", "other", "relay"}), frozenset({"relay"})))
    passed = 0
    for now in range(SECOND, 3 * SECOND, MS):
        passed += brake.admit_upward("desk", 1, 1, now)
        if not now % (100 * MS):
            assert brake.admit_upward("other", 1, 1, now)
            assert brake.admit_upward("relay", 63, 1, now)
    assert 40 <= passed <= 60  # a quarter of 100 a second, for two seconds
    assert counters.nak_packets_held == 2000 - passed


def test_known_child_is_not_held_at_the_end_of_the_stream():
    """A source that has announced its end leaves when requests cease, so none is held; those of strangers are."""
    brake, counters = limits_of(NamedChildren(frozenset({"desk"}), frozenset()))
    assert ask(brake, "desk", SECOND)
    assert all(brake.admit_upward("desk", 63, 1, SECOND, is_ending=True) for _ in range(100))
    assert counters.nak_packets_held == 0
    assert not all(brake.admit_upward(f"forged-{number}", 63, 1, SECOND, is_ending=True) for number in range(100))
