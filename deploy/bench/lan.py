"""A network of one host that sends and several that receive, around a switch: each a network namespace."""

from __future__ import annotations

import ipaddress
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import attrs

from deploy.bench.place import ETHERNET_MTU, Hosts, why_no_namespaces
from pgm.errors import ProcessError

NET = "10.98.0"
SOURCE_ADDRESS = f"{NET}.1"
MOST_RECEIVERS = 100
_FIRST_RECEIVER = 11  # of the addresses
_BRIDGE = "br0"


def receiver_address(number: int) -> str:
    """Of receiver `number`, counted from 0."""
    return f"{NET}.{_FIRST_RECEIVER + number}"


@attrs.frozen
class Lan:
    """The hosts of a network."""

    hosts: Hosts
    source: int
    receivers: tuple[int, ...]

    def wrap(self, host: int, command: Sequence[str]) -> list[str]:
        """The command line that runs `command` on a host, for as long as this process lives."""
        # Without the death signal a daemon would outlive a benchmark that is killed.
        return self.hosts.wrap(host, ["setpriv", "--pdeathsig", "KILL", *command])


@contextmanager
def open_lan(receivers: int) -> Iterator[Lan]:
    """A network for the length of a block. Raises `ProcessError` where there are no namespaces."""
    why_not = why_no_namespaces()
    if why_not:
        raise ProcessError(f"files are sent between network namespaces, and {why_not}", remedy="allow or install them")
    hosts = Hosts()
    try:
        switch = hosts.make_host()
        # Snooping would ask who is in a group, and nobody here answers before it has given up.
        hosts.run(switch, *f"ip link add {_BRIDGE} type bridge mcast_snooping 0".split())
        hosts.run(switch, *f"ip link set {_BRIDGE} up".split())
        addresses = [SOURCE_ADDRESS, *map(receiver_address, range(receivers))]
        source, *others = [_join(hosts, switch, address) for address in addresses]
        yield Lan(hosts, source, tuple(others))
    finally:
        hosts.close()


def _join(hosts: Hosts, switch: int, address: str) -> int:
    host = hosts.make_host()
    port = f"port{host}"
    hosts.pair(switch, port, host, "line")
    hosts.run(switch, *f"ip link set {port} mtu {ETHERNET_MTU} master {_BRIDGE} up".split())
    hosts.run(host, *f"ip address add {address}/24 dev line".split())
    hosts.run(host, *f"ip link set line mtu {ETHERNET_MTU} up".split())
    hosts.run(host, *["ip", "route", "add", "224.0.0.0/4", "dev", "line"])
    return host


def has_joined(pid: int, group: str) -> bool:
    """Whether somebody on the host of a process is in a group."""
    # The kernel writes the address as the number that its octets are in memory.
    wanted = f"{int.from_bytes(ipaddress.ip_address(group).packed, sys.byteorder):08X}"
    try:
        return wanted in Path(f"/proc/{pid}/net/igmp").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
