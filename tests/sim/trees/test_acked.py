"""Acknowledged streams on whole trees (JG rows).

No packet leaves the window while a member lacks it, also if nodes crash, stop, join or leave.
"""

import functools

import attrs
import pytest

from pgm.core.effects import LossCause
from pgm.sim.applications import ConsumptionRate
from pgm.sim.faults import Faults
from pgm.sim.trees import TreeBuilder
from pgm.units import NEVER, SECOND
from tests.sim.figures import acks as acks_figure
from tests.sim.support.acked import AcksSent, FalseMember, Held, run, window_of
from tests.sim.support.worlds import MS, finish, lossy, make_world, parameters, stream, traffic

QUICK = {"ack_window": 256, "ack_expiry": SECOND, "ack_stall_ivl": 2 * SECOND, "fin_quiet_ivl": SECOND}


def pair(**changes):
    """Return a tree of two repairers beside the source, and receivers that use either."""
    tree = TreeBuilder(parameters(**QUICK | changes), flow="acked")
    tree.source("source", "lan")
    tree.repairer("first", "lan", parents=("source",))
    tree.repairer("second", "lan", parents=("source",))
    for index in range(6):
        order = ("first", "second", "source") if index % 2 else ("second", "first", "source")
        tree.receiver(f"receiver-{index}", "lan", *order)
    return tree


def relays(**changes):
    """Return a tree of a relay, a relay below it, and an on-LAN aggregator below that."""
    tree = TreeBuilder(parameters(**QUICK | changes), flow="acked")
    tree.source("source", "core")
    tree.repairer("upper", "core", "floor", parents=("source",))
    tree.aggregator("lower", "floor", "desk", parents=("upper",))
    tree.aggregator("local", "desk", parents=("lower",))
    for index in range(4):
        tree.receiver(f"receiver-{index}", "desk", "local", "lower")
    tree.receiver("receiver-core", "core", "source")
    return tree


OFFERED = traffic(4000, size=100, rate=1000, burst=20)


def test_everybody_has_what_counts_as_stable_and_the_end_is_stable():
    held = Held()
    world = make_world(relays(), OFFERED, wirings={"receiver": lossy(0.02), "upper": lossy(0.01)}, more=(held,))
    world.run_until(3 * SECOND)
    window = window_of(world)
    assert window.members == 5
    assert 0 < window.stable < 2000
    finish(world)
    assert window.stable == 3999
    assert held.most_ahead <= 256
    assert world.nodes["source"].total("members_joined") == 2  # the upper relay, and the receiver beside it


def test_acks_are_merged_and_go_to_the_first_live_parent():
    sent = AcksSent()
    world = make_world(relays(), OFFERED, more=(sent,))
    finish(world)
    assert set(sent.by) == {"upper", "lower", "local", "receiver-core", *(f"receiver-{index}" for index in range(4))}
    # 64 packets, or 50 ms, whichever is sooner: here the interval, drawn between a half and a whole of it.
    assert sent.by["upper"] <= 4 * SECOND // (25 * MS) * 1.3
    assert world.nodes["source"].total("ack_packets_in") == sent.by["upper"] + sent.by["receiver-core"]


def test_orphans_are_adopted_before_anything_they_lack_is_let_go():
    held = Held()
    world = make_world(pair(), OFFERED, wirings={"receiver": lossy(0.05)}, more=(held,))
    Faults(world).crash("first", 3 * SECOND)
    finish(world)
    assert window_members_expired(world) == 1
    assert all(world.nodes[f"receiver-{index}"].total("ack_parent_changes") >= index % 2 for index in range(6))


def test_acked_restarted_element_holds_until_it_knows_children():
    held = Held()
    world = make_world(relays(), OFFERED, wirings={"receiver": lossy(0.05)}, more=(held,))
    Faults(world).crash_and_restart("local", 3 * SECOND, 300 * MS)
    finish(world)
    assert stream(world, "receiver-1").is_complete


def two_below(make="aggregator", **changes):
    """Return a tree of two receivers below one relay."""
    tree = TreeBuilder(parameters(**QUICK | changes), flow="acked")
    tree.source("source", "core")
    getattr(tree, make)("relay", "core", "floor", parents=("source",))
    for name in ("quick", "slow"):
        tree.receiver(name, "floor", "relay")
    return tree


@pytest.mark.parametrize("make", ["aggregator", "repairer"])
def test_an_element_that_comes_back_waits_for_more_than_who_leaves(make):
    """The only child known to the element leaves; the other child lacks more data."""
    held = Held()
    world = make_world(two_below(make), OFFERED, more=(held,))
    Faults(world).pause("slow", 2900 * MS, 550 * MS)
    Faults(world).crash_and_restart("relay", 3 * SECOND, 200 * MS)
    world.run_until(3300 * MS)
    [session] = world.core_of("relay").status(world.now_ns)
    assert session.acked.members == 1
    node = world.nodes["quick"]
    node.perform(node.core.leave(world.now_ns))
    node.stop()
    world.run_until(3400 * MS)
    assert window_of(world).stable < stream(world, "quick").next_sqn - 1
    finish(world)
    assert world.nodes["source"].total("members_expired") == 0
    assert stream(world, "slow").is_complete


@pytest.mark.parametrize("is_new", [False, True])
def test_a_goodbye_counts_at_an_element_that_knows_nobody(is_new):
    """After a long silence no member counts; then a receiver catches up and leaves."""
    tree = two_below(ack_window=2048, fin_quiet_ivl=6 * SECOND)
    world = make_world(tree, attrs.evolve(OFFERED, messages=1000))
    for name in ("quick", "slow"):
        Faults(world).pause(name, 1900 * MS, 2600 * MS)
    if is_new:
        Faults(world).crash_and_restart("relay", 4 * SECOND, 100 * MS)
    world.run_until(4400 * MS)
    window = window_of(world)
    assert window.members == 0
    assert window.stable < 999
    finish(world)
    assert window.stable == 999


def window_members_expired(world):
    return world.nodes["source"].total("members_expired")


def stopped_receiver(**changes):
    """Stop a receiver for good, as by SIGSTOP.

    Return the time for which the source was blocked, in ms, and the world.
    """
    held = Held(frozenset({"receiver-1"}))
    offered = attrs.evolve(OFFERED, rate=2000)
    world = make_world(pair(**changes), offered, more=(held,))
    world.run_until(1500 * MS)
    world.nodes["receiver-1"].pause()
    window = None
    while any(node.core is not None for node in world.sources):
        window = window_of(world)
        world.run_until(world.now_ns + SECOND // 10)
        assert world.now_ns < 60 * SECOND
    assert window is not None
    assert window.stable == 3999
    return world.nodes["source"].total("window_blocked_us") / 1000, world


def test_acked_stopped_receiver_blocks_for_ack_expiry_at_most():
    blocked_ms, world = stopped_receiver()
    assert 500 <= blocked_ms <= 1000 * 1.3
    assert any(notice.code == "member-silent" for _, _, notice in world.log.notices)


def test_a_source_that_goes_on_is_not_held_up_at_all():
    blocked_ms, _ = stopped_receiver(ack_full="go-on")
    assert blocked_ms == 0


def test_acked_stuck_application_blocks_for_ack_stall_ivl():
    small = {"inbox_bytes": 64 * 1024, "rxw_bytes": 1 << 20}
    held = Held(frozenset({"receiver-0"}))
    tree = pair(**small)
    stops = {"receiver-0": ConsumptionRate(stops_at_ns=2 * SECOND, resumes_at_ns=9 * SECOND)}
    offered = attrs.evolve(OFFERED, messages=8000, close_at_ns=20 * SECOND)
    world = make_world(tree, offered, appetites=stops, more=(held,))
    world.run_until(8 * SECOND)
    assert window_of(world).members == 5
    assert any(notice.code == "member-stuck" for _, _, notice in world.log.notices)
    world.run_until(19 * SECOND)
    assert window_of(world).members == 6
    assert window_of(world).stable == 7999
    finish(world, may_lose={"receiver-0": {LossCause.OVERRUN, LossCause.WINDOW}})
    assert 1000 <= world.nodes["source"].total("window_blocked_us") / 1000 <= 2000 * 1.5
    source = world.nodes["source"]
    most_us, all_us = source.total("window_blocked_most_us"), source.total("window_blocked_us")
    assert all_us / source.total("window_blockings") <= most_us <= all_us


def test_slow_applications_slow_their_source_down_and_lose_nothing():
    """The rate allows 25 MB/s, and the slowest application takes 100 kB/s.

    The packets have 124 octets.
    """
    tree = pair(inbox_bytes=64 * 1024)
    appetites = {"receiver-2": ConsumptionRate(octets_per_s=100_000)}
    offered = attrs.evolve(OFFERED, rate=0, close_at_ns=NEVER)
    world = make_world(tree, offered, appetites=appetites)
    world.run_until(11 * SECOND)
    lead = world.core_of("source").window.lead
    assert lead == 3999
    assert 4000 * 124 / 100_000 <= world.log.last_delivery_ns / SECOND <= 4000 * 124 / 100_000 + 3
    assert stream(world, "receiver-2").lost_sqns == 0


FALSE_RATE = 150
FALSE = {"ack_window": 512, "ack_stall_ivl": 4 * SECOND, "ack_element_ivl": 5 * SECOND, "inbox_bytes": 64 * 1024}
FALSE_FROM_NS = 3 * SECOND


def false_member(below, step, seconds=13, *, is_named=True, appetite=None):
    """Return the world of a false member below the source or a relay, which begins two seconds after the data."""
    tree = TreeBuilder(parameters(**FALSE), flow="acked")
    tree.source("source", "core")
    if below != "source":
        getattr(tree, below)("relay", "core", "floor", parents=("source",))
    parent, segment = ("source", "core") if below == "source" else ("relay", "floor")
    names = ("one", "two", "bad") if is_named else ("one", "two")
    for name in names:
        tree.receiver(name, segment, parent)
    address = tree.address("bad", segment) if is_named else "10.9.9.9"
    offered = traffic(seconds * FALSE_RATE, size=100, rate=FALSE_RATE, close_at_ns=NEVER)
    appetites = {"two": appetite} if appetite else None
    world = make_world(tree, offered, starts={"bad": 1000 * SECOND}, appetites=appetites)
    world.at(FALSE_FROM_NS, FalseMember(world, parent, address, step).ack)
    return world, address


def sent_between(world, from_s, to_s):
    world.run_until(from_s * SECOND)
    before = world.core_of("source").window.lead
    world.run_until(to_s * SECOND)
    return (world.core_of("source").window.lead - before) / (to_s - from_s)


@pytest.mark.parametrize("below", ["source", "aggregator", "repairer"])
@pytest.mark.parametrize(("step", "code"), [(0, "member-stuck"), (1, "member-slow")])
def test_member_without_progress_holds_the_source_a_limited_time(below, step, code):
    world, address = false_member(below, step)
    assert sent_between(world, 10, 13) >= 0.9 * FALSE_RATE
    [told] = {notice.text for _, _, notice in world.log.notices if notice.code.startswith("member-")}
    assert address in told
    assert code in {notice.code for _, _, notice in world.log.notices}
    assert stream(world, "two").lost_sqns == 0
    assert window_of(world).stable >= world.core_of("source").window.lead - FALSE_RATE


@pytest.mark.parametrize("below", ["source", "aggregator", "repairer"])
def test_acks_of_addresses_outside_the_topology_do_not_count(below):
    world, address = false_member(below, 0, is_named=False)
    assert sent_between(world, 6, 9) >= 0.99 * FALSE_RATE
    assert world.nodes["source"].total("window_blockings") == 0
    parent = world.nodes["source" if below == "source" else "relay"]
    assert parent.total("acks_unlisted") > 50
    told = [notice for _, _, notice in world.log.notices if notice.code == "member-unlisted"]
    assert address in told[0].text
    assert len(told) <= 2


def test_honest_member_above_the_least_progress_holds_the_source():
    """A member takes two fifths of what the source sends, twice the least progress."""
    slow = ConsumptionRate(octets_per_s=FALSE_RATE * 124 * 2 // 5)
    world, _ = false_member("source", 0, 30, is_named=False, appetite=slow)
    assert sent_between(world, 16, 22) <= 0.45 * FALSE_RATE
    assert window_of(world).members == 2
    assert stream(world, "two").lost_sqns == 0


def test_a_joiner_counts_from_the_current_number():
    held = Held(frozenset({"receiver-5"}))
    world = make_world(pair(), OFFERED, starts={"receiver-5": 3 * SECOND}, more=(held,))
    world.run_until(2900 * MS)
    before = window_of(world).stable
    world.run_until(4 * SECOND)
    assert window_of(world).members == 6
    assert window_of(world).stable > before + 800
    finish(world)


def test_members_that_leave_are_not_waited_for():
    world = make_world(pair(), OFFERED)
    world.run_until(3 * SECOND)
    node = world.nodes["receiver-1"]
    node.perform(node.core.leave(world.now_ns))
    node.stop()
    world.run_until(3500 * MS)
    assert window_of(world).members == 5
    assert world.nodes["source"].total("window_blockings") == 0
    finish(world)


def test_without_members_nothing_is_stable_and_nobody_waits():
    tree = TreeBuilder(parameters(**QUICK), flow="acked")
    tree.source("source", "lan")
    world = make_world(tree, attrs.evolve(OFFERED, close_at_ns=NEVER))
    world.run_until(6 * SECOND)
    assert world.core_of("source").window.lead == 3999
    assert window_of(world).stable == -1


def test_plain_streams_have_no_acks():
    tree = TreeBuilder(parameters(**QUICK))
    tree.source("source", "lan")
    tree.repairer("first", "lan", parents=("source",))
    tree.receiver("receiver", "lan", "first")
    sent = AcksSent()
    world = make_world(tree, OFFERED, more=(sent,))
    finish(world)
    assert not sent.by


@functools.cache
def acks_of(receivers):
    return run(receivers, 1000)


def test_acked_figure_is_made_from_measurements():
    found = [run(receivers, 1000) for receivers in (20, 40)]
    assert [one["members"] for one in found] == [20, 40]
    rows = acks_figure.table(found).splitlines()[2:]
    assert [int(row.split(" | ")[1]) for row in rows] == [one["acks_sent_by_receivers"] for one in found]
    assert found[1]["acks_sent_by_receivers"] > 1.8 * found[0]["acks_sent_by_receivers"]
    assert found[1]["acks_in"] < 1.1 * found[0]["acks_in"]
    assert "at the source" in acks_figure.draw(found)


@pytest.mark.slow
def test_acked_thousand_receivers_cost_acks_of_ten_children():
    few, many = acks_of(250), acks_of(1000)
    assert (few["members"], many["members"]) == (250, 1000)
    assert many["stable"] == 999
    assert many["delivered"] == 1_000_000
    assert abs(many["acks_in"] - few["acks_in"]) <= few["acks_in"] / 10
    # Each of the ten: 256 packets or at least 25 ms; a sign of life in 375 ms; hello and goodbye.
    most = 10 * (many["virtual_ms"] / 375 + 250 / 25 + 10)
    assert many["acks_in"] <= most
    assert many["acks_sent_by_receivers"] >= 30 * many["acks_in"]
