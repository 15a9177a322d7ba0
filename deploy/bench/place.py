"""Where a benchmark runs: the loopback interface, or hosts that are network namespaces in a row, joined by veth pairs.

Namespaces are made without privileges, inside one user namespace of our own. Each is held open by a process that ends when
its standard input does, so nothing is left behind even if this process is killed.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import attrs

from deploy.node import ports
from pgm.errors import ProcessError
from pgm.units import FRACTIONS

LOCALHOST = "127.0.0.1"
ETHERNET_MTU = 1500
JUMBO_MTU = 9000
IP_AND_UDP_OCTETS = 28

_TOOLS = ("unshare", "nsenter", "ip")
_LOSS_TOOLS = ("nft", "ethtool")
_NETS = 200


@attrs.frozen
class NetworkEnd:
    """A host's end of a segment."""

    address: str
    interface: str
    host: int


class BenchNetwork(Protocol):
    """Hosts in a row; segment n joins host n and host n + 1."""

    kind: str
    mtu: int  # of the path as the benchmark uses it
    hosts: int

    def seat(self, host: int, segment: int) -> NetworkEnd:
        """Where a host sits on a segment that it is on."""

    def network(self, segment: int) -> str:
        """The CIDR of a segment."""

    def group(self, number: int) -> str:
        """A multicast group of this benchmark's own."""

    @property
    def port(self) -> int:
        """A UDP port of this benchmark's own."""

    def wrap(self, host: int, command: Sequence[str]) -> list[str]:
        """The command line that runs `command` on a host."""

    def why_no_losses(self) -> str:
        """Why the path itself cannot be made to lose packets, or empty."""

    def lose(self, segment: int, share: float, *, whole_trains: bool) -> None:
        """Lose a share of what goes along a segment: single packets, or trains as a whole."""

    def udp_statistics(self, host: int) -> dict[str, int]:
        """The kernel's UDP counters of a host, by name."""


def _own_number() -> int:
    return os.getpid()


def _parse_udp(text: str) -> dict[str, int]:
    names, values = (line.split()[1:] for line in text.splitlines() if line.startswith("Udp:"))
    return dict(zip(names, map(int, values), strict=True))


@attrs.define
class Loopback:
    """All hosts are this one; every node has a 127.x address of its own."""

    mtu: int
    hosts: int = 2
    kind: str = "loopback"
    _number: int = attrs.field(factory=_own_number)

    def seat(self, host: int, segment: int) -> NetworkEnd:
        """Where a host sits on a segment that it is on."""
        return NetworkEnd(f"{self._net(segment)}.{host + 1}", "lo", host)

    def network(self, segment: int) -> str:
        """The CIDR of a segment."""
        return f"{self._net(segment)}.0/24"

    def _net(self, segment: int) -> str:
        return f"127.{20 + self._number % _NETS}.{(self._number // _NETS + segment) % 250}"

    def group(self, number: int) -> str:
        """A multicast group of this benchmark's own."""
        return f"239.{196 + number % 50}.{self._number % 250}.{self._number // 250 % 250}"

    @property
    def port(self) -> int:
        """A UDP port of this benchmark's own."""
        return ports.OF_BENCHMARKS.of(self._number // _NETS)  # another one for the next process with such a net

    def wrap(self, host: int, command: Sequence[str]) -> list[str]:
        """The command line that runs `command` on a host."""
        return list(command)

    def why_no_losses(self) -> str:
        """Why the path itself cannot be made to lose packets, or empty."""
        return "the loopback interface of this machine is not ours to make lossy; use --path namespaces"

    def lose(self, segment: int, share: float, *, whole_trains: bool) -> None:
        """Lose a share of what goes along a segment: single packets, or trains as a whole."""
        raise ProcessError(self.why_no_losses())

    def udp_statistics(self, host: int) -> dict[str, int]:
        """The kernel's UDP counters of a host, by name. Those of everybody on this machine."""
        return _parse_udp(Path("/proc/net/snmp").read_text())


@functools.cache
def why_no_namespaces() -> str:
    """Why namespaces cannot be had here, or empty."""
    missing = [tool for tool in _TOOLS if shutil.which(tool) is None]
    if missing:
        return f"{', '.join(missing)} not found: apt-get install util-linux iproute2"
    script = "ip link add probe0 type veth peer name probe1"
    made = subprocess.run(["unshare", "-rUn", "sh", "-c", script], capture_output=True, text=True, check=False)
    return "" if made.returncode == 0 else f"no unprivileged network namespaces here: {made.stderr.strip()}"


class Hosts:
    """Network namespaces, each held open by a process of its own."""

    def __init__(self) -> None:
        self._holders: list[subprocess.Popen[bytes]] = []

    def make_host(self) -> int:
        """One more, with nothing but its loopback interface; returns its number."""
        host = len(self._holders)
        holding = ["sh", "-c", "echo up; exec cat"]
        command = self.wrap(0, ["unshare", "-n", *holding]) if host else ["unshare", "-rUn", *holding]
        holder = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
        self._holders.append(holder)
        assert holder.stdout is not None
        if holder.stdout.readline() != b"up\n":
            raise ProcessError("no network namespace could be made", remedy="use --path loopback")
        self.run(host, "ip", "link", "set", "lo", "up")
        return host

    def pair(self, one: int, one_name: str, other: int, other_name: str) -> None:
        """Join two hosts by a pair of interfaces, which are down and have no addresses yet."""
        peer = str(self._holders[other].pid)
        self.run(one, *f"ip link add {one_name} type veth peer name {other_name} netns {peer}".split())

    def wrap(self, host: int, command: Sequence[str]) -> list[str]:
        """The command line that runs `command` on a host."""
        pid = str(self._holders[host].pid)
        return ["nsenter", "-t", pid, "-U", "-n", "--preserve-credentials", *command]

    def run(self, host: int, *command: str) -> str:
        """Run a command on a host; returns what it printed. Raises `ProcessError`."""
        done = subprocess.run(self.wrap(host, command), capture_output=True, text=True, check=False)
        if done.returncode:
            raise ProcessError(f"{' '.join(command)}: {done.stderr.strip()}", remedy="use --path loopback")
        return done.stdout

    def close(self) -> None:
        """End every namespace."""
        for holder in self._holders:
            assert holder.stdin is not None
            assert holder.stdout is not None
            holder.stdin.close()
            holder.wait()
            holder.stdout.close()


class Namespaces(Hosts):
    """Hosts in a row, each a network namespace."""

    kind = "namespaces"

    def __init__(self, mtu: int, hosts: int = 2) -> None:
        super().__init__()
        self.mtu = mtu
        self.hosts = hosts
        try:
            for _ in range(hosts):
                self.make_host()
            for segment in range(hosts - 1):
                self._join(segment)
        except BaseException:
            self.close()
            raise

    def _join(self, segment: int) -> None:
        ends = (segment, segment + 1)
        names = [self.seat(host, segment).interface for host in ends]
        self.pair(segment, names[0], segment + 1, names[1])
        for host in ends:
            seat = self.seat(host, segment)
            self.run(host, *f"ip address add {seat.address}/24 dev {seat.interface}".split())
            self.run(host, *f"ip link set {seat.interface} mtu {self.mtu} up".split())
            # Groups without a route of their own go to the host's first segment; our sockets name their interface anyway.
            self.run(host, *f"ip route add 224.0.0.0/4 dev {seat.interface} metric {segment + 1}".split())
            for key in ("all", seat.interface):
                self.run(host, "sh", "-c", f"echo 0 > /proc/sys/net/ipv4/conf/{key}/rp_filter")

    def seat(self, host: int, segment: int) -> NetworkEnd:
        """Where a host sits on a segment that it is on."""
        return NetworkEnd(f"10.99.{segment}.{host + 1}", f"s{segment}h{host}", host)

    def network(self, segment: int) -> str:
        """The CIDR of a segment."""
        return f"10.99.{segment}.0/24"

    def group(self, number: int) -> str:
        """A multicast group of this benchmark's own."""
        return f"239.192.99.{1 + number}"

    @property
    def port(self) -> int:
        """A UDP port of this benchmark's own."""
        return 23_456

    def why_no_losses(self) -> str:
        """Why the path itself cannot be made to lose packets, or empty."""
        missing = [tool for tool in _LOSS_TOOLS if shutil.which(tool) is None]
        return f"{', '.join(missing)} not found: apt-get install nftables ethtool" if missing else ""

    def lose(self, segment: int, share: float, *, whole_trains: bool) -> None:
        """Lose a share of what goes along a segment: single packets, or trains as a whole.

        A rule of the kernel's sees a train as one packet, unless the sender's device takes none.
        """
        sender, receiver = self.seat(segment, segment), self.seat(segment + 1, segment)
        state = "on" if whole_trains else "off"
        self.run(segment, "ethtool", "-K", sender.interface, "tx-udp-segmentation", state)
        rules = [
            "add table inet loss",
            "flush table inet loss",
            "add chain inet loss in { type filter hook prerouting priority -300 ; }",
        ]
        if share:
            rules.append(loss_rule(receiver.interface, share))
        for rule in rules:
            self.run(segment + 1, "nft", rule)

    def udp_statistics(self, host: int) -> dict[str, int]:
        """The kernel's UDP counters of a host, by name."""
        return _parse_udp(Path(f"/proc/{self._holders[host].pid}/net/snmp").read_text())


def loss_rule(interface: str, share: float) -> str:
    """What tells the kernel to lose a share of the datagrams that come in, as finely as shares are read."""
    drawn = f"numgen random mod {FRACTIONS} < {round(share * FRACTIONS)}"
    return f"add rule inet loss in iifname {interface} meta l4proto udp {drawn} drop"


@contextmanager
def open_place(path: str, mtu: int, hosts: int = 2) -> Iterator[BenchNetwork]:
    """A place for the length of a block: "loopback", "namespaces", or "auto", which is namespaces where they can be had."""
    why_not = why_no_namespaces() if path != "loopback" else "loopback was asked for"
    if path == "namespaces" and why_not:
        raise ProcessError(why_not, remedy="use --path loopback")
    if why_not:
        yield Loopback(mtu, hosts)
        return
    made = Namespaces(mtu, hosts)
    try:
        yield made
    finally:
        made.close()
