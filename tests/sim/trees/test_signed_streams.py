"""Signed streams whose packets are proved, through elements without keys, with losses on streams and proofs."""

from __future__ import annotations

import pytest

from pgm.core.effects import LossCause
from pgm.core.window.late_proved_window import LateProvedWindow
from pgm.sim.trees import TreeBuilder
from pgm.sim.world import World
from pgm.topology.node_plan import Flow, Order
from pgm.units import SECOND
from pgm.wire.formats import PacketType
from tests.sim.support.signed import Altering, deaf_from, hostile, proving, proving_late, withholding
from tests.sim.support.worlds import Tap, finish, is_a, lossy, make_world, parameters, stream, streams, traffic

MESSAGES = 240


def tree(flow: Flow = "rate", **changes: object) -> TreeBuilder:
    """Return a tree with a relay, and a repairer on each segment."""
    common = parameters(**changes)
    tree = TreeBuilder(common, flow=flow)
    tree.source("source", "core")
    tree.repairer("core-repairer", "core", parents=("source",))
    tree.aggregator("relay", "core", "floor", parents=("core-repairer", "source"), repairers=("repairer",))
    tree.repairer("repairer", "floor", parents=("relay",))
    for index in range(3):
        tree.receiver(f"receiver-{index}", "floor", "repairer", "relay")
    return tree


def forged_at(world: World, receiver: str) -> int:
    """Return the packets that a receiver has found forged."""
    return world.core_of(receiver).counters.forged_packets


@pytest.mark.parametrize(
    ("size", "changes"),
    [(200, {}), (4000, {}), (200, {"fec_group": 8, "fec_proactive": 1})],
    ids=["packets", "fragments", "parity"],
)
def test_every_packet_is_proved_through_lossy_elements(size: int, changes: dict[str, object]) -> None:
    wirings = {
        "receiver": lossy(0.05, duplicate=0.02, reorder=0.02),
        "repairer": lossy(0.02),
        "relay": lossy(0.02),
    }
    world = make_world(tree(**changes), traffic(MESSAGES, size), wirings=wirings, factory=proving)
    finish(world)
    assert all(one.is_complete and one.is_from_start for one in streams(world)), [one.lost for one in streams(world)]
    assert sum(forged_at(world, f"receiver-{index}") for index in range(3)) == 0


def with_two_repairers(order: Order = "ordered") -> TreeBuilder:
    """Return a tree whose receivers have two repairers on their segment, behind a relay."""
    tree = TreeBuilder(parameters(), order=order)
    tree.source("source", "core")
    tree.aggregator("relay", "core", "floor", parents=("source",))
    tree.repairer("repairer", "floor", parents=("relay",))
    tree.repairer("second", "floor", parents=("relay",))
    for index in range(3):
        tree.receiver(f"receiver-{index}", "floor", "repairer", "second", "relay")
    return tree


@pytest.mark.parametrize(("share", "order"), [(0.2, "ordered"), (1.0, "ordered"), (0.5, "unordered")])
def test_no_alteration_of_a_repairer_is_delivered(share: float, order: Order) -> None:
    found: list[Altering] = []
    world = make_world(
        with_two_repairers(order),
        traffic(MESSAGES, close_at_ns=20 * SECOND),
        wirings={"receiver": lossy(0.05)},
        factory=hostile("repairer", share, found),
        is_timed=False,  # packets are missing again, which the check of NAK times does not know
    )
    finish(world)
    assert found[0].altered > 3
    assert all(one.is_complete and one.is_from_start for one in streams(world)), [one.lost for one in streams(world)]
    for index in range(3):
        core = world.core_of(f"receiver-{index}")
        [session] = core.sessions
        hostile_nla = world.nodes["repairer"].plan.segments[0].address
        assert 0 < sum(session.parents.forged.values()) <= forged_at(world, f"receiver-{index}")
        assert set(session.parents.forged) == {hostile_nla}  # no other was ever accused
        is_last = session.parents.all[-1] == hostile_nla
        assert is_last == (session.parents.forged[hostile_nla] > parameters().forged_allowed)
    assert "forged-packets" in {notice.code for _, node, notice in world.log.notices if node == "receiver-0"}


@pytest.mark.parametrize(
    "start",
    [
        {"join_from": "now"},
        {"join_from": "oldest"},
        {"join_from": "last", "join_sqns": 50},
        {"join_from": "sqn", "join_sqns": 75},
    ],
    ids=["now", "oldest", "last", "sqn"],
)
def test_late_joiners_begin_with_proved_packets(start: dict[str, object]) -> None:
    built = tree()
    built.receiver("late", "floor", "repairer", "relay", parameters=parameters(**start))
    world = make_world(
        built,
        traffic(MESSAGES, rate=100, burst=3),
        wirings={"late": lossy(0.02)},
        starts={"late": 2 * SECOND + 512_345_678},
        factory=proving,
    )
    finish(world)
    late = stream(world, "late")
    assert late.is_complete, late.lost
    if start["join_from"] == "now":
        assert 150 < late.first < 220
    else:
        assert late.first == {"oldest": 0, "last": late.first, "sqn": 75}[str(start["join_from"])]


@pytest.mark.parametrize("lost", [{70}, {64, 70, 95}, {*range(70, 200, 16)}], ids=["one", "edges", "many"])
def test_packets_beside_lost_ones_are_delivered_by_details(lost: set[int]) -> None:
    """One request serves all receivers of a segment."""
    tap = Tap(is_a(PacketType.SPMR))
    world = make_world(
        tree(nak_ncf_retries=4, nak_data_retries=4),
        traffic(MESSAGES, close_at_ns=20 * SECOND),
        factory=withholding(frozenset(lost)),
        more=(tap,),
        is_timed=False,
    )
    may_lose = {f"receiver-{index}": (LossCause.RETRIES,) for index in range(3)}
    finish(world, may_lose=may_lose)
    assert [one.lost_sqns for one in streams(world)] == [len(lost)] * 3
    blocks = len({sqn // 32 for sqn in lost})
    requests = [one for one in tap.by("relay") if one[4].options]
    assert blocks <= len(requests) <= 3 * blocks


@pytest.mark.parametrize("flow", ["rate", "acked"])
def test_streams_verified_after_delivery_report_nothing_false(flow: Flow) -> None:
    wirings = {"receiver": lossy(0.05, duplicate=0.02, reorder=0.02), "relay": lossy(0.02)}
    built = tree(flow)
    world = make_world(built, traffic(MESSAGES), wirings=wirings, factory=proving_late)
    finish(world)
    assert all(one.is_complete and not one.forged for one in streams(world))
    for index in range(3):
        [session] = world.core_of(f"receiver-{index}").sessions
        assert isinstance(session.window, LateProvedWindow)
        assert session.window.settled_sqn == session.window.next_sqn


@pytest.mark.parametrize("is_at_receivers", [True, False])
def test_redundant_lines_carry_proofs_with_their_streams(*, is_at_receivers: bool) -> None:
    built = TreeBuilder(parameters())
    built.source("source", "line-a", "line-b")
    if not is_at_receivers:
        built.repairer("relay", "line-a", "floor", parents=("source",), lines={"line-b": ("source",)})
    for index in range(2):
        if is_at_receivers:
            built.receiver(f"receiver-{index}", "line-a", "source", lines={"line-b": ("source",)})
        else:
            built.receiver(f"receiver-{index}", "floor", "relay")
    on_lines = {"line-a": lossy(0.2), "line-b": lossy(0.2)}
    wirings = {"receiver": on_lines} if is_at_receivers else {"relay": {**on_lines, "floor": lossy()}}
    world = make_world(built, traffic(MESSAGES), wirings=wirings, factory=proving)
    finish(world)
    assert all(one.is_complete and one.is_from_start for one in streams(world))
    assert forged_at(world, "receiver-0") == 0


def test_receiver_with_a_position_begins_there_and_not_at_a_span() -> None:
    """An SPM comes before the answer about history: the window reaches back to the begin of a block already."""
    built = tree()
    built.receiver("late", "floor", "repairer", "relay")
    world = make_world(
        built, traffic(MESSAGES, rate=120, burst=60), starts={"late": 2 * SECOND}, factory=deaf_from(75, "late")
    )
    finish(world)
    late = stream(world, "late")
    assert (late.first, late.is_complete) == (75, True)
