"""Transmit windows as receivers see them.

Packets that left the window before their repair are reported lost, in order.
"""

import pytest

from pgm.core.effects import LossCause
from pgm.sim.faults import Faults
from pgm.sim.trees import TreeBuilder
from pgm.units import SECOND
from tests.sim.support.worlds import MS, finish, make_world, parameters, stream, traffic


def one_lan(**changes: object) -> TreeBuilder:
    tree = TreeBuilder(parameters(**changes))
    tree.source("source", "lan")
    for name in ("deaf", "well"):
        tree.receiver(name, "lan", "source")
    return tree


@pytest.mark.rfc("SRC-14", "SRC-15")
def test_windows_closed_by_application_lose_and_go_on():
    tree = one_lan(txw_adv_mode="application", txw_sqns=1000)
    world = make_world(tree, traffic(500, rate=1000, close_at_ns=4 * SECOND))
    # 50 messages pass while the receiver is deaf, and leave the window.
    Faults(world).deafen(["deaf"], SECOND + 200 * MS, 50 * MS)
    closed_ns = SECOND + 249 * MS
    node = world.nodes["source"]
    world.at(closed_ns, lambda: node.perform(world.core_of("source").close_window(closed_ns)))
    finish(world, may_lose={"deaf": {LossCause.WINDOW}})
    deaf, well = stream(world, "deaf"), stream(world, "well")
    assert well.is_complete
    assert 40 <= deaf.lost[LossCause.WINDOW] <= 50
    assert deaf.delivered_sqns + deaf.lost_sqns == 500


@pytest.mark.rfc("SRC-12", "SRC-13")
@pytest.mark.parametrize(("mode", "lost"), [("time", True), ("data", False)])
def test_windows_long_outage_costs_packets_by_time_not_by_data(mode, lost):
    """Section 16.2 serves receivers that want all data, 16.3 those that want it soon."""
    tree = one_lan(txw_adv_mode=mode, txw_secs=2 * SECOND, txw_adv_secs=500 * MS, stall_ivl=20 * SECOND)
    world = make_world(tree, traffic(500, rate=100, burst=1, close_at_ns=20 * SECOND))
    Faults(world).deafen(["deaf"], SECOND + 500 * MS, 4 * SECOND)
    finish(world, may_lose={"deaf": {LossCause.WINDOW}} if lost else {})
    deaf = stream(world, "deaf")
    assert (deaf.lost_sqns > 100) == lost
    assert deaf.delivered_sqns + deaf.lost_sqns == 500


@pytest.mark.rfc("SRC-13", "SRC-15")
@pytest.mark.parametrize("mode", ["time", "data"])
def test_an_idle_window_closes_and_receivers_are_told(mode):
    """The last loss before a long pause ends as lost, not as a gap for ever."""
    tree = one_lan(txw_adv_mode=mode, txw_secs=2 * SECOND, txw_adv_secs=500 * MS, txw_idle_ivl=2 * SECOND)
    world = make_world(tree, traffic(100, rate=1000, close_at_ns=30 * SECOND))
    outage = Faults(world)
    outage.deafen(["deaf"], SECOND + 50 * MS, 3 * SECOND)
    world.run_until(10 * SECOND)
    assert stream(world, "deaf").lost[LossCause.WINDOW] == stream(world, "deaf").lost_sqns >= 40
    assert stream(world, "deaf").is_accounted
    finish(world, may_lose={"deaf": {LossCause.WINDOW}})
    assert stream(world, "well").is_complete
