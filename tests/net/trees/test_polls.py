"""Parents that count their children over real multicast, and the count in `pgm status`."""

from __future__ import annotations

import pytest

import pgm
from deploy.status.status import _children
from pgm.net.control.status_socket import snapshot_of
from pgm.topology.load import loads
from pgm.topology.plan import plan_node
from tests.net.support.elements import Tree, running
from tests.net.support.listening import until
from tests.net.support.places import Place, below_a_relay

RECEIVERS = 5


def _count(tree: Tree, node: str) -> dict[str, int]:
    rows = tree.core(node).status(tree.drivers[node].now_ns())
    return rows[0].children if rows else {}


@pytest.mark.rfc("POLL-13", "POLL-11", "POLL-04")
async def test_the_population_is_counted_and_shown(place: Place) -> None:
    """One relay below the source, five receivers below the relay."""
    topology: pgm.Topology = loads(below_a_relay(place, parameters='poll_ivl = "200ms", poll_bo_ivl = "40ms"'))
    desks = [f"desk-{number}" for number in range(1, RECEIVERS + 1)]
    async with running(topology, "relay", "source", *desks) as tree:
        await until(lambda: _count(tree, "source") == {"core": 1} and _count(tree, "relay") == {"floor": RECEIVERS})
        snapshot = snapshot_of(plan_node(topology, "relay"), tree.drivers["relay"], 0)
        assert _children(snapshot) == f"{RECEIVERS} on floor"
        assert snapshot["counters"]["polr_packets_in"] >= RECEIVERS
        assert tree.core("desk-1").counters.polr_packets >= 1
