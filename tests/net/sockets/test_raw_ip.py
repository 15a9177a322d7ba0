"""PGM over IP protocol 113: a tree on three hosts, and the packets on their lines."""

from __future__ import annotations

import subprocess
import sys
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from pgm.parameters import Parameters
from pgm.wire.control_packets import Spm
from pgm.wire.formats import DATA_HEADER_OCTETS, PacketType
from tests.net.support.carried import DESKS, MESSAGES, Carried, Segment, hosts, run
from tests.net.support.lab import Host, lab, needs_namespaces
from tests.net.support.processes import Process, processes
from tests.net.support.sniff import PGM, TSHARK, complaints, frames, sniffing

pytestmark = [pytest.mark.network, needs_namespaces]

MTU = 1500
DEFAULT_HOPS = 64  # the kernel's
CORE = {
    4: Segment(4, 1, 'group = "239.192.8.1"\ninterface = "10.8.1.0/24"\ntransport = "ip"'),
    6: Segment(6, 1, 'group = "ff15::8:1"\ninterface = "fd00:8:1::/64"\ntransport = "ip"'),
}
FLOOR = {
    4: Segment(4, 2, 'group = "239.192.8.2"\ninterface = "10.8.2.0/24"\ntransport = "ip"'),
    6: Segment(6, 2, 'group = "ff15::8:2"\ninterface = "fd00:8:2::/64"\ntransport = "ip"'),
}
GROUP = {4: "239.192.8.", 6: "ff15::8:"}
ALERTING = {PacketType.SPM, PacketType.NCF, PacketType.RDATA}
TO_THE_GROUP = {*ALERTING, PacketType.ODATA}
FULL = {4: 1472 - DATA_HEADER_OCTETS, 6: 1452 - DATA_HEADER_OCTETS}  # payload of the largest packet


@pytest.mark.rfc("W-01", "W-30", "SRC-21", "NE-02")
@pytest.mark.parametrize("version", [4, 6])
def test_a_tree_over_protocol_113(version: int, tmp_path: Path) -> None:
    case = Carried(CORE[version], FLOOR[version], size=FULL[version])
    core, floor = tmp_path / "core.pcap", tmp_path / "floor.pcap"
    with (
        hosts(case) as (found, _),
        processes(case.topology, "carried") as tree,
        sniffing(found["source"], "vrelay", core),
        sniffing(found["relay"], "vfloor", floor),
    ):
        accounts = run(tree, case, found)
    assert accounts["relay"]["counters"]["odata_packets"] == MESSAGES  # no segment heard another's group
    for name in ("relay", "repairer"):
        rows = accounts[name]["segments"]
        assert {(row["transport"], row["gso"], row["gro"]) for row in rows} == {("ip", False, False)}
        assert all(row["group"].endswith("over IP protocol 113") for row in rows)
    assert accounts["repairer"]["counters"]["rdata_packets"] > 0  # on the floor host, so no line carries those
    assert sum(accounts[desk]["snapshot"]["counters"]["repaired_locally"] for desk in DESKS) > 0
    above, below = frames(core), frames(floor)
    for frame in (*above, *below):
        assert (frame.version, frame.protocol, frame.is_fragment) == (version, PGM, False)
        assert frame.length <= MTU
        assert frame.has_alert is (frame.is_multicast and frame.kind in ALERTING), frame
        if frame.kind is PacketType.SPMR:  # both to the group, no farther than the line, and to the source
            assert frame.hops == (1 if frame.is_multicast else DEFAULT_HOPS), frame
            continue
        if frame.is_multicast:
            assert frame.kind in TO_THE_GROUP, frame
        elif frame.kind is not PacketType.NAK:  # the repairer confirms to its parent alone
            assert (frame.kind, frame.source) == (PacketType.NCF, case.floor.address(2)), frame
        assert frame.hops == (Parameters().multicast_hops if frame.is_multicast else DEFAULT_HOPS), frame
    assert {frame.kind for frame in above} >= {*TO_THE_GROUP, PacketType.NAK}
    assert {frame.kind for frame in below} >= {PacketType.SPM, PacketType.NCF, PacketType.ODATA}
    assert {frame.destination for frame in above if frame.is_multicast} == {f"{GROUP[version]}1"}
    assert {frame.destination for frame in below if frame.is_multicast} == {f"{GROUP[version]}2"}
    assert {frame.source for frame in above if frame.is_multicast} == {case.core.address(1)}
    assert {frame.source for frame in above if not frame.is_multicast} == {case.core.address(2)}
    for crossed, segment, host in ((above, case.core, 1), (below, case.floor, 1)):
        paths = {item.path_nla for frame in crossed for item in frame.items if isinstance(item, Spm)}
        assert paths == {segment.address(host)}
    if TSHARK is not None:
        assert complaints(core) == complaints(floor) == []


def test_without_the_capability_the_remedy_is_said(tmp_path: Path) -> None:
    case = Carried(CORE[4], FLOOR[4])
    file = tmp_path / "tree.toml"
    file.write_text(case.topology)
    with hosts(case) as (found, _):
        powerless = ["setpriv", "--bounding-set", "-net_raw", sys.executable, "-m", "deploy"]
        command = [*found["source"].wrap(powerless), "run", str(file), "--node", "source", "--idle"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "segment core" in done.stderr
    assert "IP protocol 113" in done.stderr
    assert "needs CAP_NET_RAW" in done.stderr
    assert "setcap cap_net_raw+ep" in done.stderr
    assert "Traceback" not in done.stderr


def until_claimed(process: Process, host: Host, address: str) -> None:
    """Wait until a process on a host holds an address for protocol 113."""

    def holds() -> bool:
        assert process.process.poll() is None, process.log
        return f"@pgm-ip-113/{address}\n" in host.run("cat", "/proc/net/unix")

    host.until(holds)


def test_an_address_belongs_to_one_process() -> None:
    """The protocol has no ports, so a second process at an address would take the first one's packets."""
    url = "pgm://239.192.8.9?interface=vother&data_port=7500&transport=ip"
    with lab() as made, ExitStack() as stack:
        here, other = made.host("here"), made.host("other")
        made.join(here, "10.8.1.1/24", other, "10.8.1.2/24")
        first = stack.enter_context(closing(Process("first", ["recv", url, "--wait", "1h"], here)))
        until_claimed(first, here, "10.8.1.1")
        second = stack.enter_context(closing(Process("second", ["recv", url], here)))
        assert second.wait() == 1
        assert "another process uses 10.8.1.1 for IP protocol 113" in second.log
        assert "an address of its own" in second.log
        here.add_address("vother", "10.8.1.3/24")
        third = stack.enter_context(
            closing(Process("third", ["recv", f"{url}&address=10.8.1.3", "--wait", "1h"], here))
        )
        until_claimed(third, here, "10.8.1.3")
