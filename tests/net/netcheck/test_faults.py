"""Three hosts whose network has a fault of each kind: `pgm netcheck` names each place, and its remedy."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.test_json import documented
from tests.folders import short_folder
from tests.net.netcheck.fleet_process import FleetProcess, fleet
from tests.net.netcheck.switch import add_bridge, plug
from tests.net.support.lab import Host, Lab, lab, needs_namespaces

TREE = """
version = 1
name = "netcheck"
[streams.s]
data_port = 7500
rate = "40Mbit/s"
[streams.t]
data_port = 7501
rate = "4Mbit/s"
[segments.core]
group = "239.192.9.1"
interface = "10.77.0.0/24"
[segments.floor]
group = "239.192.9.2"
interface = "10.78.0.0/24"
[segments.side]
group = "239.192.9.3"
interface = "10.80.0.0/24"
[nodes.source]
role = "source"
segment = "core"
address = "10.77.0.1"
streams = ["s"]
[nodes.relay]
role = "aggregator"
upstream = { segment = "core", address = "10.77.0.2" }
downstream = [{ segment = "floor", address = "10.78.0.1" }]
parents = ["source"]
streams = ["s"]
[nodes.desk]
role = "receiver"
segment = "floor"
address = "10.78.0.2"
parents = ["relay"]
streams = ["s"]
[nodes.side-source]
role = "source"
segment = "side"
address = "10.80.0.1"
streams = ["t"]
[nodes.side-desk]
role = "receiver"
segment = "side"
address = "10.80.0.130"
parents = ["side-source"]
streams = ["t"]
"""
DROP = "ip saddr 10.78.0.2 ip daddr 239.192.9.2 drop"


@pytest.fixture
def hosts(made: Lab) -> dict[str, Host]:
    """Return hosts on one bridge, so that core and floor leak into each other, and `side` between two of them."""
    found = {name: made.host(name) for name in ("switch", "src", "rel", "desk")}
    switch = found["switch"]
    add_bridge(switch, "bridge")
    for name, interface, address in (
        ("src", "north", "10.77.0.1/24"),
        ("rel", "north", "10.77.0.2/24"),
        ("rel", "south", "10.78.0.1/24"),
        ("desk", "north", "10.78.0.2/24"),
    ):
        plug(switch, "bridge", found[name], interface, address)
    made.join(found["src"], "10.80.0.1/24", found["rel"], "10.80.0.130/25")
    # the faults: floor is deaf in one direction, too narrow, and side is strict
    found["rel"].run(
        "nft",
        f"add table inet f; add chain inet f c {{ type filter hook input priority 0; }}; add rule inet f c {DROP}",
    )
    found["desk"].run("ip", "link", "set", "north", "mtu", "1200")
    found["rel"].run("sysctl", "-qw", "net.ipv4.conf.vsrc.rp_filter=1")
    return found


@pytest.fixture
def made() -> Iterator[Lab]:
    with lab() as one:
        yield one


@pytest.fixture
def running(hosts: dict[str, Host]) -> Iterator[FleetProcess]:
    with short_folder() as folder, fleet(Path(folder), TREE, [hosts[name] for name in ("src", "rel", "desk")]) as found:
        yield found


@needs_namespaces
def test_netcheck_names_each_fault(running: FleetProcess, hosts: dict[str, Host]) -> None:
    hosts["switch"].run(
        "ip", "link", "set", "bridge", "type", "bridge", "mcast_snooping", "1", "mcast_querier", "1"
    )  # which asks at once
    done = running.netcheck(hosts["rel"], "--json")
    told = json.loads(done.out)
    documented("netcheck", told)
    documented("netcheck.segments[]", told["segments"][0])
    documented("doctor.checks[]", told["checks"][0])
    assert (done.code, told["ok"], len(told["hosts"])) == (1, False, 3), done
    found = done.checks
    names = {row["segment"]: row for row in told["segments"]}
    assert (names["core"]["silent"], names["floor"]["silent"], names["side"]["silent"]) == (0, 1, 1)
    queriers = {row["subject"]: row["found"] for row in told["checks"] if row["check"] == "IGMP querier"}
    assert queriers["core"] == queriers["floor"] == "heard: 0.0.0.0"
    silent = {row["subject"].partition(":")[0]: row for row in found["multicast"]}
    assert set(silent) == {"floor", "side"}
    assert "nft add rule" in silent["floor"]["remedy"]
    assert "(10.78.0.2) to" in silent["floor"]["subject"]
    assert "net.ipv4.conf.vsrc.rp_filter=2" in silent["side"]["remedy"]
    assert [row["level"] for row in found["reverse path"]] == ["fault"]
    assert {row["subject"].partition(":")[0] for row in found["path MTU"]} == {"floor"}
    assert all('max_tpdu = "1172B"' in row["remedy"] for row in found["path MTU"])
    leaks = {(row["subject"].partition(":")[0], row["subject"].rpartition(" ")[2]) for row in found["containment"]}
    assert leaks == {("core", "south"), ("core", "north"), ("floor", "north")}
