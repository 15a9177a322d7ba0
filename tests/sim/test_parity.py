"""Streams with parity in whole trees: everybody gets everything, whatever is lost."""

from __future__ import annotations

import pytest

from pgm.sim.trees import Tree
from pgm.wire.formats import PacketType
from tests.sim.worlds import finish, lossy, make_world, parameters, traffic

T = PacketType
MODES = {
    "on-demand": {"fec_group": 16},
    "proactive": {"fec_group": 16, "fec_proactive": 3, "fec_on_demand": False},
    "both": {"fec_group": 16, "fec_proactive": 2},
    "small": {"fec_group": 2, "fec_proactive": 1},
    "large": {"fec_group": 128},
}


def on_lan(receivers, **changes):
    tree = Tree(parameters(**changes))
    tree.source("source", "lan")
    for index in range(receivers):
        tree.receiver(f"receiver-{index}", "lan", "source")
    return tree


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("burst", [5, 200])
def test_everybody_gets_everything(mode, burst):
    world = make_world(
        on_lan(5, **MODES[mode]),
        traffic(600, size=200, burst=burst),
        wirings={"receiver": lossy(0.1), "source": lossy(0.05)},
    )
    finish(world)
    assert sum(node.core.counters.parity_sqns for node in world.receivers) > 50
