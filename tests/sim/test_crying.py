"""One crying baby on a repairer's subnet: found out, held to a small budget, released; the others get everything soon."""

from __future__ import annotations

import tests.sim.crying as crying
from pgm.units import SECOND

SOON = {"nagging_window_ivl": SECOND // 2, "nagging_check_ivl": 2 * SECOND, "nagging_max_sqns": 200}


def test_the_others_are_unharmed(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    for name, value in {"CRIES_FROM_S": 2, "FROM_S": 8, "TO_S": 14, "RATE": 500}.items():
        monkeypatch.setattr(crying, name, value)
    common = {"seconds": 16, "receivers": 4, "heals_at_s": 12, "txw_max_rte": 650_000, "txw_secs": 4 * SECOND}
    harmed = crying.run(**common, nagging_window_ivl=0)
    held = crying.run(**common, **SOON)
    assert not harmed.notices
    codes = [(node, notice.code) for _, node, notice in held.notices]
    assert codes[:2] == [("baby", "nagging"), ("repairer", "crying-child")]
    assert held.others_lost == 0
    assert 0 < held.p50_ms < 20
    assert held.p99_ms < 500
    assert harmed.p50_ms > 10 * held.p50_ms or not harmed.p50_ms  # or none came at all
