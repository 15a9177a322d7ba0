"""Small share of the campaign with killed members."""

from __future__ import annotations

from tests.net.campaigns.ack_kills import NODES, kill_members


def test_stable_messages_of_killed_members_are_processed() -> None:
    count = kill_members(2, seed=1, nodes=NODES[:2])
    assert count.kills == 2
    assert count.stable > 0
    assert count.waiting > 0  # otherwise a kill proves nothing
    assert not count.unprocessed
