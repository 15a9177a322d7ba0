"""Null NAKs on their way up: the source hears of each packet once in a while."""

import pytest

from pgm.core.repair.null_naks import NullNaks
from tests.memory import kept_by
from tests.unit.core.makers import MS, parameters


@pytest.mark.rfc("DLR-38", "DLR-40")
def test_null_naks_reported_sqns_are_dropped_for_nak_elim_ivl():
    made = NullNaks(parameters(nak_elim_ivl=100 * MS))
    assert made.admit([(5, 8)], 0)
    assert not made.admit([(5, 6), (7, 8)], 99 * MS)
    assert made.admit([(7, 9)], 99 * MS)  # 8 is
    assert made.admit([(5, 6)], 100 * MS)


@pytest.mark.rfc("SEC-01")
def test_memory_is_bounded():
    made = NullNaks(parameters(repair_states=64))
    for sqn in range(0, 10_000, 2):
        made.admit([(sqn, sqn + 1)], 0)
    assert sum(not made.admit([(sqn, sqn + 1)], 0) for sqn in range(9998, -1, -2)) == 64
    assert len(kept_by(made)) < 1000
