"""Interfaces and addresses that go away under a node: one event at the start and one at the end, with the cost."""

from __future__ import annotations

import struct
import subprocess
from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from pgm.core.counters import Counters
from pgm.core.effects import Notice
from pgm.core.events import EVENTS
from pgm.net.control.outages import Outages, WatchedSegment
from pgm.net.sockets.netlink import AddressChange, LinkChange, changes_untrusted
from pgm.units import SECOND
from tests.net.support.lab import lab, needs_namespaces
from tests.net.support.processes import processes

ETH = WatchedSegment("floor", "eth0", 7, "10.0.2.7")
TREE = """
version = 1
name = "outages"
[streams.s]
data_port = 7500
rate = "8Mbit/s"
window = "30s"
[segments.lan]
group = "239.192.7.7"
interface = "10.77.0.0/24"
[nodes.source]
role = "source"
segment = "lan"
address = "10.77.0.1"
streams = ["s"]
[nodes.desk]
role = "receiver"
segment = "lan"
address = "10.77.0.2"
streams = ["s"]
parents = ["source"]
"""


def ids(notices: Iterable[Notice]) -> list[str]:
    found = [notice.code for notice in notices]
    assert set(found) <= set(EVENTS)
    return found


def test_outage_of_8_s_is_told_at_start_and_end_with_its_cost() -> None:
    outages, counters = Outages([ETH]), Counters()
    assert ids(outages.take(LinkChange(7, is_up=False), counters, 0)) == ["interface-down"]
    assert ids(outages.take(LinkChange(7, is_up=False), counters, SECOND)) == []
    assert ids(outages.take(LinkChange(7, is_up=True), counters, 8 * SECOND)) == ["interface-up"]
    assert ids(outages.sample(counters, 0, 9 * SECOND)) == []  # the gap is not known yet
    counters.repaired_sqns, counters.lost_sqns = 1601, 3
    assert ids(outages.sample(counters, 12, 15 * SECOND)) == []
    (cost,) = outages.sample(counters, 0, 16 * SECOND)
    assert (cost.code, cost.text) == ("outage-cost", "eth0 was gone for 8.0 s: 1,601 packets repaired, 3 lost")
    assert ids(outages.sample(counters, 0, 17 * SECOND)) == []


def test_changes_of_other_interfaces_and_addresses_are_no_events() -> None:
    outages, counters = Outages([ETH]), Counters()
    others = [LinkChange(8, is_up=False), AddressChange(7, "10.0.2.8", is_there=False), LinkChange(7, is_up=True)]
    assert [one for change in others for one in outages.take(change, counters, 0)] == []
    (gone,) = outages.take(AddressChange(7, "10.0.2.7", is_there=False), counters, 0)
    assert (gone.code, gone.text) == ("address-gone", "10.0.2.7 of eth0; segments floor")


def test_refused_sends_are_two_events_however_many() -> None:
    outages, counters = Outages([ETH]), Counters()
    told: list[Notice] = []
    for second in range(60):
        counters.send_errors += 50 if second < 28 else 0
        told += outages.sample(counters, 0, second * SECOND)
    assert ids(told) == ["sends-fail", "sends-resume"]
    assert "1,400 packets were refused in 27 s" in told[1].text
    assert "interface" in EVENTS["sends-fail"].remedy


@given(st.binary(max_size=80), st.integers(16, 21))
def test_octets_on_the_netlink_socket_never_raise(octets: bytes, kind: int) -> None:
    list(changes_untrusted(octets))
    list(changes_untrusted(struct.pack("=IHHII", 16 + len(octets), kind, 0, 0, 0) + octets))


@needs_namespaces
def test_interface_and_address_that_go_are_told_by_the_nodes() -> None:
    """The kernel tells a node with its own sockets: veth goes down at the desk, and the source loses its address."""
    with lab() as made, processes(TREE, "outages") as tree:
        one, other = made.host("a"), made.host("b")
        ours, theirs = made.join(one, "10.77.0.1/24", other, "10.77.0.2/24")
        desk = tree.start("desk", host=other)
        source = tree.start("source", "--generate", "100000000", host=one, stdin=subprocess.DEVNULL)
        desk.line_with("opened: ")
        other.run("ip", "link", "set", theirs, "down")
        desk.line_with(f"interface-down: {theirs}; segments lan")
        other.run("ip", "link", "set", theirs, "up")
        desk.line_with(f"interface-up: {theirs}, after")
        one.run("ip", "address", "del", "10.77.0.1/24", "dev", ours)
        source.line_with(f"address-gone: 10.77.0.1 of {ours}")
        one.add_address(ours, "10.77.0.1/24")
        source.line_with(f"address-back: 10.77.0.1 of {ours}")
        assert desk.log.count("interface-down: ") == source.log.count("address-gone: ") == 1
