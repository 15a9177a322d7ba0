"""Hosts of a topology file, by the addresses of its nodes."""

from __future__ import annotations

from pathlib import Path

from pgm.fleet.fingerprint import Fingerprint, fingerprint_of
from pgm.fleet.hosts import FleetHost, hosts_of
from pgm.topology.load import loads
from pgm.topology.plan import plan_all

ROOT = Path(__file__).resolve().parents[3]
FLOOR = (ROOT / "deploy/topologies/trading-floor.toml").read_text()


def hosts(text: str) -> list[FleetHost]:
    topology = loads(text)
    return hosts_of(topology, plan_all(topology))


def test_hosts_have_the_nodes_at_their_addresses() -> None:
    assert hosts(FLOOR) == [
        FleetHost(("10.0.0.10",), ("exchange",)),
        FleetHost(("10.0.0.11",), ("core-repairer",)),
        FleetHost(("10.0.0.12", "10.0.2.1"), ("floor-2-aggregator",)),
        FleetHost(("10.0.2.2",), ("floor-2-repairer",)),
    ]


def test_hosts_with_a_common_address_are_one() -> None:
    watcher = '[nodes.watcher]\nrole = "receiver"\nsegment = "core"\naddress = "10.0.0.10"\nparents = ["exchange"]\n'
    found = hosts(FLOOR + watcher)
    assert found[0] == FleetHost(("10.0.0.10",), ("exchange", "watcher"))
    assert len(found) == 4


def test_hosts_of_the_fleet_table_are_added() -> None:
    fleet = '[fleet]\nport = 4000\nagents = ["10.9.0.1", "10.0.2.2"]\n'
    found = hosts(FLOOR + fleet)
    assert found[-1] == FleetHost(("10.9.0.1",))
    assert len(found) == 5
    assert loads(FLOOR + fleet).fleet.port == 4000
    assert loads(FLOOR).fleet.port == 9765


def test_hosts_on_loopback_are_one_machine() -> None:
    found = hosts((ROOT / "deploy/topologies/loopback-demo.toml").read_text())
    assert [(host.addresses, len(host.nodes)) for host in found] == [(("127.0.0.1",), 18)]


def fingerprint(folder: Path, text: str) -> Fingerprint:
    file = folder / "tree.toml"
    file.write_text(text)
    return fingerprint_of(file)


def test_fingerprints_name_the_entries_that_differ(tmp_path: Path) -> None:
    own = fingerprint(tmp_path, FLOOR)
    assert Fingerprint.of_row(own.row()) == own
    comment = fingerprint(tmp_path, f"# a comment\n{FLOOR}")
    assert comment.file != own.file
    assert own.differing(comment) == []
    port = fingerprint(tmp_path, FLOOR.replace('group = "239.192.2.1"', 'group = "239.192.2.9"'))
    assert own.differing(port) == ["floor-2-aggregator", "floor-2-repairer", "desk-*"]
    fewer = fingerprint(tmp_path, FLOOR[: FLOOR.index('[nodes."desk-*"]')])
    assert "desk-*" in own.differing(fewer)
