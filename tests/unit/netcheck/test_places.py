"""Groups that a host hears, and those that it must not hear; shares of a rate; turns of senders."""

from __future__ import annotations

import attrs
import pytest

from deploy.doctor.network import SegmentUse, uses_of
from deploy.netcheck.command import shares_of
from deploy.netcheck.conductor import turns_of
from deploy.netcheck.places import ProbePlace, bare, ears_of
from deploy.netcheck.probes import SegmentLoad
from deploy.netcheck.reports import HostReport
from pgm.fleet.nodes import NodeAddress, NodeRecord, NodeState
from pgm.net.sockets.interfaces import Interface
from pgm.topology.model import Topology
from pgm.topology.plan import plan_all
from tests.unit.fleet.agents import snapshot
from tests.unit.netcheck.hosts import place, sound
from tests.unit.topology.trees import topology


def tree(core: str, floor: str) -> Topology:
    """Return a tree whose segments have these interfaces."""
    return topology(("10.0.0.0/24", core), ("10.0.1.0/24", floor))


def places_on(made: Topology, node: str, **interfaces: Interface) -> tuple[list[ProbePlace], dict[str, SegmentUse]]:
    plans = plan_all(made)
    uses = uses_of(plans)
    found = [
        ProbePlace(
            one,
            interfaces[one.name],
            SegmentLoad(4, 1472, 1),
            16,
            1,
            one.downstream,
            frozenset(uses[one.name].addresses),
        )
        for one in plans[node].segments
    ]
    return found, uses


@pytest.mark.parametrize(("core", "floor"), [("10.0.0.0/24", "10.0.1.0/24"), ("eth0", "eth0")])
def test_foreign_groups_must_be_silent_on_each_interface(core: str, floor: str) -> None:
    made = tree(core, floor)
    eth0, eth1 = Interface("eth0", 2, "10.0.0.2", "10.0.0.0/24"), Interface("eth1", 3, "10.0.1.1", "10.0.1.0/24")
    places, uses = places_on(made, "relay", core=eth0, floor=eth1)
    found = {(ear.group, ear.interface.name): ear.allowed for ear in ears_of(made, places, uses)}
    assert found == {
        ("239.192.0.1", "eth0"): {"core"},
        ("239.192.0.2", "eth1"): {"floor"},
        ("239.192.0.2", "eth0"): set(),
        ("239.192.0.1", "eth1"): set(),
    }
    places, uses = places_on(made, "desk-1", floor=attrs.evolve(eth1, address="10.0.1.2"))
    found = {(ear.group, ear.interface.name): ear.allowed for ear in ears_of(made, places, uses)}
    assert found == {("239.192.0.2", "eth1"): {"floor"}, ("239.192.0.1", "eth1"): set()}


def test_segments_of_one_network_do_not_leak() -> None:
    made = tree("10.0.0.0/16", "10.0.0.0/16")
    wide = Interface("eth0", 2, "10.0.1.2", "10.0.0.0/16")
    places, uses = places_on(made, "desk-1", floor=wide)
    (ear,) = ears_of(made, places, uses)
    assert (ear.group, ear.allowed) == ("239.192.0.2", frozenset({"floor"}))
    places, uses = places_on(made, "desk-1", floor=Interface("lo", 1, "127.0.0.1", "127.0.0.0/8"))
    assert [ear.group for ear in ears_of(made, places, uses)] == ["239.192.0.2"]


def test_segments_that_differ_by_port_share_an_ear() -> None:
    floor = 'group = "239.192.0.1"\nport = 4000\ninterface = "10.0.0.0/16"'
    made = topology(("10.0.0.0/24", "10.0.0.0/16"), ('group = "239.192.0.2"\ninterface = "10.0.1.0/24"', floor))
    wide = Interface("eth0", 2, "10.0.0.2", "10.0.0.0/16")
    places, uses = places_on(made, "relay", core=wide, floor=wide)
    (ear,) = ears_of(made, places, uses)
    assert ear.allowed == {"core", "floor"}


def test_questions_go_to_the_segment_alone() -> None:
    made = tree("10.0.0.0/24", "10.0.1.0/24")
    (desk,), _ = places_on(made, "desk-1", floor=Interface("eth1", 3, "10.0.1.2", "10.0.1.0/25"))
    assert [desk.is_near(one) for one in ("10.0.1.1", "10.0.1.77", "10.0.1.200", "10.0.0.1", "junk")] == [
        True,
        True,
        False,
        False,
        False,
    ]
    (desk,), _ = places_on(made, "desk-1", floor=Interface("eth1", 3, "fe80::2", "fe80::/64"))
    assert [desk.is_near(one) for one in ("fe80::1%eth1", "FE80:0::1", "10.0.1.2%a")] == [True, True, True]


def test_addresses_have_one_form() -> None:
    assert {bare(one) for one in ("fe80::1%a", "fe80::1%b", "FE80:0::1", "fe80::1")} == {"fe80::1"}
    assert (bare("10.0.0.1"), bare("junk%a")) == ("10.0.0.1", "junk%a")


def test_bursts_have_the_rate_that_the_streams_leave() -> None:
    reports = sound()
    busy = {"sent_octets": {"1s": {"per_s": 10_000_000.0}}}
    record = NodeRecord(
        "t",
        "source",
        state=NodeState.UP,
        snapshot={**snapshot("source"), "rates": busy, "segments": [{"segment": "lan", "address": "10.0.0.1"}]},
    )
    assert shares_of(reports, []) == {"lan": 1.0}
    assert shares_of(reports, [record]) == {"lan": pytest.approx(0.2)}
    assert record.places == (NodeAddress("lan", "both", "10.0.0.1"),)
    full = {**busy, "sent_octets": {"1s": {"per_s": 12_400_000.0}}}
    assert shares_of(reports, [attrs.evolve(record, snapshot={**(record.snapshot or {}), "rates": full})]) == {
        "lan": 0.0
    }


def test_one_sender_of_a_segment_sends_at_a_time() -> None:
    def host(number: int, *segments: str) -> HostReport:
        places = {name: attrs.evolve(place(0), segment=name) for name in segments}
        return HostReport(number, f"h{number}", places, 0)

    opened = {0: host(0, "a", "b"), 1: host(1, "b"), 2: host(2, "a", "c")}
    assert turns_of(opened, {"a": 1.0, "b": 0.5}) == [[(0, "a"), (1, "b")], [(0, "b"), (2, "a")]]
    assert turns_of(opened, {}) == []
