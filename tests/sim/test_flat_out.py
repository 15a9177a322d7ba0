"""A source told to run flat out, and a receiver whose line is slower: `flow = "yield"` finds the rate that it bears."""

from __future__ import annotations

from pgm.sim.links import LinkSetup
from pgm.sim.quiet import settle
from pgm.sim.trees import Tree
from pgm.sim.world import Wiring, World
from pgm.topology.load import loads
from pgm.topology.plan import plan_node
from pgm.units import KIB, SECOND

from .worlds import finish, make_world, parameters, streams, traffic

LINE = 10_000_000  # octets a second
MESSAGES = 20_000
TOPOLOGY = """
version = 1
name = "flat-out"
[streams.s]
data_port = 7500
rate = "100MB/s"
window = "8MiB"
{flow}
[segments.lan]
group = "239.192.77.1"
interface = "127.0.77.0/24"
[nodes.source]
role = "source"
segment = "lan"
address = "127.0.77.1"
streams = ["s"]
"""


def world_of(flow: str) -> World:
    """Two receivers, one behind a line that bears a tenth of the rate."""
    chosen = plan_node(loads(TOPOLOGY.format(flow=flow)), "source").parameters
    tree = Tree(
        parameters(
            txw_max_rte=chosen.txw_max_rte,
            txw_min_rte=chosen.txw_min_rte,
            txw_yield_ivl=chosen.txw_yield_ivl,
            txw_adv_mode=chosen.txw_adv_mode,
            txw_adv_ivl=chosen.txw_adv_ivl,
            txw_adv_secs=chosen.txw_adv_secs,
            txw_bytes=chosen.txw_bytes,
        )
    )
    tree.source("source", "lan")
    for name in ("fast", "slow"):
        tree.receiver(name, "lan", "source")
    line = Wiring(ingress=LinkSetup(rate=LINE, queue=512 * KIB))
    return make_world(tree, traffic(MESSAGES, size=1400, rate=0, burst=100), wirings={"slow": line})


def test_a_slow_line_slows_a_source_that_yields():
    world = world_of('flow = "yield"')
    finish(world)
    assert all(not stream.lost for stream in streams(world))


def test_without_it_the_slow_one_loses_and_is_told_so_and_the_fast_one_has_everything():
    world = world_of("")
    while world.now_ns < 10 * SECOND:
        world.run_until(world.now_ns + SECOND)
    settle(world, within_ns=60 * SECOND, quiet_ns=3 * SECOND)
    lost = {node.name: sum(one.lost_sqns for one in node.application.all_streams) for node in world.receivers}
    assert lost["fast"] == 0
    assert lost["slow"] > MESSAGES // 10
