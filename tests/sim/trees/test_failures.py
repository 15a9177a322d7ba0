"""Processes that die, stop, restart, or are too slow."""

import pytest

from pgm.core.effects import CloseCause, LossCause
from pgm.sim.applications import ConsumptionRate, Traffic
from pgm.sim.faults import Faults
from pgm.sim.trees import TreeBuilder
from pgm.sim.world import tsi_of
from pgm.units import KIB, SECOND
from pgm.wire.formats import PacketType
from tests.sim.support.worlds import MS, Tap, finish, is_a, lossy, make_world, parameters, stream, streams, traffic


def pair_of_relays(kind: str = "aggregator", **changes: object) -> TreeBuilder:
    tree = TreeBuilder(parameters(ambient_spm_ivl=100 * MS, ihb_max=500 * MS, relay_takeover_ivl=SECOND, **changes))
    tree.source("source", "core")
    for name, standby_of in (("relay", None), ("standby", "relay")):
        getattr(tree, kind)(name, "core", "floor", parents=("source",), standby_of=standby_of)
    for index in range(3):
        tree.receiver(f"receiver-{index}", "floor", "relay", "standby")
    return tree


def lone_relay(kind: str = "aggregator", **changes: object) -> TreeBuilder:
    tree = TreeBuilder(parameters(**changes))
    tree.source("source", "core")
    getattr(tree, kind)("relay", "core", "floor", parents=("source",))
    for index in range(3):
        tree.receiver(f"receiver-{index}", "floor", "relay")
    return tree


@pytest.mark.parametrize("kind", ["aggregator", "repairer"])
def test_standby_takes_over_and_a_restarted_relay_stays_silent(kind):
    """The OneSpeaker checker runs all the time.

    This test checks the active node at each time, and that no data is lost.
    """
    spms = Tap(is_a(PacketType.SPM))
    tree = pair_of_relays(kind)
    takeover = tree.plans["standby"].parameters.relay_takeover_ivl
    world = make_world(tree, traffic(4000, close_at_ns=8 * SECOND), more=(spms,), wirings={"receiver": lossy(0.02)})
    died_ns, restarted_ns = 2 * SECOND + 30 * MS, 4 * SECOND
    faults = Faults(world)
    faults.crash("relay", died_ns)
    faults.restart("relay", restarted_ns)
    finish(world)
    said = [(at_ns, name) for at_ns, name, segment, _, _ in spms.seen if segment == "floor"]
    assert {name for at_ns, name in said if at_ns < died_ns} == {"relay"}
    first_ns = min(at_ns for at_ns, name in said if name == "standby")
    assert died_ns < first_ns <= died_ns + takeover + 100 * MS  # the next SPM was not due at once
    assert {name for at_ns, name in said if at_ns > first_ns} == {"standby"}
    assert world.nodes["standby"].total("takeovers") == 1
    assert all(one.is_complete and one.is_from_start for one in streams(world))


def test_standby_yields_after_a_partition_between_the_two():
    """A standby cut off from the relay takes over.

    The standby yields as soon as it hears the relay again.
    """
    spms = Tap(is_a(PacketType.SPM))
    world = make_world(pair_of_relays(), traffic(4000, close_at_ns=8 * SECOND), more=(spms,))
    world.hooks.sent = [checker for checker in world.hooks.sent if type(checker).__name__ != "OneSpeaker"]
    healed_ns = 4 * SECOND
    Faults(world).deafen(["standby"], 2 * SECOND, healed_ns - 2 * SECOND, segment="floor")
    finish(world)
    times = [at_ns for at_ns, name, segment, _, _ in spms.seen if name == "standby" and segment == "floor"]
    assert times, "two networks, two speakers"
    assert max(times) < healed_ns + 200 * MS
    assert all(one.is_complete for one in streams(world))


@pytest.mark.parametrize("kind", ["aggregator", "repairer"])
def test_failures_dead_relay_is_repaired_after_restart_in_time(kind):
    tree = lone_relay(kind, peer_expiry=2 * SECOND, stall_ivl=SECOND, ihb_max=400 * MS)
    expiry = tree.plans["receiver-0"].parameters.peer_expiry
    world = make_world(tree, traffic(5000, close_at_ns=10 * SECOND))
    died_ns = 2 * SECOND
    Faults(world).crash_and_restart("relay", died_ns, 3 * SECOND)
    world.run_until(died_ns + expiry + 100 * MS)
    assert {one.closed for one in streams(world)} == {CloseCause.SILENT}
    finish(world)
    assert all(one.is_complete and one.is_from_start and one.silences == 1 for one in streams(world))


@pytest.mark.parametrize("kind", ["aggregator", "repairer"])
def test_failures_packets_behind_the_window_are_lost_in_order(kind):
    """The relay is away longer than the source keeps packets.

    The rest is reported lost once, and the stream continues.
    """
    tree = lone_relay(kind, peer_expiry=2 * SECOND, stall_ivl=SECOND, ihb_max=400 * MS, txw_secs=2 * SECOND)
    world = make_world(tree, traffic(10_000, close_at_ns=14 * SECOND))
    Faults(world).crash_and_restart("relay", 2 * SECOND, 6 * SECOND)
    finish(world, may_lose={f"receiver-{index}": {LossCause.WINDOW} for index in range(3)})
    for one in streams(world):
        assert one.closed is CloseCause.FIN
        assert one.delivered_sqns + one.lost_sqns == 10_000
        # Away from 2 s to 8 s; the window reaches back two seconds, and one increment.
        assert 2_900 <= one.lost_sqns <= 4_100


@pytest.mark.parametrize("layout", ["on-lan", "asked-first", "relaying-standby"])
def test_dead_repairer_leaves_receivers_no_worse_off(layout):
    """Receivers change to the next parent, and no data is lost."""
    tree = TreeBuilder(parameters(relay_takeover_ivl=SECOND, ambient_spm_ivl=100 * MS, ihb_max=500 * MS))
    tree.source("source", "core")
    if layout == "on-lan":
        tree.repairer("repairer", "core", parents=("source",))
        segment, parents = "core", ("repairer", "source")
    elif layout == "asked-first":
        tree.aggregator("relay", "core", "floor", parents=("source",), repairers=("repairer",))
        tree.repairer("repairer", "floor", parents=("relay",))
        segment, parents = "floor", ("repairer", "relay")
    else:
        tree.repairer("repairer", "core", "floor", parents=("source",))
        tree.repairer("standby", "core", "floor", parents=("source",), standby_of="repairer")
        segment, parents = "floor", ("repairer", "standby")
    for index in range(4):
        tree.receiver(f"receiver-{index}", segment, *parents)
    world = make_world(tree, traffic(2000, close_at_ns=6 * SECOND), wirings={"receiver": lossy(0.05)})
    Faults(world).crash("repairer", 2 * SECOND)
    finish(world)
    assert all(one.is_complete and one.is_from_start for one in streams(world))
    assert world.nodes["repairer"].total("rdata_packets") > 0


def test_dead_on_lan_aggregator_is_passed_over():
    tree = TreeBuilder(parameters())
    tree.source("source", "lan")
    tree.aggregator("aggregator", "lan", parents=("source",))
    for index in range(4):
        tree.receiver(f"receiver-{index}", "lan", "aggregator", "source")
    world = make_world(tree, traffic(2000, close_at_ns=4 * SECOND), wirings={"receiver": lossy(0.05)})
    Faults(world).crash("aggregator", 2 * SECOND)
    finish(world)
    assert all(one.is_complete and one.is_from_start for one in streams(world))
    assert all(node.total("parent_changes") for node in world.receivers)


def test_repairer_serves_on_when_the_source_is_dead():
    """A subnet's repairer has the half second of data that a receiver missed.

    The source dies before the receiver asks.
    """
    tree = lone_relay("repairer", session_expiry=20 * SECOND)
    world = make_world(tree, traffic(1000, close_at_ns=60 * SECOND))
    faults = Faults(world)
    faults.deafen(["receiver-0"], SECOND + 500 * MS, 500 * MS)
    faults.crash("source", 2 * SECOND + 5 * MS)
    world.run_until(30 * SECOND)
    for one in streams(world):
        assert one.ledger is not None
        assert one.delivered_sqns == 1000
        assert not one.lost
        assert one.closed is CloseCause.EXPIRED
    assert world.nodes["receiver-0"].total("repaired_sqns") >= 400


def test_restarted_source_is_a_new_session():
    world = make_world(lone_relay(session_expiry=20 * SECOND), traffic(1000, close_at_ns=5 * SECOND))
    Faults(world).crash_and_restart("source", SECOND + 500 * MS, 200 * MS)
    world.run_until(25 * SECOND)
    finish(world, cut_short=[tsi_of("source", 0)])
    for index in range(3):
        old, new = (stream(world, f"receiver-{index}", starts=starts) for starts in (0, 1))
        assert new.is_complete
        assert old.messages + new.messages <= 1000


def test_failures_extra_source_evicts_the_longest_silent():
    """The 65th source replaces the first of 64, which has been silent longest."""
    limit = 64
    tree = TreeBuilder(
        parameters(max_sessions=limit, ambient_spm_ivl=60 * SECOND, ihb_max=60 * SECOND, peer_expiry=120 * SECOND)
    )
    names = [tree.source(f"source-{index}", "lan") for index in range(limit + 1)]
    tree.receiver("receiver", "lan")
    offered = {
        name: Traffic(20, size=50, rate=100, start_ns=SECOND + index * 10 * MS, close_at_ns=40 * SECOND)
        for index, name in enumerate(names)
    }
    world = make_world(tree, offered, starts={names[-1]: 10 * SECOND})
    # By then all sources but the first have sent again.
    for index, name in enumerate(names[1:-1]):
        world.at(5 * SECOND + index, lambda name=name: world.nodes[name].application.submit(world.core_of(name), 1))
        world.at(5 * SECOND + index + 1, world.nodes[name].rearm)
    world.run_until(11 * SECOND)
    closed = {name: stream(world, "receiver", name).closed for name in names}
    assert closed.pop(names[0]) is CloseCause.EVICTED
    assert set(closed.values()) == {None}
    assert world.nodes["receiver"].total("sessions_evicted") == 1
    assert all(stream(world, "receiver", name).messages >= 20 for name in names)


def test_slow_application_loses_alone_and_says_so():
    """One of four applications takes a tenth of the rate and gets OVERRUN.

    The other receivers, and the NAKs of all, continue.
    """
    tree = TreeBuilder(parameters())
    tree.source("source", "core")
    tree.repairer("relay", "core", "floor", parents=("source",))
    small = parameters(inbox_bytes=64 * KIB, rxw_bytes=64 * KIB)
    names = [
        tree.receiver(f"receiver-{index}", "floor", "relay", parameters=None if index else small) for index in range(4)
    ]
    world = make_world(
        tree,
        traffic(4000, size=200, close_at_ns=6 * SECOND),
        wirings={"receiver": lossy(0.02)},
        appetites={names[0]: ConsumptionRate(octets_per_s=20_000)},
    )
    finish(world, may_lose={names[0]: {LossCause.OVERRUN, LossCause.OVERLOAD}})
    slow, *others = (stream(world, name) for name in names)
    assert slow.lost[LossCause.OVERRUN] > 1000
    assert slow.delivered_sqns + slow.lost_sqns == 4000
    assert all(one.is_complete for one in others)
    assert slow.closed is CloseCause.FIN


def test_application_that_stands_still_for_a_while_catches_up():
    tree = lone_relay("repairer")
    world = make_world(
        tree,
        traffic(3000, size=200, close_at_ns=6 * SECOND),
        appetites={"receiver-0": ConsumptionRate(stops_at_ns=2 * SECOND, resumes_at_ns=5 * SECOND)},
    )
    finish(world)
    assert all(one.is_complete for one in streams(world))


@pytest.mark.parametrize("node", ["relay", "receiver-0", "source"])
def test_stopped_process_goes_on_where_it_was(node):
    """During SIGSTOP for a second, the socket buffer fills; the rest is repaired."""
    tree = lone_relay("repairer", so_rcvbuf=32 * KIB)
    world = make_world(tree, traffic(3000, close_at_ns=8 * SECOND))
    Faults(world).pause(node, 2 * SECOND, SECOND)
    finish(world)
    assert all(one.is_complete and one.is_from_start for one in streams(world))
