"""Budgets per child and per session."""

import pytest

from pgm.core.counters import Counters
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
