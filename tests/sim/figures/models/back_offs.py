"""NAKs for a packet that all receivers of a segment lost, with both distributions of the back-off.

With a relay, its NCF silences the others: c is the round trip to the relay. Without one, the parent is far away, and the
copies of NAKs for the group (`nak_group_copy`) silence the others: c is the way from receiver to receiver.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator

import attrs

from deploy.node.roles import build_core
from pgm.models.back_off import exponential_naks, uniform_naks
from pgm.sim.links import LinkSetup
from pgm.sim.trees import TreeBuilder
from pgm.sim.world import Wiring, World
from pgm.topology.node_plan import NodePlan
from pgm.units import MILLISECOND, SECOND
from tests.sim.figures.models.rows import Picture, Row, spaced
from tests.sim.support.worlds import parameters, traffic

BACK_OFF = 10 * MILLISECOND
SILENCE = 0.25  # c/T
_PERIOD = 40 * MILLISECOND  # between packets, of which every second one is lost
_FAR = 100 * MILLISECOND
# receivers, losses, distribution, whether a relay's NCF silences. A draw's deviation is 0.72 of the mean if exponential.
SEGMENTS = (
    (100, 40, "uniform", True),
    (100, 40, "uniform", False),
    (100, 400, "exponential", True),
    (100, 400, "exponential", False),
    (1000, 5, "uniform", True),
    (1000, 300, "exponential", True),
    (1000, 20, "exponential", False),
    (10_000, 2, "uniform", True),
    (10_000, 100, "exponential", True),
)


def naks_per_loss(receivers: int, losses: int, *, nak_bo: str, has_relay: bool, group: int, seed: int = 1) -> float:
    """Return the mean NAKs for a packet that all receivers lost. The packets after the losses reveal them."""
    shared = {"nak_bo_ivl": BACK_OFF, "nak_bo": nak_bo, "nak_bo_group": group, "nak_group_copy": not has_relay}
    tree = TreeBuilder(parameters(**shared, nak_rpt_ivl=4 * _FAR, nak_rdata_ivl=4 * _FAR, ihb_min=SECOND))
    tree.source("source", "core" if has_relay else "floor")
    parent = tree.aggregator("relay", "core", "floor", parents=("source",)) if has_relay else "source"
    tree.receiver("receiver", "floor", parent)
    silence = round(SILENCE * BACK_OFF)
    near = Wiring(ingress=LinkSetup(delay=silence // 2 if has_relay else silence))
    far = Wiring(ingress=LinkSetup(delay=_FAR))
    world = World(build_core, seed=seed)
    plans = tree.plans
    plans |= _copies(plans.pop("receiver"), receivers)
    for name, plan in plans.items():
        if name == "source":
            offered = traffic(2 * losses + 1, size=1000, rate=SECOND // _PERIOD, burst=1)
            world.add_node(plan, wiring=None if has_relay else far, traffic=offered)
        else:
            world.add_node(plan, wiring=near)
    for number in range(losses):
        at_ns = SECOND + (2 * number + 1) * _PERIOD
        world.at(at_ns - 10 * MILLISECOND, functools.partial(_deafen, world, True))
        world.at(at_ns + 10 * MILLISECOND, functools.partial(_deafen, world, False))
    world.run_until(SECOND + (2 * losses + 1) * _PERIOD + 4 * _FAR)
    heard = [node.counters[0] for node in world.receivers]
    assert all(one.missing_sqns == losses for one in heard)
    return sum(one.nak_packets for one in heard) / losses


def _copies(plan: NodePlan, count: int) -> dict[str, NodePlan]:
    """Return many receivers with the plan of one, without addresses: the world gives these."""
    segments = tuple(attrs.evolve(one, address=None) for one in plan.segments)
    return {f"receiver-{at}": attrs.evolve(plan, name=f"receiver-{at}", segments=segments) for at in range(count)}


def _deafen(world: World, is_deaf: bool) -> None:
    for node in world.receivers:
        for attachment in node.attachments:
            attachment.deafen(is_deaf)


def row(receivers: int, losses: int, *, nak_bo: str, has_relay: bool, group: int = 0) -> Row:
    """Return the row of one segment. `group` is the estimate of the exponential back-off; 0: the receivers."""
    group = group or receivers
    found = naks_per_loss(receivers, losses, nak_bo=nak_bo, has_relay=has_relay, group=group)
    is_uniform = nak_bo == "uniform"
    formula = uniform_naks(receivers, SILENCE) if is_uniform else exponential_naks(receivers, SILENCE, group)
    silent = "NCF of a relay" if has_relay else "copies of NAKs"
    estimate = "" if group == receivers else f", nak_bo_group = {group:,}"
    error = (0.17 / receivers**0.5 * 10 if is_uniform else 0.72) / losses**0.5
    cause = f"standard error {error:.0%}" if error > 0.02 else ""
    case = f"{receivers:,} receivers, {nak_bo}{estimate}, {losses} losses"
    return Row(case, f"NAKs a loss, {silent}", found, formula, cause, series=nak_bo, x=receivers)


def rows() -> Iterator[Row]:
    """Yield the rows of all segments."""
    for receivers, losses, nak_bo, has_relay in SEGMENTS:
        yield row(receivers, losses, nak_bo=nak_bo, has_relay=has_relay)


def picture() -> Picture:
    """Return the NAKs over the number of nodes that lack the packet."""
    numbers = spaced(1, 1e6)
    curves = {
        "uniform": [uniform_naks(one, SILENCE) for one in numbers],
        "exponential": [exponential_naks(one, SILENCE) for one in numbers],
    }
    return Picture(f"nodes that lack the packet, c/T = {SILENCE}", "NAKs", numbers, curves, is_logarithmic=True)
