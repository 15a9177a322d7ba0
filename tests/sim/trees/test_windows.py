"""Transmit windows as receivers see them.

Packets that left the window before their repair are reported lost, in order.
"""

from types import SimpleNamespace

import pytest

from pgm.core.effects import LossCause
from pgm.core.segment import Channel
from pgm.sim.applications import Traffic
from pgm.sim.faults import Faults
from pgm.sim.node import SimulatedNode
from pgm.sim.trees import TreeBuilder
from pgm.topology.check import check
from pgm.topology.load import loads
from pgm.topology.plan import plan_all
from pgm.units import SECOND
from pgm.wire.formats import PacketType
from pgm.wire.train import Train
from tests.sim.support.worlds import MS, Tap, finish, is_a, make_world, parameters, stream, traffic


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


OUTLASTED = """version = 1
name = "outlasted"
[streams.numbers]
data_port = 7500
rate = "10Mbit/s"
window = "{window}"
[segments.core]
group = "239.192.0.1"
interface = "10.0.0.0/24"
[segments.hall]
group = "239.192.0.2"
interface = "10.0.1.0/24"
[nodes.source]
role = "source"
segment = "core"
address = "10.0.0.1"
streams = ["numbers"]
[nodes.relay]
role = "aggregator"
upstream = {{ segment = "core", address = "10.0.0.2" }}
downstream = [{{ segment = "hall", address = "10.0.1.1" }}]
parents = ["source"]
[nodes.near]
role = "receiver"
segment = "core"
address = "10.0.0.3"
parents = ["source"]
[nodes.far]
role = "receiver"
segment = "hall"
address = "10.0.1.2"
parents = ["relay"]
"""
SENT_NS = SECOND


def lose_in_a_row(node: SimulatedNode, losses: dict[PacketType, int]) -> None:
    """Lose the first packets of some types that reach a node from the sending on."""
    hear = node.hear

    def lossy_hear(train: Train, channel: Channel, peer: str) -> None:
        kind = train.parse_untrusted()[0][0].type
        if node.now_ns >= SENT_NS and losses.get(kind, 0):
            losses[kind] -= 1
        else:
            hear(train, channel, peer)

    node.hear = lossy_hear  # type: ignore[method-assign]


def worst_repair(window: str, seed: int) -> tuple[dict[str, set[LossCause]], dict[str, int], list[str]]:
    """Lose one message, and three packets in a row at each step of its repair.

    Return the losses of each receiver, how long its repair took in ns, and what `check` says of the window.
    """
    topology = loads(OUTLASTED.format(window=window))
    warnings = [one.message for one in check(topology).warnings if one.rule == "outlasts"]
    tap = Tap(is_a(PacketType.RDATA, PacketType.ODATA))
    open_traffic = Traffic(messages=1, size=200, start_ns=SENT_NS, close_at_ns=60 * SECOND)
    world = make_world(SimpleNamespace(plans=plan_all(topology)), open_traffic, seed=seed, more=(tap,), is_timed=False)
    down = {PacketType.ODATA: 1, PacketType.SPM: 3, PacketType.RDATA: 3}
    lose_in_a_row(world.nodes["source"], {PacketType.NAK: 6})  # of `near` and of the relay
    for name in ("relay", "near"):
        lose_in_a_row(world.nodes[name], dict(down))
    world.run_until(20 * SECOND)
    took_ns = {
        "near": max(at for at, node, segment, _, _ in tap.seen if segment == "core") - SENT_NS,
        "far": max((at for at, node, segment, _, _ in tap.seen if segment == "hall"), default=0) - SENT_NS,
    }
    return {name: set(stream(world, name).lost) for name in took_ns}, took_ns, warnings


@pytest.mark.parametrize("seed", range(4))
def test_window_that_outlasts_the_sum_of_timers_repairs_all(seed):
    """The sum in `check` is an upper bound of the repair of three losses in a row, and a close one."""
    lost, took_ns, warnings = worst_repair("2900ms", seed)
    assert not warnings
    assert lost == {"near": set(), "far": set()}
    assert 1700 * MS < took_ns["near"] < 2573 * MS
    assert took_ns["far"] < 2874 * MS


def test_window_below_the_sum_of_timers_loses_and_check_says_so():
    lost, _, warnings = worst_repair("1500ms", 1)
    assert any("keeps packets for 1500ms (txw_secs), and a repair for near may take 2573ms" in one for one in warnings)
    assert lost["near"] == {LossCause.WINDOW}
