"""Parents that count their children over real multicast, and where the operator sees it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import trio

import pgm
from deploy.status import _children
from pgm.net.status import snapshot_of
from pgm.topology.load import loads
from pgm.topology.plan import plan_node
from tests.net.elements import Tree, running
from tests.net.places import Place

RECEIVERS = 5


def _topology(place: Place) -> str:
    desks = "".join(
        f"""
[nodes.desk-{index}]
role = "receiver"
segment = "floor"
address = "{place.address(10 + index)}"
parents = ["relay"]
"""
        for index in range(RECEIVERS)
    )
    return f"""
version = 1
name = "polls"
[parameters]
poll_ivl = "200ms"
poll_bo_ivl = "40ms"
fin_quiet_ivl = "50ms"
[streams.s]
data_port = 7500
{place.segment("core", 0)}
{place.segment("floor", 1)}
[nodes.source]
role = "source"
segment = "core"
address = "{place.address(1)}"
streams = ["s"]
[nodes.relay]
role = "aggregator"
upstream = {{ segment = "core", address = "{place.address(2)}" }}
downstream = [{{ segment = "floor", address = "{place.address(3)}" }}]
parents = ["source"]
{desks}"""


async def _until(holds: Callable[[], bool]) -> None:
    with trio.fail_after(20):
        while not holds():  # noqa: ASYNC110 - what counts tells nobody
            await trio.sleep(0.02)


def _count(tree: Tree, node: str) -> dict[str, int]:
    rows = tree.core(node).status(tree.drivers[node].now_ns())
    return rows[0].children if rows else {}


@pytest.mark.rfc("POLL-13", "POLL-11", "POLL-04")
async def test_the_population_is_counted_and_shown(place: Place) -> None:
    """One relay below the source, five receivers below the relay."""
    topology: pgm.Topology = loads(_topology(place))
    desks = [f"desk-{index}" for index in range(RECEIVERS)]
    async with running(topology, "relay", "source", *desks) as tree:
        await _until(lambda: _count(tree, "source") == {"core": 1} and _count(tree, "relay") == {"floor": RECEIVERS})
        snapshot = snapshot_of(plan_node(topology, "relay"), tree.drivers["relay"], 0)
        assert _children(snapshot) == f"{RECEIVERS} on floor"
        assert snapshot["counters"]["polr_packets_in"] >= RECEIVERS
        assert tree.core("desk-0").counters.polr_packets >= 1
