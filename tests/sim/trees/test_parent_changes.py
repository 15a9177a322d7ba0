"""Changes of parents: a parent that is alive is kept although packets are lost, and a dead one is left in time."""

import pytest

from pgm.sim.checks.invariants import cheap_checkers
from pgm.sim.faults import Faults
from pgm.sim.trees import TreeBuilder
from pgm.sim.world import World
from pgm.units import SECOND
from tests.sim.support.worlds import MS, build_core, lossy, parameters, traffic

RATE, MINUTES = 25, 10
LONG_RATE = 12  # messages a second in the test of ten minutes


def tree_of(layout: str) -> TreeBuilder:
    """Return a tree whose receivers, and whose aggregator if it has one, have two parents."""
    tree = TreeBuilder(parameters(relay_cache_ivl=0))  # an aggregator's own requests are what is counted
    tree.source("source", "core")
    if layout == "on-lan":
        tree.repairer("repairer", "core", parents=("source",))
        tree.receiver("receiver-0", "core", "repairer", "source")
        return tree
    tree.aggregator("aggregator", "core", "floor", parents=("source",), repairers=("repairer",))
    tree.repairer("repairer", "floor", parents=("aggregator",))
    tree.receiver("receiver-0", "floor", "aggregator", "repairer")
    return tree


def world_of(layout: str, seed: int, seconds: int, rate: int = RATE) -> World:
    """Return a world in which every node loses 5 % of what it would receive."""
    world = World(build_core, seed=seed)
    for checker in cheap_checkers():
        world.add_checker(checker)
    for name, plan in tree_of(layout).plans.items():
        offered = traffic(seconds * rate, rate=rate, burst=1) if name == "source" else None
        world.add_node(plan, wiring=lossy(0.05), traffic=offered)
    return world


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1])
@pytest.mark.parametrize("layout", ["on-lan", "aggregator"])
def test_parents_five_percent_loss_for_ten_minutes_no_change(layout, seed):
    world = world_of(layout, seed, MINUTES * 60, LONG_RATE)
    world.run_until((MINUTES * 60 + 1) * SECOND)
    assert sum(node.total("nak_packets") for node in world.receivers) > MINUTES * 30
    assert {name: node.total("parent_changes") for name, node in world.nodes.items()} == dict.fromkeys(world.nodes, 0)
    assert not [notice for _, _, notice in world.log.notices if notice.code == "parent-changed"]


@pytest.mark.parametrize(("layout", "asker"), [("on-lan", "receiver-0"), ("aggregator", "aggregator")])
def test_parents_dead_parent_is_left_before_a_window_passes(layout, asker):
    """Waits for a parent that is silent do not grow while the stream goes on."""
    world = world_of(layout, 1, 30)
    died_ns, window_ns = 10 * SECOND, parameters().txw_secs
    Faults(world).crash("repairer", died_ns)
    while not world.nodes[asker].total("parent_changes"):
        world.run_until(world.now_ns + 100 * MS)
        assert world.now_ns < died_ns + window_ns
    assert world.now_ns > died_ns


def test_parents_naks_because_of_a_dead_parent_are_not_excessive():
    """A relay is down for 12 s. Its receiver then requests a backlog, and loses a tenth all the time."""
    soon = {"excess_nak_window_ivl": SECOND, "excess_nak_check_ivl": 3 * SECOND, "excess_nak_min_sqns": 100}
    tree = TreeBuilder(parameters(**soon))
    tree.source("source", "core")
    tree.aggregator("aggregator", "core", "floor", parents=("source",))
    tree.receiver("receiver-0", "floor", "aggregator")
    world = World(build_core, seed=1)
    for name, plan in tree.plans.items():
        offered = traffic(25 * 500, rate=500, burst=1) if name == "source" else None
        world.add_node(plan, wiring=lossy(0.1 if name == "receiver-0" else 0), traffic=offered)
    Faults(world).crash("aggregator", 5 * SECOND)
    Faults(world).restart("aggregator", 17 * SECOND)
    world.run_until(27 * SECOND)
    assert world.nodes["receiver-0"].total("nak_sqns") > 1000
    assert {notice.code for _, _, notice in world.log.notices if "excess" in notice.code} == set()
