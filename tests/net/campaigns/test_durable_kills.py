"""Small share of the campaign with killed durable receivers."""

from __future__ import annotations

from tests.net.campaigns.durable_kills import DESKS, kill_nodes


def test_rows_of_killed_receivers_come_once() -> None:
    result = kill_nodes(2, 3000, seed=1, victims=tuple(DESKS))
    assert not result.problems
    assert result.kills.total() == 2
    assert result.rows == dict.fromkeys(DESKS, 3000)
