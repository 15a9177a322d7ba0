"""Networks for benchmarks: the loopback interface, or network namespaces in a row.

Veth pairs join the namespaces. All namespaces lie inside one unprivileged user namespace. A process holds each
namespace open and ends when its standard input closes. No namespace remains even if this process is killed.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias

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
    """One host's address and interface on a segment."""

    address: str
    interface: str
    host: int


def _parse_udp(text: str) -> dict[str, int]:
    names, values = (line.split()[1:] for line in text.splitlines() if line.startswith("Udp:"))
    return dict(zip(names, map(int, values), strict=True))


@attrs.define
class Loopback:
    """Network inside this machine; each node has a 127.x address of its own."""

    mtu: int
    hosts: int = 2
    kind: str = "loopback"
    _number: int = attrs.field(factory=os.getpid)

    def seat(self, host: int, segment: int) -> NetworkEnd:
        """Return the address and interface of a host on one of its segments."""
        return NetworkEnd(f"{self._net(segment)}.{host + 1}", "lo", host)

    def network(self, segment: int) -> str:
        """Return the CIDR network of a segment."""
        return f"{self._net(segment)}.0/24"

    def _net(self, segment: int) -> str:
        return f"127.{20 + self._number % _NETS}.{(self._number // _NETS + segment) % 250}"

    def group(self, number: int) -> str:
        """Return multicast group `number` of this benchmark."""
        return f"239.{196 + number % 50}.{self._number % 250}.{self._number // 250 % 250}"

    @property
    def port(self) -> int:
        """Return the UDP port of this benchmark."""
        # Processes with the same 127.x network get different ports.
        return ports.OF_BENCHMARKS.of(self._number // _NETS)

    def wrap(self, host: int, command: Sequence[str]) -> list[str]:
        """Return `command` unchanged."""
        return list(command)

    def why_no_losses(self) -> str:
        """Return the reason why this network cannot drop packets."""
        return "a benchmark does not drop packets on this machine's loopback interface; use --path namespaces"

    def lose(self, segment: int, share: float, *, whole_trains: bool) -> None:
        """Raise `ProcessError`: the loopback interface cannot drop packets."""
        raise ProcessError(self.why_no_losses())

    def udp_statistics(self, host: int) -> dict[str, int]:
        """Return the UDP counters of this whole machine, by name."""
        return _parse_udp(Path("/proc/net/snmp").read_text())


@functools.cache
def why_no_namespaces() -> str:
    """Return the reason why network namespaces are not available, or ""."""
    missing = [tool for tool in _TOOLS if shutil.which(tool) is None]
    if missing:
        return f"{', '.join(missing)} not found: apt-get install util-linux iproute2"
    script = "ip link add probe0 type veth peer name probe1"
    completed = subprocess.run(["unshare", "-rUn", "sh", "-c", script], capture_output=True, text=True, check=False)
    return "" if completed.returncode == 0 else f"no unprivileged network namespaces here: {completed.stderr.strip()}"


class Hosts:
    """Network namespaces, each held open by a process."""

    def __init__(self) -> None:
        self._holders: list[subprocess.Popen[bytes]] = []

    def make_host(self) -> int:
        """Make one more host, with a loopback interface only, and return its number. Raises `ProcessError`."""
        host = len(self._holders)
        holding = ["sh", "-c", "echo up; exec cat"]
        command = self.wrap(0, ["unshare", "-n", *holding]) if host else ["unshare", "-rUn", *holding]
        holder = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
        self._holders.append(holder)
        assert holder.stdout is not None
        if holder.stdout.readline() != b"up\n":
            raise ProcessError("the kernel refused a network namespace", remedy="use --path loopback")
        self.run(host, "ip", "link", "set", "lo", "up")
        return host

    def pair(self, first: int, first_name: str, second: int, second_name: str) -> None:
        """Join two hosts by a veth pair, which is down and has no addresses yet."""
        peer = str(self._holders[second].pid)
        self.run(first, *f"ip link add {first_name} type veth peer name {second_name} netns {peer}".split())

    def wrap(self, host: int, command: Sequence[str]) -> list[str]:
        """Return the command line that runs `command` on a host."""
        pid = str(self._holders[host].pid)
        return ["nsenter", "-t", pid, "-U", "-n", "--preserve-credentials", *command]

    def run(self, host: int, *command: str) -> str:
        """Run a command on a host and return its output. Raises `ProcessError`."""
        completed = subprocess.run(self.wrap(host, command), capture_output=True, text=True, check=False)
        if completed.returncode:
            raise ProcessError(f"{' '.join(command)}: {completed.stderr.strip()}", remedy="use --path loopback")
        return completed.stdout

    def close(self) -> None:
        """End every namespace."""
        for holder in self._holders:
            assert holder.stdin is not None
            assert holder.stdout is not None
            holder.stdin.close()
            holder.wait()
            holder.stdout.close()


class Namespaces(Hosts):
    """Hosts in a row, each in a network namespace."""

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
            # Groups without a route of their own leave through the host's first segment. Sockets of pgm choose their
            # interface without these routes.
            self.run(host, *f"ip route add 224.0.0.0/4 dev {seat.interface} metric {segment + 1}".split())
            for key in ("all", seat.interface):
                self.run(host, "sh", "-c", f"echo 0 > /proc/sys/net/ipv4/conf/{key}/rp_filter")

    def seat(self, host: int, segment: int) -> NetworkEnd:
        """Return the address and interface of a host on one of its segments."""
        return NetworkEnd(f"10.99.{segment}.{host + 1}", f"s{segment}h{host}", host)

    def network(self, segment: int) -> str:
        """Return the CIDR network of a segment."""
        return f"10.99.{segment}.0/24"

    def group(self, number: int) -> str:
        """Return multicast group `number` of this benchmark."""
        return f"239.192.99.{1 + number}"

    @property
    def port(self) -> int:
        """Return the UDP port of this benchmark."""
        return 23_456

    def why_no_losses(self) -> str:
        """Return the reason why this network cannot drop packets, or ""."""
        missing = [tool for tool in _LOSS_TOOLS if shutil.which(tool) is None]
        return f"{', '.join(missing)} not found: apt-get install nftables ethtool" if missing else ""

    def lose(self, segment: int, share: float, *, whole_trains: bool) -> None:
        """Drop a share of the packets on a segment: single packets, or whole trains.

        A kernel rule sees a train as one packet, unless segmentation offload of the sender's device is off.
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
        """Return the kernel's UDP counters of a host, by name."""
        return _parse_udp(Path(f"/proc/{self._holders[host].pid}/net/snmp").read_text())


BenchNetwork: TypeAlias = Loopback | Namespaces  # hosts in a row; segment n joins host n and host n + 1


def loss_rule(interface: str, share: float) -> str:
    """Return the nftables rule that drops a share of incoming datagrams, with the resolution of `FRACTIONS`."""
    drawn = f"numgen random mod {FRACTIONS} < {round(share * FRACTIONS)}"
    return f"add rule inet loss in iifname {interface} meta l4proto udp {drawn} drop"


@contextmanager
def open_place(path: str, mtu: int, hosts: int = 2) -> Iterator[BenchNetwork]:
    """Open a network for the length of a block.

    `path` is "loopback", "namespaces", or "auto". "auto" means namespaces where available, else loopback. Raises
    `ProcessError` if namespaces are requested and not available.
    """
    why_not = why_no_namespaces() if path != "loopback" else "loopback was requested"
    if path == "namespaces" and why_not:
        raise ProcessError(why_not, remedy="use --path loopback")
    if why_not:
        yield Loopback(mtu, hosts)
        return
    namespaces = Namespaces(mtu, hosts)
    try:
        yield namespaces
    finally:
        namespaces.close()
