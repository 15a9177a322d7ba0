"""Window in octets that is shorter than the repairs after a stop.

The source waits a limited time for requested packets.
"""

from __future__ import annotations

import pytest

from pgm.sim.faults import Faults
from pgm.sim.links import LinkSetup
from pgm.sim.trees import TreeBuilder
from pgm.sim.world import Wiring, World
from pgm.units import SECOND
from tests.sim.support.worlds import MS, make_world, parameters, streams, traffic

RATE = 20_000_000  # octets a second
WINDOW_S = 0.25
SIZE = 1424
MESSAGES = 10_000
SECONDS = MESSAGES * (SIZE + 24) / RATE / 0.75  # duration while repairs use their full share
FROM_NS = SECOND + 350 * MS  # when the window is full


def world_of(share: float, **wirings: Wiring) -> World:
    """Return a world with three receivers of a source at full rate."""
    tree = TreeBuilder(parameters(txw_max_rte=RATE, txw_bytes=int(WINDOW_S * RATE), txw_hold_share=share))
    tree.source("source", "lan")
    for name in ("stops", "one", "other"):
        tree.receiver(name, "lan", "source")
    return make_world(tree, traffic(MESSAGES, size=SIZE, rate=0, burst=100), wirings=wirings)


def seconds_to_send(world: World) -> float:
    world.run_until(SECOND)
    source = world.nodes["source"]
    while source.total("odata_packets") < MESSAGES:
        world.run_until(world.now_ns + 10 * MS)
    return world.now_ns / SECOND - 1


def lost(world: World) -> dict[str, int]:
    world.run_until(world.now_ns + 10 * SECOND)
    assert all(one.is_accounted for one in streams(world))
    return {node.name: sum(one.lost_sqns for one in node.application.all_streams) for node in world.receivers}


@pytest.mark.parametrize(("share", "wants"), [(0.0, True), (1.0, False)])
def test_window_hold_waits_for_a_stopped_receivers_repairs(share, wants):
    world = world_of(share)
    Faults(world).deafen(["stops"], FROM_NS, 100 * MS)
    seconds = seconds_to_send(world)
    missed = lost(world)
    assert missed.pop("stops") > 0 if wants else missed.pop("stops") == 0
    assert missed == {"one": 0, "other": 0}
    assert seconds < 1.05 * SECONDS
    assert bool(world.nodes["source"].total("window_holds")) is not wants


def test_window_hold_slow_receiver_costs_at_most_half_the_rate():
    """The line carries a tenth of the rate, so some packet is always requested."""
    world = world_of(1.0, stops=Wiring(ingress=LinkSetup(rate=RATE // 10, queue=RATE // 200)))
    seconds = seconds_to_send(world)
    missed = lost(world)
    assert missed.pop("stops") > MESSAGES // 10
    assert missed == {"one": 0, "other": 0}
    assert seconds < 2 * SECONDS
    assert world.nodes["source"].total("window_holds") > 0
