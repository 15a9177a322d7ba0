"""Source at full rate, and a receiver with a slower line.

`flow = "yield"` finds the rate of that line.
"""

from __future__ import annotations

from pgm.sim.checks.completion import settle
from pgm.sim.links import LinkSetup
from pgm.sim.trees import TreeBuilder
from pgm.sim.world import Wiring, World
from pgm.topology.load import loads
from pgm.topology.plan import plan_node
from pgm.units import KIB, SECOND
from tests.sim.support.worlds import finish, lossy, make_world, parameters, streams, traffic

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


SLOW = Wiring(ingress=LinkSetup(rate=LINE, queue=512 * KIB))


def world_of(flow: str, wiring: Wiring = SLOW, messages: int = MESSAGES) -> World:
    """Return a world with two receivers, one of them behind the given wiring.

    The default is a line with a tenth of the rate.
    """
    chosen = plan_node(loads(TOPOLOGY.format(flow=flow)), "source").parameters
    tree = TreeBuilder(
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
    return make_world(tree, traffic(messages, size=1400, rate=0, burst=100), wirings={"slow": wiring})


def test_a_slow_line_slows_a_source_that_yields():
    world = world_of('flow = "yield"')
    finish(world)
    assert all(not stream.lost for stream in streams(world))


def test_a_slow_line_is_filled_and_not_crept_along():
    """The source uses the rate known when the window had to wait.

    28 MB take 5 s at 10 MB/s, repairs included.
    """
    world = world_of('flow = "yield"')
    world.run_until(6 * SECOND)
    [source] = world.sources
    assert world.core_of(source.name).status(world.now_ns)[0].lead > 0.95 * MESSAGES


def test_random_losses_hold_no_full_window():
    """With one percent of loss the oldest half of the window has no losses.

    Only packets sent a moment ago wait for repairs.
    """
    leads = []
    for loss in (0.0, 0.01):
        world = world_of('flow = "yield"', lossy(loss), messages=200_000)
        world.run_until(3 * SECOND)
        [source] = world.sources
        leads.append(world.core_of(source.name).status(world.now_ns)[0].lead)
        assert world.core_of(source.name).counters.rate_cuts == 0
    # A repair lost twice still holds the window, which covers only 84 ms.
    assert leads[1] > 0.75 * leads[0] > 100_000


def test_flat_out_without_yield_only_the_slow_receiver_loses():
    world = world_of("")
    while world.now_ns < 10 * SECOND:
        world.run_until(world.now_ns + SECOND)
    settle(world, within_ns=60 * SECOND, quiet_ns=3 * SECOND)
    lost = {node.name: sum(one.lost_sqns for one in node.application.all_streams) for node in world.receivers}
    assert lost["fast"] == 0
    assert lost["slow"] > MESSAGES // 10
