"""Hosts that interoperability tests share: each a network namespace on two switched LANs.

    source   relay   standby   repairer-1   repairer-2   desk-1   desk-2
      │        │        │          │            │           │        │
    ──┴────────┴────────┴──────────┴────────────┴───────────┴────────┴──  up    10.1.0.0/24, a bridge
    ──┴────────┴────────┴──────────┴────────────┴───────────┴────────┴──  down  10.2.0.0/24, another

A test uses the places that its layout names, and a port that no other test uses. One table of nftables rules for that
port holds the losses and counts of a host. Every test replaces the table.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import attrs

from pgm.wire.sequence_numbers import HALF
from tests.net.support.lab import Host, lab

LANS = {"up": "10.1.0", "down": "10.2.0"}
HOSTS = {"source": 1, "relay": 2, "standby": 3, "repairer-1": 4, "repairer-2": 5, "desk-1": 11, "desk-2": 12}
LINK_MTU = 9000

# Types of packets by name (RFC 8). The rules find the type in octet 4 of the UDP payload.
TYPES = {"spm": 0x00, "odata": 0x04, "rdata": 0x05, "nak": 0x08, "ncf": 0x0A, "spmr": 0x0C}
TYPE_IS = "@th,96,8"
SQN_IS = "@th,192,32"  # of ODATA and RDATA
HAS_OPTIONS = "@th,111,1 1"

# Losses, as conditions of rules.
FIVE_PERCENT = "numgen random mod 1000 < 50"
ONE_PERCENT = "numgen random mod 1000 < 10"
BURSTS = f"{TYPE_IS} 4 numgen inc mod 400 < 40"  # 40 packets in a row out of every 400


def tail_from(sqn: int) -> str:
    """Return a condition for all ODATA from a sqn on, so that only repairs deliver those packets."""
    return f"{TYPE_IS} 4 {SQN_IS} >= {sqn}"


@attrs.frozen
class Seat:
    """Place of a host on a LAN."""

    host: Host
    address: str
    interface: str


class Yard:
    """Set of all running hosts."""

    def __init__(self, hosts: Mapping[str, Host]) -> None:
        self.hosts = hosts
        self._sends_trains = True
        self._ruled: dict[str, Host] = {}
        self._next_port = 20_000
        self.send_trains(False)

    def next_port(self) -> int:
        """Return a port for one test alone."""
        self._next_port += 1
        return self._next_port

    def seat(self, name: str, lan: str) -> Seat:
        """Return the place of a host on a LAN."""
        return Seat(self.hosts[name], f"{LANS[lan]}.{HOSTS[name]}", lan)

    def send_trains(self, wanted: bool) -> None:
        """Set whether trains leave the hosts whole or cut into packets; a rule drops a whole train at once."""
        if wanted is self._sends_trains:
            return
        self._sends_trains = wanted
        switch = "on" if wanted else "off"
        script = "; ".join(f"ethtool -K {lan} tx-udp-segmentation {switch}" for lan in LANS)
        for host in self.hosts.values():
            host.run("sh", "-c", script)

    def rule(self, seat: Seat, port: int, *losses: str) -> None:
        """Count the arrivals at a seat on a port by type, after dropping matches of `losses`.

        Counts begin at 0.
        """
        self._ruled[seat.host.name] = seat.host
        lines = [
            "table inet pgm { }",
            "delete table inet pgm",
            "table inet pgm {",
            *(f"  counter {kind} {{ }}" for kind in ("lost", "nak_list", "high", *TYPES)),
            "  chain arriving {",
            "    type filter hook prerouting priority -300;",
            f"    iifname != {seat.interface} accept",
            f"    udp dport != {port} accept",
            f"    ip saddr {seat.address} accept",
            *(f"    {loss} counter name lost drop" for loss in losses),
            *(f"    {TYPE_IS} {number} counter name {kind}" for kind, number in TYPES.items()),
            f"    {TYPE_IS} {TYPES['nak']} {HAS_OPTIONS} counter name nak_list",
            f"    {TYPE_IS} {TYPES['odata']} {SQN_IS} >= {HALF} counter name high",
            "  }",
            "}",
        ]
        subprocess.run(seat.host.wrap(["nft", "-f", "-"]), input="\n".join(lines), text=True, check=True)

    def clear_rules(self) -> None:
        """Remove all losses and counts."""
        for host in self._ruled.values():
            host.run("nft", "flush", "ruleset")
        self._ruled.clear()

    def counts(self, host: Host) -> dict[str, int]:
        """Return the counts of a host's rule, a train as one.

        The keys are packet types, `lost`, NAKs with a list, and ODATA in the upper half of the sqns.
        """
        rows = json.loads(host.run("nft", "-j", "list", "counters", "table", "inet", "pgm"))["nftables"]
        counters = [row["counter"] for row in rows if "counter" in row]
        return {one["name"]: int(one["packets"]) for one in counters}


def _settle_in(number: int) -> str:
    """Attach a new host to both LANs."""
    lines = ["sysctl -qw net.ipv6.conf.all.disable_ipv6=1 net.ipv4.conf.all.rp_filter=0"]
    for metric, (lan, net) in enumerate(LANS.items()):
        lines += [
            f"sysctl -qw net.ipv4.conf.{lan}.rp_filter=0",
            f"ip address add {net}.{number}/24 dev {lan}",
            f"ip link set dev {lan} mtu {LINK_MTU} up",
            f"ip route add 224.0.0.0/4 dev {lan} metric {metric}",
        ]
    return "set -e; " + "; ".join(lines)


@contextmanager
def yard() -> Iterator[Yard]:
    """Build all hosts for the length of a block."""
    with lab() as made:
        switch = made.host("switch")
        bridges = [
            f"ip link add name {lan} mtu {LINK_MTU} type bridge mcast_snooping 0; ip link set dev {lan} up"
            for lan in LANS
        ]
        switch.run("sh", "-c", "set -e; sysctl -qw net.ipv6.conf.all.disable_ipv6=1; " + "; ".join(bridges))
        hosts = {}
        for name, number in HOSTS.items():
            hosts[name] = made.host(name)
            cables = [
                f"ip link add name {lan}{number} mtu {LINK_MTU} type veth peer name {lan} netns {hosts[name].holder.pid}; "
                f"ip link set dev {lan}{number} master {lan} up"
                for lan in LANS
            ]
            switch.run("sh", "-c", "set -e; " + "; ".join(cables))
            hosts[name].run("sh", "-c", _settle_in(number))
        yield Yard(hosts)


@contextmanager
def capturing(seat: Seat, file: Path) -> Iterator[None]:
    """Capture the traffic of a host's interface into a file for the length of a block."""
    command = seat.host.wrap(["dumpcap", "-q", "-P", "-i", seat.interface, "-B", "32", "-w", str(file)])
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as dumpcap:
        assert dumpcap.stderr is not None
        said = []
        for line in dumpcap.stderr:
            said.append(line)
            if line.startswith("File:"):
                break
        assert dumpcap.poll() is None, "".join(said)
        try:
            yield
        finally:
            dumpcap.terminate()
            dumpcap.stderr.read()


def dissect(file: Path, port: int, fields: Sequence[str], where: str = "pgm") -> list[list[str]]:
    """Return the fields of every captured packet that fits the filter, by tshark's PGM dissector."""
    command = [
        "tshark",
        "-r",
        str(file),
        "-d",
        f"udp.port=={port},pgm",
        "-Y",
        where,
        "-T",
        "fields",
        "-E",
        "separator=|",
    ]
    for field in fields:
        command += ["-e", field]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [line.split("|") for line in done.stdout.splitlines()]
