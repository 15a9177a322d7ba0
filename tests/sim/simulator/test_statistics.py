"""Counts by session and by child add up to the nodes' counts."""

from __future__ import annotations

import pytest

from pgm.core.session.session_counters import SESSION_COUNTERS
from pgm.core.status import SessionStatus
from pgm.sim.trees import TreeBuilder
from pgm.sim.world import World
from pgm.units import SECOND
from pgm.wire.formats import tsi_text
from tests.sim.support.worlds import finish, lossy, make_world, parameters, stream, traffic

MESSAGES = {"source-0": 400, "source-1": 700, "source-2": 1000}


@pytest.fixture(scope="module")
def world() -> World:
    """Return a world of three sources, an aggregator, a repairer and two subnets.

    The receivers lose 5 %.
    """
    tree = TreeBuilder(parameters())
    for name in MESSAGES:
        tree.source(name, "core")
    tree.aggregator("relay", "core", "floor")
    tree.repairer("repairer", "floor", parents=("relay",))
    tree.repairer("carrier", "core", "hall")
    for index in range(4):
        tree.receiver(f"receiver-{index}", *(("floor", "repairer", "relay") if index % 2 else ("hall", "carrier")))
    offered = {name: traffic(messages=count, close_at_ns=3 * SECOND) for name, count in MESSAGES.items()}
    made = make_world(tree, offered, wirings={"receiver": lossy(0.05), "relay": lossy(0.02), "carrier": lossy(0.02)})
    finish(made)
    return made


def rows(world: World, name: str) -> list[SessionStatus]:
    core = world.nodes[name].core
    assert core is not None
    return core.status(world.now_ns)


@pytest.mark.parametrize("name", ["relay", "repairer", "carrier", "receiver-0", "receiver-1"])
def test_the_shares_of_the_sessions_are_the_whole(world: World, name: str) -> None:
    found = rows(world, name)
    assert len(found) == len(MESSAGES)
    for counter in SESSION_COUNTERS:
        assert sum(row.counts.get(counter, 0) for row in found) == world.nodes[name].total(counter), counter
    assert all(row.counts.get("missing_sqns", 0) > 0 for row in found if name != "relay")


def test_each_source_has_its_own_share(world: World) -> None:
    for name in ("receiver-0", "receiver-3"):
        by_tsi = {row.tsi: row.counts for row in rows(world, name)}
        for source, count in MESSAGES.items():
            one = stream(world, name, source)
            counts = by_tsi[tsi_text(one.tsi)]
            assert counts["delivered_packets"] == counts["received_packets"] == count
            assert counts["missing_sqns"] == counts.get("repaired_sqns", 0) + counts.get("late_sqns", 0)


def test_telemetry_names_the_asking_child(world: World) -> None:
    address = {world.nodes[name].plan.segments[0].address for name in ("receiver-0", "receiver-2")}
    for row in rows(world, "carrier"):
        assert {one.address for one in row.askers} == address
        assert sum(one.nak_packets for one in row.askers) == row.counts["nak_packets_in"]
        assert sum(one.nak_sqns for one in row.askers) == row.counts["nak_sqns_in"]
        assert [one.nak_sqns for one in row.askers] == sorted((one.nak_sqns for one in row.askers), reverse=True)
