"""Late joiners of a running stream: first sqn, serving node, and unaffected nodes."""

from __future__ import annotations

import attrs
import pytest

from pgm.core.effects import LossCause
from pgm.sim.trees import TreeBuilder
from pgm.sim.world import World
from pgm.units import SECOND
from pgm.wire.control_packets import Nak
from pgm.wire.formats import PacketType
from pgm.wire.train import Data
from tests.sim.support.worlds import Tap, finish, lossy, make_world, parameters, stream, traffic

RATE, MESSAGES, JOINS_S = 500, 6000, 9
BEFORE = (JOINS_S - 1) * RATE  # sent when the late joiner comes


def joined(
    *, relay: bool = False, repairer: bool = True, loss: float = 0.0, rate: int = 25_000_000, **wish: object
) -> tuple[World, Tap]:
    """Return a world with a source, a repairer, and one late joiner.

    The source's window holds two seconds, and the repairer keeps a minute.
    """
    common = parameters(txw_secs=2 * SECOND, rdata_share=0.5, txw_max_rte=rate)
    tree = TreeBuilder(common)
    tree.source("source", "core")
    floor = "floor" if relay else "core"
    if repairer:
        tree.repairer("repairer", "core", *(("floor",) if relay else ()), parents=("source",))
    parent = "repairer" if repairer else "source"
    tree.receiver("early", floor, parent)
    tree.receiver("late", floor, parent, parameters=attrs.evolve(common, **wish))
    tap = Tap(lambda item: isinstance(item, (Nak, Data)) and item.type is not PacketType.ODATA)
    world = make_world(
        tree,
        traffic(MESSAGES, size=500, rate=RATE),
        wirings={"early": lossy(loss), "late": lossy(loss)},
        starts={"late": JOINS_S * SECOND},
        more=(tap,),
    )
    return world, tap


def codes(world: World) -> list[tuple[str, str]]:
    return [(node, notice.code) for _, node, notice in world.log.notices]


def sent_to_late(world: World, tap: Tap, sender: str) -> list[tuple[int, int]]:
    """Return times and packets of the history that a node has sent to the late joiner alone."""
    late = world.nodes["late"].attachments[0].segment.address
    return [(at, item.count) for at, _, _, to, item in tap.by(sender) if to == late and isinstance(item, Data)]


@pytest.mark.parametrize("relay", [False, True], ids=["on-LAN", "relay"])
@pytest.mark.parametrize(
    ("wish", "first"),
    [
        ({"join_from": "oldest"}, 0),
        ({"join_from": "last", "join_sqns": 1500}, BEFORE - 1500),
        ({"join_from": "last", "join_secs": 4 * SECOND}, BEFORE - 4 * RATE),
        ({"join_from": "sqn", "join_sqns": 123}, 123),
    ],
    ids=["oldest", "count", "time", "sqn"],
)
def test_it_begins_where_it_wants_to_and_the_source_hears_nothing(
    relay: bool, wish: dict[str, object], first: int
) -> None:
    world, tap = joined(relay=relay, **wish)
    finish(world)
    got = stream(world, "late")
    assert abs(got.first - first) <= 2 * RATE  # of time in steps of cache_secs / 64
    assert got.first == first or "join_secs" in wish or ("join_sqns" in wish and abs(got.first - first) < RATE)
    assert got.first + got.delivered_sqns == MESSAGES
    assert not got.lost
    assert ("late", "late-join") in codes(world)
    naks = [to for _, node, _, to, item in tap.seen if node == "late" and isinstance(item, Nak)]
    assert naks
    assert set(naks) == {world.nodes["repairer"].attachments[-1].segment.address}
    assert world.nodes["source"].counters[0].nak_packets_in == 0
    assert world.nodes["source"].counters[0].rdata_packets == 0
    assert world.nodes["early"].counters[0].duplicate_packets == 0, "history goes to the late one alone"


def test_late_join_history_is_rate_limited_beside_repairs() -> None:
    world, tap = joined(loss=0.02, rate=700_000, join_from="last", join_sqns=1000)
    finish(world)
    assert not stream(world, "late").lost
    assert not stream(world, "early").lost
    history = sent_to_late(world, tap, "repairer")
    assert sum(count for _, count in history) >= 1000
    seconds = (history[-1][0] - history[0][0]) / SECOND
    packets = 700_000 * 0.1 / 524
    assert 1000 / packets * 0.8 < seconds < 1000 / packets * 1.6


def test_late_join_history_held_nowhere_is_reported_lost() -> None:
    world, _ = joined(join_from="sqn", join_sqns=100)
    world.nodes["repairer"].plan = attrs.evolve(
        world.nodes["repairer"].plan, parameters=attrs.evolve(world.nodes["repairer"].parameters, cache_secs=4 * SECOND)
    )
    world.run_until(20 * SECOND)
    got = stream(world, "late")
    assert got.first == 100
    assert set(got.lost) == {LossCause.WINDOW}
    assert got.lost_sqns + got.delivered_sqns == MESSAGES - 100


@pytest.mark.parametrize(
    ("wish", "first"),
    [
        ({"join_from": "oldest"}, BEFORE - 2 * RATE),
        ({"join_from": "last", "join_sqns": 300}, BEFORE - 300),
        ({"join_from": "last", "join_secs": SECOND}, BEFORE - RATE),
        ({"join_from": "sqn", "join_sqns": BEFORE - 200}, BEFORE - 200),
    ],
    ids=["oldest", "count", "time", "sqn"],
)
def test_source_of_a_flat_subnet_serves_its_window(wish: dict[str, object], first: int) -> None:
    world, tap = joined(repairer=False, **wish)
    finish(world)
    got = stream(world, "late")
    assert abs(got.first - first) <= RATE / 2  # of time in steps of txw_adv_secs
    assert got.first == first or wish["join_from"] != "sqn"
    assert got.first + got.delivered_sqns == MESSAGES
    assert not got.lost
    assert codes(world) == [("late", "late-join")]
    late = world.nodes["late"].attachments[0].segment.address
    assert {to for _, node, _, to, item in tap.seen if node == "source" and isinstance(item, Data)} == {late}
    assert world.nodes["early"].counters[0].duplicate_packets == 0, "history goes to the late one alone"


@pytest.mark.parametrize("joiners", [10, 100])
def test_joiners_at_once_get_one_copy_of_the_history(joiners: int) -> None:
    common = parameters(txw_secs=2 * SECOND, rdata_share=0.5)
    tree = TreeBuilder(common)
    tree.source("source", "core")
    for number in range(joiners):
        own = attrs.evolve(common, join_from="last", join_sqns=400)
        tree.receiver(f"late-{number}", "core", "source", parameters=own)
    starts = {f"late-{number}": JOINS_S * SECOND for number in range(joiners)}
    world = make_world(tree, traffic(MESSAGES, size=500, rate=RATE), starts=starts)
    finish(world)
    assert {stream(world, name).lost_sqns for name in starts} == {0}
    assert all(stream(world, name).first <= BEFORE - 350 for name in starts)
    assert world.nodes["source"].counters[0].rdata_packets < 2 * 400


def test_a_source_promises_only_history_that_it_can_send_in_time() -> None:
    world, _ = joined(repairer=False, rate=1_200_000, join_from="oldest")  # a window of 2.4 to 3.6 MB
    finish(world)
    got = stream(world, "late")
    assert BEFORE - 3.6e6 / 524 / 20 <= got.first < BEFORE - 2.4e6 / 524 / 20
    assert not got.lost
    assert got.first + got.delivered_sqns == MESSAGES


def test_history_that_has_left_the_window_is_reported_lost() -> None:
    world, _ = joined(repairer=False, join_from="sqn", join_sqns=100)
    world.run_until(20 * SECOND)
    got = stream(world, "late")
    assert got.first == 100
    assert set(got.lost) == {LossCause.WINDOW}
    assert BEFORE - 3 * RATE < got.first + got.lost_sqns < BEFORE - RATE
    assert got.lost_sqns + got.delivered_sqns == MESSAGES - 100


def test_history_of_a_source_takes_its_share_of_the_rate() -> None:
    world, tap = joined(repairer=False, loss=0.02, rate=700_000, join_from="last", join_sqns=200)
    finish(world)
    assert not stream(world, "late").lost
    assert not stream(world, "early").lost
    history = sent_to_late(world, tap, "source")
    seconds = (history[-1][0] - history[0][0]) / SECOND
    packets = 700_000 * 0.1 / 524
    assert seconds > sum(count for _, count in history) / packets * 0.5
