"""Sends of a packet and NAKs for it on one link, and on each link of trees."""

from __future__ import annotations

from collections.abc import Iterator

from pgm.impairments import Impairment
from pgm.models.sends import naks_with_suppression, naks_without_suppression, sends_per_packet
from pgm.sim.links import LinkSetup
from pgm.sim.trees import TreeBuilder
from pgm.sim.world import Wiring
from pgm.units import MICROSECOND, MILLISECOND
from tests.sim.figures.models.rows import Picture, Row, spaced
from tests.sim.figures.models.runs import run
from tests.sim.support.worlds import lossy, parameters

# receivers, loss, packets: fewer packets of more receivers give the same certainty
LINKS = (
    (1, 0.01, 200_000),
    (10, 0.01, 40_000),
    (100, 0.01, 2000),
    (1000, 0.01, 300),
    (10, 0.05, 8000),
    (30, 0.05, 3000),
)
UNSUPPRESSED = ((30, 0.05, 2000), (100, 0.01, 1500))


def flat(receivers: int, **changes: object) -> TreeBuilder:
    """Return a source with receivers on its segment."""
    tree = TreeBuilder(parameters(**changes))
    tree.source("source", "lan")
    for number in range(receivers):
        tree.receiver(f"receiver-{number}", "lan", "source")
    return tree


def link(receivers: int, loss: float, packets: int) -> Iterator[Row]:
    """Yield sends and NAKs of one link. A back-off of a hundred round trips suppresses nearly all further NAKs."""
    case = f"{receivers:,} receivers, {loss:.0%}"
    world, count = run(flat(receivers, nak_bo_ivl=20 * MILLISECOND), {"receiver": lossy(loss)}, packets)
    sends = count.packets["lan"] / packets
    yield Row(case, "sends", sends, sends_per_packet(loss, receivers), series=f"loss {loss:.0%}", x=receivers)
    naks = world.nodes["source"].total("nak_sqns_in") / packets
    cause = "finite back-off" if receivers >= 1000 else ""
    yield Row(case, "NAKs", naks, naks_with_suppression(loss, receivers), cause)


def unsuppressed(receivers: int, loss: float, packets: int) -> Row:
    """Return the NAKs of a link where no back-off lasts until a NAK is heard."""
    slow = Wiring(ingress=LinkSetup(delay=10 * MILLISECOND, impairment=Impairment(loss=loss)))
    tree = flat(receivers, nak_bo_ivl=100 * MICROSECOND)
    world, _ = run(tree, {"receiver": slow}, packets)
    naks = world.nodes["source"].total("nak_sqns_in") / packets
    case = f"{receivers:,} receivers, {loss:.0%}"
    return Row(case, "NAKs without suppression", naks, naks_without_suppression(loss, receivers))


def rows() -> Iterator[Row]:
    """Yield the rows of one link."""
    for receivers, loss, packets in LINKS:
        yield from link(receivers, loss, packets)
    for receivers, loss, packets in UNSUPPRESSED:
        yield unsuppressed(receivers, loss, packets)


def picture() -> Picture:
    """Return the sends over the number of receivers."""
    numbers = spaced(1, 1e6)
    curves = {f"loss {loss:.0%}": [sends_per_packet(loss, one) for one in numbers] for loss in (0.01, 0.05)}
    return Picture("receivers", "sends of a packet", numbers, curves)
