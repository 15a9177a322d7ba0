"""Repairers of one segment ask each other before anything above."""

from __future__ import annotations

import pytest

from pgm.sim.faults import Faults
from pgm.sim.trees import TreeBuilder
from pgm.units import SECOND
from pgm.wire.formats import PacketType
from tests.sim.support.worlds import MS, Tap, finish, is_a, lossy, make_world, parameters, traffic

PACKETS = 4000
LOSS = 0.05
OFFERED = traffic(PACKETS, size=1000, rate=2000, burst=20)


def segment_of(repairers: int, *, has_relay: bool = False, **changes: object) -> TreeBuilder:
    """Return a tree with some on-LAN repairers and two receivers, below the source or a relay."""
    tree = TreeBuilder(parameters(**changes))
    names = tuple(f"repairer-{number}" for number in range(repairers))
    top = tree.source("source", "core" if has_relay else "lan")
    if has_relay:
        top = tree.aggregator("relay", "core", "lan", parents=("source",), repairers=names)
    for name in names:
        tree.repairer(name, "lan", parents=(top,))
    for number in range(2):
        tree.receiver(f"receiver-{number}", "lan", *names, top)
    return tree


@pytest.mark.parametrize("seed", range(3))
def test_siblings_leave_the_square_of_the_loss_to_the_source(seed: int) -> None:
    """Two repairers lose independently: the source repairs what both lack. Alone, each left its whole loss to it."""
    tree = segment_of(2)
    world = make_world(tree, OFFERED, seed=seed, wirings=dict.fromkeys(("repairer", "receiver"), lossy(LOSS)))
    finish(world)
    asked = world.nodes["source"].total("nak_sqns_in")
    both = LOSS**2 * PACKETS
    # Requests and repairs are lost as well, with the same share. Three deviations of the number beside it.
    assert 0 < asked <= both * (1 + 4 * LOSS) + 3 * both**0.5


def test_siblings_below_a_relay_leave_nothing_to_the_source() -> None:
    tree = segment_of(2, has_relay=True)
    world = make_world(tree, OFFERED, wirings=dict.fromkeys(("repairer", "receiver"), lossy(LOSS)))
    finish(world)
    asked = sum(world.nodes[f"repairer-{number}"].total("nak_sqns") for number in range(2))
    beside = sum(world.nodes[f"repairer-{number}"].total("sibling_sqns") for number in range(2))
    assert world.nodes["source"].total("nak_sqns_in") == 0
    assert beside > 0.9 * asked


def test_siblings_that_lack_the_same_ask_above_at_once() -> None:
    """Each sibling's request tells the other that it lacks the packets: both leave each other after one request."""
    tree = segment_of(2)
    world = make_world(tree, traffic(close_at_ns=2 * SECOND))
    tap = Tap(is_a(PacketType.NAK))
    world.add_checker(tap)
    Faults(world).deafen(["repairer-0", "repairer-1", "receiver-0"], SECOND + 200 * MS, 20 * MS)
    finish(world)
    beside = [
        one for name in ("repairer-0", "repairer-1") for one in tap.by(name) if one[3] != tree.address("source", "lan")
    ]
    assert 0 < len(beside) <= 2
    assert world.nodes["source"].total("nak_sqns_in") > 0
    assert world.log.last_delivery_ns < SECOND + 700 * MS


def test_siblings_silent_one_is_left_after_a_few_requests() -> None:
    """A sibling that has failed costs some requests one timeout each, and is then tried now and then."""
    tree = segment_of(2)
    world = make_world(tree, OFFERED, wirings=dict.fromkeys(("repairer", "receiver"), lossy(LOSS)))
    Faults(world).crash("repairer-1", SECOND + 500 * MS)
    finish(world)
    repairer = world.nodes["repairer-0"]
    assert 0 < repairer.total("sibling_sqns") < 0.7 * repairer.total("nak_sqns")
