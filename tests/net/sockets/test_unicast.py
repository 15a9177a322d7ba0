"""A leg across a network without multicast.

Two sites and a lone receiver are joined by a router that knows unicast only.

    source ── core ── west ═╗           ╔═ east ── site ── desk-1, desk-2
                            ╠═ router ══╣
                            ╝           ╚═ cloud (a receiver on the leg itself)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import attrs
import pytest
import trio

from deploy.node.sample_messages import generate
from pgm.core.effects import Send
from pgm.net.link.link import WouldBlock
from pgm.topology.load import loads
from pgm.wire.control_packets import Nak, Spm
from pgm.wire.formats import PacketType
from tests.net.support.carried import MESSAGES, Carried, Segment, run
from tests.net.support.elements import running
from tests.net.support.lab import Host, lab, needs_namespaces
from tests.net.support.listening import Taken, take_all
from tests.net.support.places import LOSSY, Place
from tests.net.support.processes import processes
from tests.net.support.sniff import PGM, TSHARK, UDP, complaints, frames, sniffing

HOME = {
    "west": "west",
    "east": "east",
    "desk-1": "site",
    "desk-2": "site",
    "desk-cloud": "cloud",
    "source": "source",
}


@attrs.frozen
class Sites(Carried):
    """Both sites. `core` and `floor` are their multicast segments; the leg has three networks."""

    version: int = 4
    keys: str = ""

    def leg(self, net: int) -> Segment:
        """One end of the leg."""
        return Segment(self.version, net)

    @property
    def topology(self) -> str:
        """Return the topology file."""
        core, site = self.core, self.floor
        west, east, cloud = (self.leg(net).address(1) for net in (3, 4, 5))
        return f"""
version = 1
name = "carried"
parameters = {{ ihb_min = "20ms", fin_quiet_ivl = "1500ms" }}
[streams.s]
data_port = 7500
rate = "40Mbit/s"
[segments.core]
{core.keys}
[segments.wan]
unicast = true
{self.keys}
[segments.site]
{site.keys}
[nodes.source]
role = "source"
segment = "core"
address = "{core.address(1)}"
streams = ["s"]
[nodes.west]
role = "aggregator"
upstream = {{ segment = "core", address = "{core.address(2)}" }}
downstream = [{{ segment = "wan", address = "{west}", loss = {{ loss = "30%" }} }}]
parents = ["source"]
[nodes.east]
role = "repairer"
upstream = {{ segment = "wan", address = "{east}", loss = {{ loss = "3%" }} }}
downstream = [{{ segment = "site", address = "{site.address(1)}" }}]
parents = ["west"]
[nodes.desk-cloud]
role = "receiver"
segment = "wan"
address = "{cloud}"
parents = ["west"]
loss = {{ loss = "3%" }}
[nodes.desk-1]
role = "receiver"
segment = "site"
address = "{site.address(11)}"
parents = ["east"]
loss = {{ loss = "5%" }}
[nodes.desk-2]
role = "receiver"
segment = "site"
address = "{site.address(12)}"
parents = ["east"]
loss = {{ loss = "5%" }}
"""


@contextmanager
def sites(case: Sites) -> Iterator[Mapping[str, Host]]:
    """Make the hosts, and the router between them."""
    with lab() as made:
        found = {name: made.host(name) for name in ("source", "west", "router", "east", "site", "cloud")}
        made.join(found["source"], case.core.with_length(1), found["west"], case.core.with_length(2))
        made.join(found["east"], case.floor.with_length(1), found["site"], case.floor.with_length(11))
        found["site"].add_address("veast", case.floor.with_length(12))
        family = "-6" if case.version == 6 else "-4"
        found["router"].run("sysctl", "-qw", "net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1")
        for name, net in (("west", 3), ("east", 4), ("cloud", 5)):
            end = case.leg(net)
            made.join(found[name], end.with_length(1), found["router"], end.with_length(99))
            found[name].run("ip", family, "route", "add", "default", "via", end.address(99))
            for host in (name, "router"):  # single packets on the line
                line = "vrouter" if host == name else f"v{name}"
                found[host].run("ethtool", "-K", line, "tx-udp-segmentation", "off")
        yield found


CASES = {
    "udp-ipv4": Sites(
        Segment(4, 1, 'group = "239.192.8.1"\ninterface = "10.8.1.0/24"'),
        Segment(4, 2, 'group = "239.192.8.1"\ninterface = "10.8.2.0/24"'),
    ),
    "ip-ipv6": Sites(
        Segment(4, 1, 'group = "239.192.8.1"\ninterface = "10.8.1.0/24"'),
        Segment(6, 2, 'group = "ff15::8:1"\ninterface = "fd00:8:2::/64"\ntransport = "ip"'),
        version=6,
        keys='transport = "ip"',
    ),
}


@pytest.mark.network
@needs_namespaces
@pytest.mark.rfc("NE-02", "RCV-44")
@pytest.mark.parametrize("name", CASES)
def test_a_leg_across_a_router_without_multicast(name: str, tmp_path: Path) -> None:
    case, file = CASES[name], tmp_path / "wan.pcap"
    with (
        sites(case) as found,
        processes(case.topology, "carried") as tree,
        sniffing(found["router"], "vwest", file),
    ):
        accounts = run(tree, case, found, HOME)
    west, east, cloud = (case.leg(net).address(1) for net in (3, 4, 5))
    (row,) = [row for row in accounts["west"]["segments"] if row["segment"] == "wan"]
    assert (row["address"], row["peers"]) == (west, [east, cloud])
    assert accounts["west"]["counters"]["injected_losses"] > 0
    assert accounts["east"]["counters"]["injected_losses"] > 0
    assert accounts["east"]["counters"]["rdata_packets"] > 0
    assert accounts["west"]["counters"]["rdata_packets"] > 0, "a relay repairs what it passed down"
    crossed = frames(file)
    assert {frame.protocol for frame in crossed} == {PGM if "ip" in case.keys else UDP}
    assert not [frame for frame in crossed if frame.is_multicast or frame.has_alert or frame.is_fragment]
    down = [frame for frame in crossed if frame.source == west]
    up = [frame for frame in crossed if frame.source != west]
    assert {(frame.source, frame.destination) for frame in up} == {(east, west), (cloud, west)}
    assert {frame.kind for frame in up} >= {PacketType.NAK}
    for kind in (PacketType.SPM, PacketType.ODATA, PacketType.NCF):
        copies = [
            [frame.octets for frame in down if (frame.destination, frame.kind) == (to, kind)] for to in (east, cloud)
        ]
        assert copies[0] == copies[1], kind
        assert len(copies[0]) >= (MESSAGES if kind is PacketType.ODATA else 1)
    items = [item for frame in crossed for item in frame.items]
    assert {item.path_nla for item in items if isinstance(item, Spm)} == {west}
    naks = [item for item in items if isinstance(item, Nak) and item.kind is PacketType.NAK]
    assert {(item.source_nla, item.group_nla) for item in naks} == {(west, "::" if case.version == 6 else "0.0.0.0")}
    if TSHARK is not None and "ip" in case.keys:
        assert complaints(file) == []


def loop(place: Place) -> str:
    """Return a tree on loopback, which carries unicast as well as any network.

    source ── lan ── west ══ leg ══ east ── hall ── desk
    """
    return f"""
version = 1
name = "t{place.number}"
parameters = {{ {LOSSY}, so_sndbuf = "16KiB", gro = false }}
[streams.s]
data_port = 7500
rate = "400Mbit/s"
{place.segment("lan", 0)}
[segments.leg]
unicast = true
unicast_port = {place.port}
{place.segment("hall", 1)}
[nodes.source]
role = "source"
segment = "lan"
address = "{place.address(1)}"
streams = ["s"]
[nodes.west]
role = "repairer"
upstream = {{ segment = "lan", address = "{place.address(2)}" }}
downstream = [{{ segment = "leg", address = "{place.address(3)}" }}]
parents = ["source"]
[nodes.east]
role = "aggregator"
upstream = {{ segment = "leg", address = "{place.address(4)}" }}
downstream = [{{ segment = "hall", address = "{place.address(5)}" }}]
parents = ["west"]
[nodes.desk]
role = "receiver"
segment = "hall"
address = "{place.address(6)}"
parents = ["east"]
loss = {{ loss = "5%" }}
[nodes.other]
role = "receiver"
segment = "leg"
address = "{place.address(7)}"
parents = ["west"]
loss = {{ loss = "5%" }}
"""


async def test_a_leg_on_one_machine(place: Place) -> None:
    topology = loads(loop(place))
    rows = next(iter(generate(1000, 1000, 1, most=1000)))
    async with running(topology, "west", "east", "desk", "other", "source") as tree:
        taken = {name: Taken() for name in tree.receivers}
        async with trio.open_nursery() as nursery:
            for name, receiver in tree.receivers.items():
                nursery.start_soon(take_all, receiver, 1, taken[name])
            await tree.sources["source"].send_batch(rows)
            await tree.sources["source"].aclose()
        for found in taken.values():
            assert found.messages == [row.tobytes() for row in rows]
        assert tree.core("west").counters.odata_packets == 1000  # counted once, regardless of the copies
        assert tree.receivers["other"].counters.repaired_sqns > 0
        assert {session.state.path_nla for session in tree.core("east").sessions} == {place.address(3)}
        assert {session.state.path_nla for session in tree.receivers["other"].driver.core.sessions} == {
            place.address(3)
        }


@pytest.mark.parametrize("gone", [0, 3, 4, 6])
async def test_unicast_control_dropped_by_a_full_link_is_counted(place: Place, gone: int) -> None:
    async with running(loads(loop(place)), "west") as tree:
        driver = tree.drivers["west"]
        link, counters = driver.links[1], driver.core.counters
        assert link.plan.peers is not None
        left = gone

        def refuse_what_is_more(*_: object) -> bool | None:
            nonlocal left
            left -= 1
            return True if left >= 0 else None

        link.sockets.gso = False
        link._send_once = refuse_what_is_more
        before = counters.sends_dropped
        driver.perform([Send(link.segment, bytes(350), 100)])
        assert counters.sends_dropped - before == 4 * len(link.plan.peers) - gone
        driver.perform([Send(link.segment, bytes(350), 100, to=link.plan.peers[0])])
        assert counters.sends_dropped - before == 4 * len(link.plan.peers) - gone + 4


async def test_a_full_line_is_taken_up_where_it_stopped(place: Place) -> None:
    """Every peer gets every packet once, regardless of the copy at which the link had to wait."""
    topology = loads(loop(place))
    async with running(topology, "west") as tree:
        link = tree.drivers["west"].links[1]
        sends: list[tuple[str, bytes]] = []
        refused = 0

        def refuse_every_third(
            pieces: list[memoryview], _stride: int, _ancillary: object, destination: tuple[str, int]
        ) -> bool | None:
            nonlocal refused
            if (len(sends) + refused) % 3 == 2:
                refused += 1
                return None
            sends.append((destination[0], b"".join(pieces)))
            return True

        link.sockets.gso = False
        link._send_once = refuse_every_third
        octets = b"".join(bytes([number]) * 100 for number in range(5))
        at = 0
        stops: list[int] = []
        for _ in range(100):
            try:
                link.send(Send(link.segment, octets, 100, is_data=True), at)
                break
            except WouldBlock as blocked:
                at = blocked.at
                stops.append(at)
        assert stops == sorted(stops)
        assert len(stops) == refused > 2
        packets = [octets[first : first + 100] for first in range(0, 500, 100)]
        assert link.plan.peers is not None
        assert sends == [(peer, packet) for peer in link.plan.peers for packet in packets]
