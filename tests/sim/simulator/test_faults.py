"""Overlapping faults last until the last one ends.

A stopped process sends nothing.
"""

from __future__ import annotations

from deploy.node.roles import build_core
from pgm.core.effects import Send
from pgm.sim.faults import Faults
from pgm.sim.links import LinkSetup
from pgm.sim.load import Load
from pgm.sim.runs.report import simulate
from pgm.sim.trees import TreeBuilder
from pgm.sim.world import Wiring, World
from pgm.topology.load import loads
from pgm.topology.plan import plan_all
from pgm.units import KIB, SECOND
from tests.sim.support.worlds import make_world, parameters, streams, traffic


def line(wirings: dict[str, Wiring] | None = None) -> World:
    tree = TreeBuilder(parameters())
    tree.source("source", "lan")
    tree.receiver("receiver", "lan", "source")
    return make_world(tree, traffic(100), wirings=wirings)


def test_outages_that_overlap_last_as_long_as_each_of_them() -> None:
    world = line()
    faults = Faults(world)
    faults.partition("receiver", SECOND, 4 * SECOND)
    faults.deafen(["receiver"], 2 * SECOND, SECOND)
    faults.partition("receiver", 4 * SECOND, 2 * SECOND)
    faults.deafen(["receiver"], 5 * SECOND, 2 * SECOND)
    [attachment] = world.nodes["receiver"].attachments
    seen = []
    for half in range(1, 15, 2):
        world.run_until(half * SECOND // 2)
        seen.append((attachment.ingress.is_cut, attachment.egress.is_cut))
    both, deaf, none = (True, True), (True, False), (False, False)
    assert seen == [none, both, both, both, both, both, deaf]
    world.run_until(8 * SECOND)
    assert not attachment.ingress.is_cut


def test_stops_that_overlap_last_as_long_as_each_of_them() -> None:
    world = line()
    faults, node = Faults(world), world.nodes["receiver"]
    faults.pause("receiver", SECOND, 3 * SECOND)
    faults.pause("receiver", 2 * SECOND, SECOND)
    for at, is_paused in ((1, False), (3, True), (5, True), (7, True), (9, False)):
        world.run_until(at * SECOND // 2)
        assert node.is_paused is is_paused
    [stream] = streams(world)
    assert stream.is_complete


def test_faults_stopped_process_keeps_unsent_packets() -> None:
    world = line({"source": Wiring(egress=LinkSetup(delay=0, rate=200_000, queue=8 * KIB))})
    node = world.nodes["source"]
    world.run_until(SECOND // 2)
    [attachment] = node.attachments
    train = Send(attachment.segment, bytes(6000), 1000, is_data=True)
    for _ in range(3):
        node.perform([train])
    node.pause()
    before = attachment.egress.packets
    world.run_until(SECOND * 3 // 4)
    assert attachment.egress.packets == before
    node.resume()
    world.run_until(SECOND * 7 // 8)
    assert attachment.egress.packets >= before + 12


def test_faults_source_ended_while_stopped_is_offered_nothing() -> None:
    world = line()
    faults, node = Faults(world), world.nodes["source"]
    faults.pause("source", SECOND + SECOND // 100, SECOND)
    faults.crash("source", SECOND + SECOND // 2)
    world.run_until(SECOND + SECOND // 4)
    offered = node.application.offered
    assert 0 < offered < 100
    world.run_until(3 * SECOND)
    assert node.application.offered == offered


_TREE = """\
version = 1
name = "cloud"
[streams.s]
data_port = 7500
rate = "10Mbit/s"
[segments.lan]
group = "239.192.0.1"
interface = "10.128.0.0/24"
[nodes."desk-*"]
role = "receiver"
segment = "lan"
count = 3
parents = ["source"]
[nodes.source]
role = "source"
segment = "lan"
address = "10.128.0.2"
streams = ["s"]
"""


def test_receivers_without_an_address_get_one_that_nobody_has() -> None:
    """The addresses of the file may lie in the range that the simulator draws from."""
    report = simulate(plan_all(loads(_TREE)), build_core, load=Load(messages=50))
    assert report["ok"], report["problems"]
    assert [row["delivered"] for row in report["receivers"]] == [50, 50, 50]
