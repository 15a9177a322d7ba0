"""Acknowledged streams on drawn trees with drawn faults: a campaign by seed.

python -m tests.sim.campaigns.run_seeds --kind acked --seeds 200
"""

from __future__ import annotations

import random

import attrs

from pgm.sim.faults import Faults
from pgm.sim.trees import TreeBuilder
from pgm.sim.world import World
from pgm.units import SECOND
from tests.sim.support.acked import Held, window_of
from tests.sim.support.worlds import MS, finish, lossy, make_world, parameters, traffic

MESSAGES = 3000
EXPIRY = SECOND


@attrs.define
class Drawn:
    """Scenario of a seed."""

    tree: TreeBuilder
    elements: list[str]
    receivers: list[str]
    loss: float


def draw(rng: random.Random) -> Drawn:
    """Draw a tree of two or three tiers.

    Each element has another parent to use.
    """
    settings = {"ack_window": rng.choice([64, 256, 2048]), "ack_expiry": EXPIRY, "ack_stall_ivl": 2 * SECOND}
    tree = TreeBuilder(parameters(**settings, fin_quiet_ivl=2 * SECOND, ack_ivl=rng.choice([5, 50]) * MS), flow="acked")
    tree.source("source", "core")
    elements, receivers = [], []
    for floor in range(rng.randint(1, 3)):
        make = tree.repairer if rng.random() < 0.5 else tree.aggregator
        make(f"relay-{floor}", "core", f"floor-{floor}", parents=("source",))
        above: tuple[str, ...] = (f"relay-{floor}",)
        for index in range(rng.randint(0, 2)):
            name = f"local-{floor}-{index}"
            make = tree.repairer if rng.random() < 0.7 else tree.aggregator
            make(name, f"floor-{floor}", parents=above[-1:])
            elements.append(name)
            above = (name, *above)
        for index in range(rng.randint(1, 4)):
            name = f"receiver-{floor}-{index}"
            tree.receiver(name, f"floor-{floor}", *above)
            receivers.append(name)
    return Drawn(tree, elements, receivers, rng.choice([0, 0.01, 0.05]))


def run(seed: int) -> World:
    """Run one scenario. Raises `InvariantBroken`.

    Every live receiver must get all data. No data may leave the window before that.
    """
    rng = random.Random(f"acked:{seed}")
    drawn = draw(rng)
    excused: set[str] = set()
    held = Held()
    offered = traffic(MESSAGES, size=100, rate=rng.choice([500, 2000]), burst=rng.choice([1, 20]))
    world = make_world(drawn.tree, offered, seed=seed, wirings={"receiver": lossy(drawn.loss)}, more=(held,))
    ends_ns = SECOND + MESSAGES * SECOND // offered.rate
    is_forgotten = False  # goodbyes may be lost with the element that heard them
    faults = Faults(world)
    for name in drawn.elements:
        at_ns = rng.randint(SECOND, 3 * SECOND)
        kind = rng.choice(["crash", "restart", "restart", "none"])
        is_forgotten |= kind != "none" and at_ns >= ends_ns
        if kind == "crash":
            faults.crash(name, at_ns)
        elif kind == "restart":
            faults.crash_and_restart(name, at_ns, rng.randint(50, 2000) * MS)
    for name in drawn.receivers:
        if rng.random() < 0.2:
            excused.add(name)
            faults.pause(name, rng.randint(SECOND, 3 * SECOND), rng.randint(100, 2500) * MS)
        elif rng.random() < 0.1:
            excused.add(name)
            faults.crash_and_restart(name, rng.randint(SECOND, 3 * SECOND), rng.randint(50, 1000) * MS)
    held.excused |= excused
    world.run_until(1500 * MS)
    window = window_of(world)
    finish(world)
    # A receiver that was stopped holds up what an element says of the others, and they have said goodbye to that element.
    if window.stable != MESSAGES - 1 and not (is_forgotten and excused):
        world.fail("source", f"{window.stable} is stable of {MESSAGES}")
    return world
