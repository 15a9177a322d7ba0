"""Two lines with repairers on both, and with acknowledged streams."""

from __future__ import annotations

import pytest

from pgm.core.source.source import SourceCore
from pgm.sim.faults import Faults
from pgm.sim.trees import TreeBuilder
from pgm.units import SECOND
from pgm.wire.formats import PacketType
from tests.sim.support.acked import Held, window_of
from tests.sim.support.worlds import MS, Tap, finish, is_a, lossy, make_world, parameters, stream
from tests.sim.trees.test_lines import MESSAGES, late, line_status, offered, ways

QUICK = {"ack_expiry": SECOND, "ack_window": 512, "fin_quiet_ivl": SECOND}


def repairer_on_both(flow: str = "rate", receivers: int = 3, **changes: object) -> TreeBuilder:
    """Return a tree with a source and a repairer on both lines.

    Receivers are on both lines, and one on each line alone.
    """
    tree = TreeBuilder(parameters(**changes), flow=flow)
    tree.source("source", "line-a", "line-b")
    tree.repairer("local", "line-a", parents=("source",), lines={"line-b": ("source",)})
    for index in range(receivers):
        tree.receiver(f"receiver-{index}", "line-a", "local", "source", lines={"line-b": ("local", "source")})
    tree.receiver("single-a", "line-a", "local", "source")
    tree.receiver("single-b", "line-b", "local", "source")
    return tree


@pytest.mark.parametrize("flow", ["rate", "acked"])
def test_a_repairer_on_both_lines_repairs_on_both(flow: str) -> None:
    naks = Tap(is_a(PacketType.NAK))
    wirings = {"local": {"line-a": lossy(0.05), "line-b": late(2, 0.05)}, "single": lossy(0.03), **ways(lossy(0.05))}
    tree = repairer_on_both(flow, **QUICK)
    world = make_world(tree, offered(), wirings=wirings, more=(naks,))
    finish(world)
    assert world.nodes["source"].total("nak_sqns_in") < 0.02 * MESSAGES, "what the repairer lacks, and nothing else"
    for line in ("line-a", "line-b"):
        asked = [to for _, _, one, to, _ in naks.by(f"single-{line[-1]}") if one == line]
        # A request moves on after two unanswered NAKs: less than 8 % of NAKs stay unanswered, and less than 1 % of pairs.
        assert asked.count(tree.address("local", line)) > 0.98 * len(asked)
        assert set(asked) <= {tree.address("local", line), tree.address("source", line)}
    for name in ("single-a", "single-b"):
        assert world.nodes[name].total("repaired_locally") > 0.02 * MESSAGES
    lines = line_status(world, "local")
    assert min(line.lost_packets for line in lines.values()) > 0.03 * MESSAGES
    assert world.nodes["local"].total("twin_packets") > 0.8 * MESSAGES
    assert world.nodes["local"].total("odata_packets") == 0


def two_acked(**changes: object) -> TreeBuilder:
    """Return a tree with a source, and a relay to each line.

    The relays are a repairer and an aggregator. Receivers are on both lines, and one on each line alone.
    """
    tree = TreeBuilder(parameters(**{**QUICK, **changes}), flow="acked")
    tree.source("source", "core")
    tree.repairer("relay-a", "core", "line-a", parents=("source",))
    tree.aggregator("relay-b", "core", "line-b", parents=("source",))
    for index in range(2):
        tree.receiver(f"receiver-{index}", "line-a", "relay-a", lines={"line-b": ("relay-b",)})
    tree.receiver("single-b", "line-b", "relay-b")
    return tree


def members(world) -> int:  # type: ignore[no-untyped-def]
    return window_of(world).members


@pytest.mark.parametrize("tree", [two_acked, lambda: repairer_on_both("acked", 2, **QUICK)], ids=["relays", "on both"])
def test_a_member_counts_once_and_nothing_is_let_go_that_it_lacks(tree) -> None:  # type: ignore[no-untyped-def]
    held = Held()
    plans = tree()
    count = sum(name.startswith(("receiver", "single")) for name in plans.plans)
    wirings = {**ways(lossy(0.05), late(3, 0.05)), "single": lossy(0.02), "relay": lossy(0.01), "local": lossy(0.01)}
    world = make_world(plans, offered(), wirings=wirings, more=(held,))
    world.run_until(SECOND + 700 * MS)
    assert members(world) == count
    window = window_of(world)
    finish(world)
    assert window.stable == MESSAGES - 1
    assert held.most_ahead <= 512


def test_a_line_that_dies_hands_its_members_to_the_other() -> None:
    """The line's relay is killed, which blocks the source for at most `ack_expiry`."""
    held = Held()
    world = make_world(two_acked(), offered(), wirings=ways(b=lossy(0.03)), more=(held,))
    Faults(world).crash("relay-a", SECOND + 300 * MS)
    world.run_until(SECOND + 250 * MS)
    assert members(world) == 3
    core = world.core_of("source")
    assert isinstance(core, SourceCore)
    window = window_of(world)
    finish(world)
    assert window.stable == MESSAGES - 1
    assert world.nodes["source"].total("window_blocked_most_us") <= 1_100_000
    for name in ("receiver-0", "receiver-1", "single-b"):
        assert stream(world, name).delivered_sqns == MESSAGES
    assert all(node.total("ack_parent_changes") == 1 for node in world.receivers if node.name != "single-b")


def test_lines_late_joiner_is_served_on_the_repairers_line() -> None:
    tree = TreeBuilder(parameters(txw_secs=SECOND // 4))
    tree.source("source", "line-a", "line-b")
    tree.repairer("local", "line-b", parents=("source",))
    wanted = parameters(txw_secs=SECOND // 4, join_from="oldest")
    tree.receiver("late", "line-a", "source", lines={"line-b": ("source",)}, parameters=wanted)
    naks = Tap(is_a(PacketType.NAK))
    world = make_world(tree, offered(), starts={"late": SECOND + 700 * MS}, more=(naks,))
    finish(world)
    assert (stream(world, "late").first, stream(world, "late").delivered_sqns) == (0, MESSAGES)
    assert {(segment, to) for _, _, segment, to, _ in naks.by("late")} == {("line-b", tree.address("local", "line-b"))}
    assert world.nodes["source"].total("nak_packets_in") == 0
