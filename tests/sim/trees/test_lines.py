"""Streams over two lines: the first copy counts, and a gap is a loss on both.

Each line's loss and lag are measured.
"""

from __future__ import annotations

import pytest

from pgm.core.status import LineStatus
from pgm.sim.faults import Faults
from pgm.sim.links import LinkSetup
from pgm.sim.trees import TreeBuilder
from pgm.sim.world import Wiring, World
from pgm.units import SECOND
from pgm.wire.formats import PacketType
from tests.sim.support.worlds import MS, Tap, finish, is_a, lossy, make_world, parameters, stream, streams, traffic

MESSAGES = 2000
LINES = ("line-a", "line-b")


def two_lines(receivers: int = 3, *, order: str = "ordered", **changes: object) -> TreeBuilder:
    """Return a tree with a source, a repairer for each line, and receivers on both."""
    tree = TreeBuilder(parameters(**changes), order=order)
    tree.source("source", "core")
    for letter in "ab":
        tree.repairer(f"relay-{letter}", "core", f"line-{letter}", parents=("source",))
    for index in range(receivers):
        tree.receiver(f"receiver-{index}", "line-a", "relay-a", lines={"line-b": ("relay-b",)})
    return tree


def ways(a: Wiring | None = None, b: Wiring | None = None) -> dict[str, dict[str, Wiring]]:
    """Return the wiring of receivers for each line."""
    return {"receiver": {"line-a": a or lossy(), "line-b": b or lossy()}}


def late(delay_ms: float, loss: float = 0.0) -> Wiring:
    way = lossy(loss)
    return Wiring(ingress=LinkSetup(delay=round(delay_ms * MS), impairment=way.ingress.impairment))


def offered():
    return traffic(messages=MESSAGES, rate=2000, close_at_ns=3 * SECOND)


def line_status(world: World, receiver: str = "receiver-0") -> dict[str, LineStatus]:
    core = world.nodes[receiver].core
    assert core is not None
    [session] = core.status(world.now_ns)
    return {one.segment: one for one in session.lines}


def asked(world: World) -> int:
    return sum(node.total("nak_sqns") for node in world.receivers)


def below_a_repairer(**changes: object) -> TreeBuilder:
    """Return a tree with a repairer on both lines and receivers on one segment below."""
    tree = TreeBuilder(parameters(**changes))
    tree.source("source", "line-a", "line-b")
    tree.repairer("relay", "line-a", "floor", parents=("source",), lines={"line-b": ("source",)})
    for index in range(3):
        tree.receiver(f"receiver-{index}", "floor", "relay")
    return tree


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("lag_ms", [0.05, 3])
def test_a_repairer_on_two_lines_passes_each_packet_down_once(seed: int, lag_ms: float) -> None:
    down = Tap(is_a(PacketType.ODATA))
    wirings = {
        "relay": {"line-a": lossy(0.05), "line-b": late(lag_ms, 0.05), "floor": lossy()},
        "receiver": lossy(0.02),
    }
    world = make_world(below_a_repairer(), offered(), seed=seed, wirings=wirings, more=(down,))
    finish(world)
    relay = world.nodes["relay"]
    assert relay.total("odata_packets") == sum(one[-1].count for one in down.by("relay")) == MESSAGES
    assert relay.total("twin_packets") > 0.8 * MESSAGES
    assert world.nodes["source"].total("nak_sqns_in") < 0.02 * MESSAGES
    lines = line_status(world, "relay")
    assert min(line.lost_packets for line in lines.values()) > 0.03 * MESSAGES


def test_with_parity_receivers_of_two_lines_get_everything() -> None:
    tree = two_lines(fec_group=8, fec_proactive=1, fec_on_demand=True)
    world = make_world(tree, offered(), wirings=ways(lossy(0.1), late(2, 0.1)))
    finish(world)


@pytest.mark.parametrize("seed", range(3))
def test_only_what_both_lines_lose_is_asked_for(seed: int) -> None:
    world = make_world(two_lines(), offered(), seed=seed, wirings=ways(lossy(0.05), lossy(0.05)))
    finish(world)
    # One in four hundred of each receiver's packets; with one line alone it would be one in twenty.
    missed = sum(node.total("repaired_sqns") for node in world.receivers)
    assert 1 <= missed <= 3 * MESSAGES // 100
    for name in (node.name for node in world.receivers):
        lines = line_status(world, name)
        assert set(lines) == set(LINES)
        for line in lines.values():
            assert 0.03 * MESSAGES < line.lost_packets < 0.07 * MESSAGES
            # a line's count begins with its first packet
            assert line.packets + line.lost_packets in (MESSAGES, MESSAGES - 1)
        total = world.nodes[name].total
        assert total("twin_packets") > 0.8 * MESSAGES
        assert sum(line.first_packets for line in lines.values()) + total("repaired_sqns") == MESSAGES


def test_lines_packets_due_on_the_later_line_are_not_asked_for() -> None:
    world = make_world(two_lines(), offered(), wirings=ways(lossy(0.05), late(4)))
    finish(world)
    assert asked(world) == 0
    lines = line_status(world)
    assert lines["line-b"].lost_packets == 0
    assert lines["line-a"].lost_packets > 0
    assert lines["line-b"].first_packets - lines["line-a"].lost_packets in (0, 1)  # the very first packet may be lost
    assert lines["line-a"].behind_ns < MS
    assert 3 * MS < lines["line-b"].behind_ns < 5 * MS


def test_a_lag_beyond_the_hold_costs_requests_and_nothing_else() -> None:
    world = make_world(two_lines(ab_hold_ivl=2 * MS), offered(), wirings=ways(lossy(0.05), late(60)))
    finish(world)
    assert asked(world) > 0


def test_a_gap_that_both_lines_have_passed_is_asked_for_at_once() -> None:
    """The hold applies only while a line is behind.

    A hold for all gaps would take five seconds here.
    """
    tree = two_lines(ab_hold_ivl=5 * SECOND)
    world = make_world(tree, offered(), wirings=ways(b=late(1)))
    Faults(world).deafen(["receiver-0"], SECOND + 200 * MS, 20 * MS)
    finish(world)
    assert world.nodes["receiver-0"].total("repaired_sqns") >= 35
    assert world.log.last_delivery_ns < 2 * SECOND + 200 * MS


def test_a_line_that_is_down_is_not_waited_for() -> None:
    """The first gap waits until the line counts as down.

    Later gaps are requested as on a single line.
    """
    tree = two_lines(ab_hold_ivl=100 * MS)
    world = make_world(tree, offered(), wirings=ways(a=lossy(0.02)))
    for index in range(3):
        Faults(world).deafen([f"receiver-{index}"], SECOND + 300 * MS, 500 * MS, segment="line-b")
    world.run_until(SECOND + 750 * MS)
    lines = line_status(world)
    assert lines["line-b"].is_down
    assert not lines["line-a"].is_down
    delivered = stream(world, "receiver-0").next_sqn
    assert lines["line-a"].packets > 1000
    assert delivered > 1450 - 60  # only packets that wait for a repair are missing
    finish(world)
    lines = line_status(world)
    assert not lines["line-b"].is_down
    assert lines["line-b"].lost_packets >= 990


def test_a_relay_that_dies_takes_its_line_with_it_and_no_message() -> None:
    naks = Tap(is_a(PacketType.NAK))
    tree = two_lines()
    world = make_world(tree, offered(), wirings=ways(b=lossy(0.05)), more=(naks,))
    Faults(world).crash("relay-a", SECOND + 300 * MS)
    finish(world)
    groups = {segment.name: segment.group for segment in tree.plans["receiver-0"].segments}
    to_b = [one for one in naks.by("receiver-0") if one[2] == "line-b"]
    assert to_b
    for _, _, _, to, nak in to_b:
        # A NAK for the other line names that line's group and path.
        assert to == nak.source_nla == tree.address("relay-b", "line-b")
        assert nak.group_nla == groups["line-b"]


def test_streams_without_repair_lose_what_both_lines_lose() -> None:
    world = make_world(two_lines(order="unreliable"), offered(), wirings=ways(lossy(0.05), late(3, 0.05)))
    world.run_until(6 * SECOND)
    assert asked(world) == 0
    for one in streams(world):
        assert one.is_accounted
        assert one.delivered_sqns + one.lost_sqns == MESSAGES
        assert 0 < one.lost_sqns < 0.01 * MESSAGES


def test_a_source_on_both_lines_sends_and_repairs_on_both() -> None:
    """Receivers of one line alone, and of both lines, get all data."""
    tree = TreeBuilder(parameters())
    tree.source("source", "line-a", "line-b")
    tree.receiver("single-a", "line-a", "source")
    tree.receiver("single-b", "line-b", "source")
    tree.receiver("receiver-0", "line-a", "source", lines={"line-b": ("source",)})
    wirings = {"single-a": lossy(0.02), "single-b": lossy(0.02), **ways(lossy(0.05), lossy(0.05))}
    sent = Tap(is_a(PacketType.ODATA, PacketType.SPM))
    world = make_world(tree, offered(), wirings=wirings, more=(sent,))
    finish(world)
    by_line = {line: [one for one in sent.by("source") if one[2] == line] for line in LINES}
    assert len(by_line["line-a"]) == len(by_line["line-b"])
    spms = [item for *_, item in by_line["line-b"] if item.type is PacketType.SPM]
    assert {spm.path_nla for spm in spms} == {tree.address("source", "line-b")}
    assert world.nodes["source"].total("nak_packets_foreign") == 0
    assert world.nodes["source"].total("nak_packets_in") > 0
    assert world.nodes["receiver-0"].total("repaired_sqns") < 0.02 * MESSAGES


def test_receivers_of_one_line_have_no_lines_to_tell_of() -> None:
    tree = TreeBuilder(parameters())
    tree.source("source", "lan")
    tree.receiver("receiver-0", "lan", "source")
    world = make_world(tree, offered())
    finish(world)
    assert line_status(world) == {}
    assert world.nodes["receiver-0"].total("twin_packets") == 0


@pytest.mark.parametrize("seed", range(2))
def test_a_repairer_on_two_lines_carries_parity_too(seed: int) -> None:
    tree = below_a_repairer(fec_group=8, fec_proactive=1, fec_on_demand=True)
    down = Tap(lambda item: item.type == PacketType.ODATA and item.parity)
    wirings = {"relay": {"line-a": lossy(0.05), "line-b": late(2, 0.05), "floor": lossy()}, "receiver": lossy(0.02)}
    world = make_world(tree, offered(), seed=seed, wirings=wirings, more=(down,))
    finish(world)
    groups = MESSAGES // 8
    assert 0.9 * groups < sum(one[-1].count for one in down.by("relay")) <= 1.1 * groups
