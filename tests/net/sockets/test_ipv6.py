"""IPv6 throughout: groups, addresses, NLAs, sockets.

The hosts are joined by lines, because loopback carries no IPv6 multicast.
"""

from __future__ import annotations

from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from pgm.net.sockets.interfaces import needs_scope
from pgm.topology.load import loads
from pgm.wire.control_packets import Nak, Spm
from tests.net.support.carried import DESKS, MESSAGES, Carried, Segment, hosts, run
from tests.net.support.lab import lab, needs_namespaces
from tests.net.support.processes import Process, processes
from tests.net.support.sniff import UDP, frames, sniffing

MTU = 1500


def segment(net: int, group: str) -> Segment:
    return Segment(6, net, f'group = "{group}"\ninterface = "fd00:8:{net}::/64"')


def link_local(net: int, group: str) -> Segment:
    return Segment(6, net, f'group = "{group}"\ninterface = "fe80::/64"', link_local=True)


TREES = {
    # The kernel does not ask on which interface an IPv6 group was joined: the relay must.
    "one-group-on-both-sides": Carried(link_local(1, "ff15::8:1"), link_local(2, "ff15::8:1"), relay="repairer"),
    # Messages of two packets, the first of them as long as they get.
    "ipv4-above": Carried(
        Segment(4, 1, 'group = "239.192.8.1"\ninterface = "10.8.1.0/24"'), segment(2, "ff12::8:2"), size=1600
    ),
}


@pytest.mark.network
@needs_namespaces
@pytest.mark.rfc("W-16", "NE-02")
@pytest.mark.parametrize("name", TREES)
def test_a_tree_over_ipv6(name: str, tmp_path: Path) -> None:
    case, file = TREES[name], tmp_path / "floor.pcap"
    with (
        hosts(case) as (found, _),
        processes(case.topology, "carried") as tree,
        sniffing(found["relay"], "vfloor", file),
    ):
        for host, line in (("relay", "vfloor"), ("floor", "vrelay")):  # single packets on the line
            found[host].run("ethtool", "-K", line, "tx-udp-segmentation", "off")
        accounts = run(tree, case, found)
    source, relay = accounts["source"]["snapshot"], accounts["relay"]
    assert relay["counters"]["odata_packets"] == source["counters"]["odata_packets"] >= MESSAGES
    assert sum(accounts[desk]["snapshot"]["counters"]["repaired_locally"] for desk in DESKS) > 0
    up, down = relay["segments"]
    assert (up["address"], down["address"]) == (case.core.address(2), case.floor.address(1))
    group = loads(case.topology).segments["floor"].group
    assert down["group"] == f"[{group}]:3056"
    crossed = frames(file)
    assert {(frame.version, frame.protocol, frame.is_fragment) for frame in crossed} == {(6, UDP, False)}
    assert max(frame.length for frame in crossed) <= MTU
    items = [item for frame in crossed for item in frame.items]
    assert {item.path_nla for item in items if isinstance(item, Spm)} == {case.floor.address(1)}
    naks = [item for item in items if isinstance(item, Nak)]
    assert {item.group_nla for item in naks} == {group}
    # Receivers take the path for the source; the relay speaks of the true one, whatever its family (INT-Q3).
    assert {item.source_nla for item in naks} <= {case.floor.address(1), case.core.address(1)}


@pytest.mark.network
@needs_namespaces
def test_by_address_without_a_file(tmp_path: Path) -> None:
    url = "pgm://[ff15::8:9]:4000?data_port=7500&interface=fd00:8:9::/64"
    text = b"over IPv6\n" * 5000
    file = tmp_path / "text"
    file.write_bytes(text)
    with lab() as made, ExitStack() as stack:
        here, there = made.host("here"), made.host("there")
        made.join(here, "fd00:8:9::1/64", there, "fd00:8:9::2/64")
        written = stack.enter_context((tmp_path / "written").open("wb"))
        receiver = stack.enter_context(closing(Process("recv", ["recv", url, "--wait", "60s"], there, stdout=written)))
        there.until(lambda: "ff15::8:9" in there.run("ip", "maddress", "show", "dev", "vhere"))
        read = stack.enter_context(file.open("rb"))
        sender = stack.enter_context(closing(Process("send", ["send", url, "--json"], here, stdin=read)))
        assert sender.account()["octets"] == len(text)
        assert receiver.wait() == 0, receiver.log
    assert (tmp_path / "written").read_bytes() == text


@pytest.mark.parametrize(
    ("address", "needs"),
    [
        ("10.0.0.1", False),
        ("169.254.1.1", False),
        ("224.0.0.1", False),
        ("fd00::1", False),
        ("fe80::1", True),
        ("febf::1", True),
        ("fec0::1", False),
        ("ff02::1", True),
        ("ff01::1", True),
        ("ff12::1", True),
        ("ff32::1", True),
        ("ff15::1", False),
        ("ff0e::1", False),
    ],
)
def test_scope(address: str, needs: bool) -> None:
    assert needs_scope(address) is needs
