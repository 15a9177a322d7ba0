"""Changes of the topology file while a stream flows: nodes come, go and change in place, and nobody loses a packet."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping

from pgm.core.element.element import ElementCore
from pgm.core.receiver.receiver import ReceiverCore
from pgm.core.source.source import SourceCore
from pgm.net.core_factory import neighbours_of
from pgm.sim.checks.invariants import cheap_checkers
from pgm.sim.world import CoreFactory, World
from pgm.topology.changes.steps import Action, plan_steps
from pgm.topology.load import loads
from pgm.topology.node_plan import NodePlan
from pgm.topology.plan import plan_all
from pgm.units import SECOND
from tests.net.campaigns.apply_changes import changes, file_of
from tests.net.support.places import Place
from tests.sim.support.signed import proving
from tests.sim.support.worlds import MS, build_core, traffic
from tests.unit.topology.changes.trees import DEMO, with_second_repairer

PLACE = Place(1)
RATE = 100  # messages a second
PAUSE_NS = SECOND  # between two changes
Plans = Mapping[str, NodePlan]


def take(world: World, plan: NodePlan) -> None:
    """Bring a running node to another plan, as the node does with its file."""
    core = world.core_of(plan.name)
    assert isinstance(core, (SourceCore, ReceiverCore, ElementCore))
    core.change(neighbours_of(plan, plan.streams), plan.parameters, world.now_ns)
    if isinstance(core, SourceCore):
        core.set_rate(plan.parameters.txw_max_rte, world.now_ns)
    world.nodes[plan.name].rearm()


def change(world: World, old: Plans, new: Plans) -> None:
    """Do the steps between two files in their order, at one instant."""
    for step in plan_steps(old, new).steps:
        if step.action is Action.START:
            world.add_node(new[step.node], starts_at_ns=world.now_ns)
            world.run_until(world.now_ns)
        elif step.action is Action.STOP:
            world.nodes[step.node].stop()
        else:
            assert step.action is Action.CHANGE, step
            take(world, new[step.node])


def run_changes(files: Iterator[str], factory: CoreFactory = build_core) -> World:
    """Run a tree, and change it every `PAUSE_NS`. Return the world at rest."""
    texts = list(files)
    plans = [plan_all(loads(text)) for text in texts]
    world = World(factory, seed=1)
    for checker in cheap_checkers():
        world.add_checker(checker)
    messages = RATE * (len(texts) + 1) * PAUSE_NS // SECOND
    for name, plan in plans[0].items():
        world.add_node(plan, traffic=traffic(messages, rate=RATE) if name == "source" else None)
    for number, (old, new) in enumerate(itertools.pairwise(plans), 1):
        world.run_until(SECOND + number * PAUSE_NS)
        change(world, old, new)
    world.run_until_quiet(world.now_ns + 120 * SECOND, quiet_ns=10 * SECOND)
    for checker in world.checkers:
        checker.finish()
    return world


def delivered(world: World, node: str) -> int:
    return world.nodes[node].total("delivered_packets")


def test_twelve_changes_under_loss_lose_nothing() -> None:
    first = file_of(PLACE, "8Mbit/s", "3%")
    files = [first, *(text for _, text in changes(PLACE, first, "8Mbit/s"))]
    world = run_changes(iter(files))
    assert delivered(world, "desk-1") == world.nodes["source"].total("odata_packets")
    assert world.nodes["desk-1"].total("lost_sqns") == 0
    assert world.nodes["second"].total("rdata_packets") > 0
    assert world.nodes["desk-1"].total("repaired_sqns") > 20


def test_receiver_of_a_signed_stream_asks_new_parents_for_proofs() -> None:
    """The stream and its proofs are sessions with parents of their own. Both move to the preferred parent."""
    first = file_of(PLACE, "8Mbit/s", "5%")
    (_, second), (_, both) = itertools.islice(changes(PLACE, first, "8Mbit/s"), 2)
    world = run_changes(iter([first, second, both]), proving)
    assert delivered(world, "desk-1") == world.nodes["source"].total("odata_packets")
    assert world.nodes["desk-1"].total("lost_sqns") == 0
    assert world.nodes["desk-1"].total("parent_changes") == 2


def test_tiers_take_and_leave_a_repairer_without_loss() -> None:
    """Aggregators, relays and receivers of all tiers change, there and back."""
    faster = with_second_repairer(DEMO).replace("36Mbit/s", "72Mbit/s").replace('rtt = "5ms"', 'rtt = "7ms"')
    world = run_changes(iter([DEMO, with_second_repairer(DEMO), faster, with_second_repairer(DEMO), DEMO]))
    sent = world.nodes["source"].total("odata_packets")
    receivers = [node.name for node in world.receivers]
    assert {name: delivered(world, name) for name in receivers} == dict.fromkeys(receivers, sent)


def test_receiver_asks_a_new_parent_at_once() -> None:
    world = World(build_core, seed=1)
    plans = plan_all(loads(with_second_repairer(DEMO)))
    for name, plan in plans.items():
        world.add_node(plan, traffic=traffic(RATE * 8, rate=RATE) if name == "source" else None)
    world.run_until(3 * SECOND)
    only = with_second_repairer(DEMO).replace('"east-aggregator", "east-repairer", "east-second"', '"east-second"')
    take(world, plan_all(loads(only))["east-1"])
    world.run_until(world.now_ns + 100 * MS)
    (row,) = world.core_of("east-1").status(world.now_ns)
    assert row.parent == "127.0.1.3"
