"""Late joiners on drawn trees with drawn losses, caches, crashes and restarts: a campaign by seed.

python -m tests.sim.campaigns.run_seeds --kind late-join --seeds 200
"""

from __future__ import annotations

import random
from typing import Any

import attrs

from pgm.sim.faults import Faults
from pgm.sim.trees import TreeBuilder
from pgm.sim.world import World
from pgm.units import KIB, SECOND
from pgm.wire.control_packets import Nak
from pgm.wire.options import HeldHistory, find
from tests.sim.support.worlds import MS, Tap, lossy, make_world, parameters, stream, traffic

MESSAGES, RATE, SIZE = 1600, 200, 300
JOINS_FROM_S, CLOSES_S = 3, 10


@attrs.define
class Drawn:
    """Scenario of a seed."""

    tree: TreeBuilder
    elements: list[str]
    late: dict[str, int]  # when each late joiner starts
    loss: float


def wish(rng: random.Random) -> dict[str, Any]:
    """Draw the position at which a late joiner wants to begin."""
    return rng.choice(
        (
            {"join_from": "oldest"},
            {"join_from": "last", "join_sqns": rng.choice((1, 50, 500, 5000))},
            {"join_from": "last", "join_secs": rng.choice((1, 3, 60)) * SECOND},
            {"join_from": "sqn", "join_sqns": rng.choice((0, 100, 400, 10_000))},
        )
    )


def draw(rng: random.Random) -> Drawn:
    """Draw a chain of one to four elements, with late joiners anywhere.

    An element has a segment of its own, or sits on its parent's.
    """
    window = rng.choice((1, 4)) * SECOND
    common = parameters(txw_secs=window, txw_max_rte=2_500_000, fec_group=rng.choice((0, 0, 8)))
    tree = TreeBuilder(common)
    tree.source("source", "floor-0")
    above, floor = ["source"], 0
    elements, late = [], {}
    for index in range(rng.randint(1, 4)):
        name, is_repairer, is_relay = f"element-{index}", rng.random() < 0.5, rng.random() < 0.7
        seconds, octets = rng.choice((1, 3, 60)) * SECOND, rng.choice((256 * KIB, 1 << 30))
        own = attrs.evolve(common, cache_secs=seconds, cache_bytes=octets) if is_repairer else common
        downs = (f"floor-{floor + 1}",) if is_relay else ()
        (tree.repairer if is_repairer else tree.aggregator)(
            name, f"floor-{floor}", *downs, parents=tuple(above), parameters=own
        )
        elements.append(name)
        above = [name] if is_relay else [name, *above]
        floor += is_relay
        for number in range(rng.choice((0, 0, 1, 3))):
            joiner = f"late-{index}-{number}"
            tree.receiver(joiner, f"floor-{floor}", *above, parameters=attrs.evolve(common, **wish(rng)))
            late[joiner] = rng.choice((JOINS_FROM_S * SECOND, JOINS_FROM_S * SECOND + rng.randrange(3 * SECOND)))
    for number in range(rng.randint(1, 3)):
        joiner = f"late-end-{number}"
        tree.receiver(joiner, f"floor-{floor}", *above, parameters=attrs.evolve(common, **wish(rng)))
        late[joiner] = JOINS_FROM_S * SECOND + rng.randrange(SECOND)
    return Drawn(tree, elements, late, rng.choice((0, 0.01, 0.05)))


def run(seed: int) -> World:
    """Run one scenario. Raises `InvariantBroken`.

    Every joiner must account for all sqns from its beginning on. A node that knows an element must not request history of
    a source.
    """
    rng = random.Random(seed)
    drawn = draw(rng)
    history = Tap(lambda item: isinstance(item, Nak) and find(item.options, HeldHistory) is not None)
    wirings = {name: lossy(drawn.loss) for name in drawn.late}
    world = make_world(
        drawn.tree,
        traffic(MESSAGES, size=SIZE, rate=RATE, close_at_ns=CLOSES_S * SECOND),
        seed=seed,
        wirings=wirings,
        starts=drawn.late,
        more=(history,),
    )
    faults = Faults(world)
    for name in drawn.elements:
        if rng.random() < 0.3:
            faults.crash_and_restart(name, 2 * SECOND + rng.randrange(4 * SECOND), rng.randrange(1, 1000) * MS)
    world.run_until(CLOSES_S * SECOND + 30 * SECOND)
    plans = drawn.tree.plans
    sources = {segment.address for segment in plans["source"].segments}
    for _, node, _, to, nak in history.seen:
        if to in sources and (plans[node].keepers or plans[node].local_repairers):
            world.fail(node, f"asks the source for history: {nak}")
    for name in drawn.late:
        got = stream(world, name)
        if not got.is_accounted:
            world.fail(name, f"{got.delivered_sqns} delivered and {got.lost_sqns} lost from {got.first} on")
        is_parity = drawn.tree.plans[name].parameters.fec_group > 0  # whose short groups leave sqns out
        if got.next_sqn != MESSAGES and not (is_parity and got.next_sqn > MESSAGES):
            world.fail(name, f"ends at {got.next_sqn}")
    return world
