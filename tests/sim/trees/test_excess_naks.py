"""One receiver with excessive NAKs on a repairer's subnet.

The repairer detects the receiver, limits its budget, and lifts the limit later. The other receivers get all data
promptly.
"""

from __future__ import annotations

import tests.sim.support.excess_naks as scenario
from pgm.core.repair.fair_share import FairShare
from pgm.units import SECOND

SOON = {"excess_nak_window_ivl": SECOND // 2, "excess_nak_check_ivl": 2 * SECOND, "excess_nak_min_sqns": 200}


def test_the_others_are_unharmed(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    for name, value in {"EXCESS_FROM_S": 2, "FROM_S": 8, "TO_S": 14, "RATE": 500}.items():
        monkeypatch.setattr(scenario, name, value)
    common = {"seconds": 16, "receivers": 4, "heals_at_s": 12, "txw_max_rte": 650_000, "txw_secs": 4 * SECOND}
    unwatched = scenario.run(**common, excess_nak_window_ivl=0)
    held = scenario.run(**common, **SOON)
    assert not unwatched.notices
    codes = [(node, notice.code) for _, node, notice in held.notices]
    assert codes[:2] == [("bad", "excess-naks"), ("repairer", "child-excess-naks")]
    for one in (unwatched, held):
        assert one.others_lost == 0
        assert 0 < one.p50_ms < 20
        assert one.p99_ms < 500
    assert sum(held.repairs.values()) < 0.9 * sum(unwatched.repairs.values())


def test_without_shares_the_others_wait_behind_it(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    """Measure until the repairs granted before detection have left.

    The interval begins with the first excessive NAK.
    """
    for name, value in {"EXCESS_FROM_S": 2, "FROM_S": 3, "TO_S": 8, "RATE": 500}.items():
        monkeypatch.setattr(scenario, name, value)
    common = {"seconds": 10, "receivers": 4, "txw_max_rte": 650_000, "excess_nak_check_ivl": 4 * SECOND}
    shared = scenario.run(**common)
    monkeypatch.setattr(FairShare, "is_beyond", lambda *_: False)
    alike = scenario.run(**common)
    assert 0 < shared.p50_ms < 30
    assert alike.p50_ms > 1000
