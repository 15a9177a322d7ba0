"""Repairs after the outage of receivers: by unicast for one, by multicast for several, and complete."""

from __future__ import annotations

import attrs
import pytest

from pgm.core.segment import Channel
from pgm.sim.faults import Faults
from pgm.sim.network import Station
from pgm.sim.trees import TreeBuilder
from pgm.sim.world import World
from pgm.units import SECOND
from pgm.wire.control_packets import Nak
from pgm.wire.formats import Nla, PacketType
from pgm.wire.options import ForAsker, find
from pgm.wire.train import Train
from tests.sim.support.worlds import Tap, finish, lossy, make_world, parameters, stream, traffic

RATE, DESKS, OUTAGE_S = 250, ("desk-1", "desk-2", "desk-3"), 4
LOST = RATE * OUTAGE_S


def after_outage(*down: str, parent: str = "source", loss: float = 0.0, **changes: object) -> tuple[World, Tap]:
    """Run a tree in which some receivers are cut off, and return the world and the NCFs."""
    tree = TreeBuilder(parameters(txw_secs=20 * SECOND, **changes))
    tree.source("source", "core")
    floor = "floor" if parent == "relay" else "core"
    if parent == "relay":
        tree.aggregator("relay", "core", "floor", parents=("source",))
    elif parent == "repairer":
        tree.repairer("repairer", "core", parents=("source",))
    for desk in DESKS:
        tree.receiver(desk, floor, parent)
    ncfs = Tap(lambda item: isinstance(item, Nak) and item.kind is PacketType.NCF)
    world = make_world(tree, traffic(10 * RATE, size=300, rate=RATE), wirings={"desk": lossy(loss)}, more=(ncfs,))
    for desk in down:
        Faults(world).partition(desk, 4 * SECOND, OUTAGE_S * SECOND)
    finish(world, within_s=60)
    assert all(stream(world, desk).is_complete and not stream(world, desk).lost for desk in DESKS)
    return world, ncfs


def duplicates(world: World, desk: str) -> int:
    return world.nodes[desk].counters[0].duplicate_packets


@pytest.mark.parametrize(
    ("parent", "changes"),
    [("source", {}), ("repairer", {}), ("relay", {"relay_cache_ivl": 20 * SECOND})],
    ids=["source", "repairer", "relay"],
)
def test_outage_of_one_receiver_leaves_its_neighbours_alone(parent: str, changes: dict[str, object]) -> None:
    world, ncfs = after_outage("desk-1", parent=parent, **changes)
    counters = world.nodes[parent].counters[0]
    assert counters.unicast_repair_sqns == pytest.approx(LOST, abs=10)
    assert [duplicates(world, desk) for desk in DESKS] == [0, 0, 0]
    assert {to for _, _, _, to, _ in ncfs.by(parent)} == {None}, "RFC 3208: an NCF is multicast"


def test_outage_with_losses_costs_neighbours_only_their_losses() -> None:
    world, _ = after_outage("desk-1", loss=0.02)
    everything, _ = after_outage("desk-1", loss=0.02, unicast_repair_min_sqns=0)
    assert duplicates(everything, "desk-2") > LOST > 5 * duplicates(world, "desk-2")


@pytest.mark.parametrize("parent", ["source", "repairer"])
def test_outage_of_two_receivers_is_repaired_by_multicast(parent: str) -> None:
    """The second one does not wait for a repair that goes to the first alone."""
    world, ncfs = after_outage("desk-1", "desk-2", parent=parent)
    assert world.nodes[parent].counters[0].rdata_packets < 1.6 * LOST  # a back-off of the first train
    assert duplicates(world, "desk-3") == pytest.approx(LOST, abs=0.1 * LOST)
    options = [find(item.options, ForAsker) for *_, item in ncfs.by(parent) if isinstance(item, Nak)]
    assert None in options


@attrs.define
class HearsNoUnicast:
    """A station behind a firewall that drops unicast."""

    inner: Station
    name: str
    host: str
    may_share_address: bool = False

    def hear(self, train: Train, channel: Channel, peer: Nla) -> None:
        """Hand on what comes to the group."""
        if channel.is_group:
            self.inner.hear(train, channel, peer)


def test_receiver_without_unicast_loses_nothing() -> None:
    """Repairs of the outage take seconds, and a part that has just left must not stand for all that left before."""
    tree = TreeBuilder(parameters(txw_secs=10 * SECOND, txw_max_rte=200_000))
    tree.source("source", "core")
    for desk in DESKS:
        tree.receiver(desk, "core", "source")
    world = make_world(tree, traffic(12 * RATE, size=300, rate=RATE))
    node = world.nodes["desk-1"]
    for attachment in node.attachments:
        attachment.station = HearsNoUnicast(attachment.station, node.name, attachment.station.host)
    Faults(world).partition("desk-1", 4 * SECOND, 3 * SECOND)
    finish(world, within_s=60)
    assert world.nodes["source"].counters[0].unicast_repair_sqns == pytest.approx(3 * RATE, abs=10)
    assert not stream(world, "desk-1").lost
