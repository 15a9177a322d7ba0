"""Verdicts of explanations against places of losses that only the test knows: links, sockets, budgets, applications."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from pgm.flight.excerpt import about_packets
from pgm.flight.verdicts.explanation import Explanation, explain
from pgm.flight.verdicts.view import FlightView
from pgm.sim.applications import ConsumptionRate
from pgm.sim.checks.completion import settle
from pgm.sim.faults import Faults
from pgm.sim.runs.flight import FlightRecorders
from pgm.sim.trees import TreeBuilder
from pgm.sim.world import World
from pgm.units import KIB, MIB, SECOND
from pgm.wire.formats import PacketType
from tests.sim.flight.planted import Planter, note_refused
from tests.sim.support.worlds import MS, make_world, parameters, traffic

ODATA, RDATA, NAK, NCF = PacketType.ODATA, PacketType.RDATA, PacketType.NAK, PacketType.NCF

# name, node whose link loses, segment, way, node that explains, expected kind, node and segment
LINKS = (
    ("way out of the source", "source", "core", "out", "desk-1", "segment", "", "core"),
    ("way into relay a", "relay-a", "core", "in", "desk-1", "link", "relay-a", "core"),
    ("way into relay b", "relay-b", "core", "in", "far-1", "link", "relay-b", "core"),
    ("way out of relay a", "relay-a", "floor", "out", "desk-2", "segment", "", "floor"),
    ("way into desk 1", "desk-1", "floor", "in", "desk-1", "link", "desk-1", "floor"),
    ("way into desk 2", "desk-2", "floor", "in", "desk-2", "link", "desk-2", "floor"),
    ("way into the repairer", "keeper", "floor", "in", "keeper", "link", "keeper", "floor"),
    ("way into hall desk", "hall-1", "core", "in", "hall-1", "link", "hall-1", "core"),
    ("way into the end of a leg", "far-1", "leg", "in", "far-1", "link", "far-1", "leg"),
)


def tree(**changes: object) -> TreeBuilder:
    """Return a tree of three tiers: a hall, a floor with a repairer, and a unicast leg."""
    named = dict(changes)
    own = {name: named.pop(name) for name in ("keeper", "desk", "source", "relay") if name in named}
    built = TreeBuilder(parameters(**named), legs=("leg",))
    built.source("source", "core", parameters=own.get("source"))  # type: ignore[arg-type]
    relay: Any = own.get("relay")
    built.aggregator("relay-a", "core", "floor", parents=("source",), repairers=("keeper",), parameters=relay)
    built.aggregator("relay-b", "core", "leg", parents=("source",), parameters=relay)
    built.repairer("keeper", "floor", parents=("relay-a",), parameters=own.get("keeper"))  # type: ignore[arg-type]
    for at in (1, 2, 3):
        built.receiver(f"desk-{at}", "floor", "keeper", "relay-a", parameters=own.get("desk"))  # type: ignore[arg-type]
    for at in (1, 2):
        built.receiver(f"far-{at}", "leg", "relay-b")
        built.receiver(f"hall-{at}", "core", "source")
    return built


def run(world: World, until_s: int = 4) -> None:
    """Run until everything is sent and repaired."""
    world.run_until(until_s * SECOND)
    settle(world, within_ns=30 * SECOND, quiet_ns=3 * SECOND)


def told(world: World, recorders: FlightRecorders) -> FlightView:
    assert world.nodes
    return FlightView.of(recorders.contents())


def flown(
    built: TreeBuilder,
    messages: int = 1000,
    appetites: dict[str, ConsumptionRate] | None = None,
    skews_ns: dict[str, int] | None = None,
    size: int = 200,
) -> tuple[World, FlightRecorders]:
    recorders = FlightRecorders(2 * MIB, skews_ns)
    offered = traffic(messages=messages, rate=500, burst=1, size=size, close_at_ns=60 * SECOND)
    return make_world(built, offered, more=(recorders,), is_timed=False, appetites=appetites), recorders


def why(one: Explanation) -> str:
    return f"{one.sqn}: {one.loss} {one.repair} {one.steps}"


def test_verdict_names_the_link_that_lost_each_of_36_packets() -> None:
    world, recorders = flown(tree())
    world.run_until(SECOND // 2)
    planter, rng = Planter(world), random.Random(26)
    sqns = rng.sample(range(20, 980, 13), 36)
    places = [LINKS[at % len(LINKS)] for at in range(36)]
    for sqn, (_, node, segment, way, *_) in zip(sqns, places, strict=True):
        planter.on(node, segment, way).add(ODATA, sqn)
    run(world)
    assert planter.left == 0
    view = told(world, recorders)
    right = Counter()
    for sqn, (name, _, _, _, at, kind, lost_at, segment) in zip(sqns, places, strict=True):
        one = explain(view, "stream", sqn, at)
        assert one.loss.kind == kind, (name, why(one))
        assert one.loss.segment == segment, (name, why(one))
        assert lost_at in ("", one.loss.node), (name, why(one))
        assert one.loss.is_certain
        assert one.repair.kind in ("in-time", "parent-lacked"), why(one)
        right[name] += 1
    assert right.total() == 36


def test_verdict_counts_relays_mended_before_they_told_of_a_gap() -> None:
    """The RDATA that a receiver of the core asked for reaches the relays within their time for reordering."""
    world, recorders = flown(tree(relay=parameters(reorder_ivl=100 * MS)))
    world.run_until(SECOND // 2)
    planter = Planter(world)
    for sqn in (100, 200, 300):
        planter.on("source", "core", "out").add(ODATA, sqn)
    run(world)
    view = told(world, recorders)
    for sqn in (100, 200, 300):
        one = explain(view, "stream", sqn, "hall-1")
        assert (one.loss.kind, one.loss.segment) == ("segment", "core"), why(one)


@pytest.mark.parametrize("reorder_ivl", [MS, 250 * MS])  # a relay tells of a gap that much later
def test_verdict_names_the_socket_that_was_full(reorder_ivl: int) -> None:
    relay = parameters(so_rcvbuf=8 * KIB, reorder_ivl=reorder_ivl)
    world, recorders = flown(tree(so_rcvbuf=8 * KIB, relay=relay))
    world.run_until(SECOND // 2)
    places = (
        ("desk-1", "floor", "desk-1"),
        ("relay-a", "core", "desk-2"),
        ("keeper", "floor", "keeper"),
        ("hall-2", "core", "hall-2"),
    )
    refused = {node: note_refused(world, node) for node, _, _ in places}
    for turn, (node, _, _) in enumerate(places):
        Faults(world).pause(node, 1200 * MS + turn * 400 * MS, 150 * MS)
    run(world)
    view = told(world, recorders)
    named = 0
    for node, segment, at in places:
        chosen = sorted(refused[node])[::12][:3]
        for sqn in chosen:
            one = explain(view, "stream", sqn, at)
            assert (one.loss.kind, one.loss.node, one.loss.segment) == ("socket-buffer", node, segment), why(one)
            named += 1
    assert named >= 8


def test_verdict_names_the_budget_that_refused_requests() -> None:
    built = tree(keeper=parameters(child_nak_rte=1, session_nak_rte=1))
    world, recorders = flown(built)
    world.run_until(SECOND // 2)
    planter = Planter(world)
    sqns = (100, 140, 180, 220, 260)
    for sqn in sqns:
        planter.on("desk-1", "floor", "in").add(ODATA, sqn)
    run(world)
    assert world.nodes["keeper"].total("nak_packets_braked") >= 3
    view = told(world, recorders)
    shed = [explain(view, "stream", sqn, "desk-1") for sqn in sqns]
    named = [one for one in shed if one.repair.kind == "nak-shed"]
    assert len(named) >= 3, [why(one) for one in shed]
    for one in named:
        assert (one.repair.other, one.repair.cause) == ("keeper", "nak_packets_braked"), why(one)
        assert (one.loss.kind, one.loss.node) == ("link", "desk-1"), why(one)


def test_verdict_names_the_application_that_was_too_slow() -> None:
    built = tree(source=parameters(txw_secs=SECOND), desk=parameters(inbox_bytes=64 * KIB, rxw_bytes=64 * KIB))
    appetites = {"desk-3": ConsumptionRate(stops_at_ns=1100 * MS, resumes_at_ns=8 * SECOND)}
    world, recorders = flown(built, messages=2000, appetites=appetites, size=1000)
    run(world, until_s=10)
    lost = [
        event
        for node in [told(world, recorders).nodes["desk-3"]]
        for tsi in node.tsis_any()
        for event in node.events(tsi, None)
        if event.cause == "overrun"
    ]
    assert world.nodes["desk-3"].total("lost_sqns") > 100
    assert lost
    view = told(world, recorders)
    sqns = [event.first + offset for event in lost for offset in range(0, event.count, 50)][:6]
    for sqn in sqns:
        one = explain(view, "stream", sqn, "desk-3")
        assert (one.loss.kind, one.loss.node) == ("application", "desk-3"), why(one)
        assert explain(view, "stream", sqn).loss == one.loss


def test_verdict_names_the_packet_of_the_repair_that_was_lost() -> None:
    world, recorders = flown(tree())
    world.run_until(SECOND // 2)
    planter = Planter(world)
    cases = {
        100: (("desk-1", "out", NAK), "nak-lost"),
        200: (("keeper", "in", NAK), "nak-lost"),
        300: (("desk-1", "in", NCF), "ncf-lost"),
        400: (("desk-1", "in", RDATA), "rdata-lost"),
        500: (("keeper", "out", RDATA), "rdata-lost"),
    }
    for sqn, ((node, way, kind), _) in cases.items():
        planter.on("desk-1", "floor", "in").add(ODATA, sqn)
        planter.on(node, "floor", way).add(kind, sqn)
    run(world)
    assert planter.left == 0
    view = told(world, recorders)
    for sqn, (_, kind) in cases.items():
        one = explain(view, "stream", sqn, "desk-1")
        assert (one.repair.kind, one.repair.other) == (kind, "keeper"), why(one)
        assert (one.loss.kind, one.loss.node) == ("link", "desk-1"), why(one)


def test_verdict_names_a_repair_sent_before_the_ncf_was_read() -> None:
    world, recorders = flown(tree())
    world.run_until(SECOND // 2)
    planter = Planter(world)
    for kind in (ODATA, RDATA):
        planter.on("desk-1", "floor", "in").add(kind, 200)
    while not world.nodes["desk-1"].total("nak_packets"):
        world.run_until(world.now_ns + MS // 10)
    Faults(world).pause("desk-1", world.now_ns + 1, 20 * MS)
    run(world)
    one = explain(told(world, recorders), "stream", 200, "desk-1")
    assert (one.repair.kind, one.repair.other) == ("rdata-lost", "keeper"), why(one)


def test_verdict_blames_a_parent_no_longer_than_the_node_waited() -> None:
    """The relay asks the repairer, whose repair reaches the receiver and not the relay."""
    world, recorders = flown(tree(relay=parameters(relay_cache_ivl=0)))
    world.run_until(SECOND // 2)
    planter = Planter(world)
    planter.on("desk-1", "floor", "in").add(ODATA, 200)
    planter.on("keeper", "floor", "in").add(NAK, 200, times=2)
    planter.on("relay-a", "floor", "in").add(RDATA, 200, times=9)
    run(world)
    one = explain(told(world, recorders), "stream", 200, "desk-1")
    assert one.target is not None
    assert max(step.took_ns for step in one.steps) <= one.target.took_ns, why(one)
    assert (one.repair.kind, one.repair.other) == ("nak-lost", "keeper"), why(one)


def test_verdict_tells_a_late_process_from_too_many_requests() -> None:
    slow = parameters(rdata_hold_ivl=100 * MS)
    world, recorders = flown(tree(desk=parameters(nak_max_outstanding=63), keeper=slow))
    world.run_until(SECOND // 2)
    planter = Planter(world)
    late, many = 200, range(600, 900)
    for sqn in (late, *many):
        planter.on("desk-1", "floor", "in").add(ODATA, sqn)
    while not world.nodes["desk-1"].total("missing_sqns"):
        world.run_until(world.now_ns + MS)
    Faults(world).pause("desk-1", world.now_ns + 1, 100 * MS)
    run(world)
    view = FlightView.of(
        about_packets(ring, [("stream", sqn) for sqn in (late, many[-5])]) for ring in recorders.contents()
    )
    one = explain(view, "stream", late, "desk-1")
    assert one.repair.kind == "asked-late", why(one)
    one = explain(view, "stream", many[-5], "desk-1")
    assert one.repair.kind == "waiting-for-room", why(one)


def test_clock_offsets_are_found_within_their_error() -> None:
    skews = {"desk-1": 40 * MS, "relay-a": -7 * MS, "keeper": 3 * SECOND}
    world, recorders = flown(tree(), skews_ns=skews)
    world.run_until(SECOND // 2)
    planter = Planter(world)
    for sqn in range(50, 900, 50):
        planter.on("desk-1", "floor", "in").add(ODATA, sqn)
        planter.on("relay-a", "core", "in").add(ODATA, sqn + 20)
        planter.on("keeper", "floor", "in").add(ODATA, sqn + 35)
    run(world)
    view = told(world, recorders)
    clocks = {clock.host: clock for clock in view.clocks.values()}
    assert clocks["simulated"].is_reference
    for node, skew_ns in skews.items():
        clock = clocks[node]
        assert clock.error_ns is not None
        assert clock.pairs > 3
        assert abs(clock.ahead_ns - skew_ns) <= clock.error_ns <= MS, (node, clock)
    for sqn in range(50, 900, 50):
        one = explain(view, "stream", sqn, "desk-1")
        assert (one.loss.kind, one.loss.node, one.repair.kind) == ("link", "desk-1", "in-time"), why(one)
