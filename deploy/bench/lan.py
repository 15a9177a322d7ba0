"""Network of one sending host and several receiving hosts around a switch. Each host is a network namespace."""

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
_FIRST_RECEIVER = 11  # last octet of the first receiver's address
_BRIDGE = "br0"


def receiver_address(number: int) -> str:
    """Return the address of receiver `number`, counted from 0."""
    return f"{NET}.{_FIRST_RECEIVER + number}"


@attrs.frozen
class Lan:
    """Hosts of a network around one switch."""

    hosts: Hosts
    source: int
    receivers: tuple[int, ...]

    def wrap(self, host: int, command: Sequence[str]) -> list[str]:
        """Return the command line that runs `command` on a host. The command is killed when this process ends."""
        # Without the death signal, a daemon would outlive a benchmark that is killed.
        return self.hosts.wrap(host, ["setpriv", "--pdeathsig", "KILL", *command])


@contextmanager
def open_lan(receivers: int) -> Iterator[Lan]:
    """Open a network for the length of a block. Raises `ProcessError` if network namespaces are not available."""
    why_not = why_no_namespaces()
    if why_not:
        raise ProcessError(
            f"the files benchmark needs network namespaces: {why_not}", remedy="allow or install network namespaces"
        )
    hosts = Hosts()
    try:
        switch = hosts.make_host()
        # With snooping, the bridge would query for members, and no answer would come in time.
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
    """Return whether any socket on the host of a process has joined a group."""
    # The kernel prints the address as the native integer of its octets in memory.
    wanted = f"{int.from_bytes(ipaddress.ip_address(group).packed, sys.byteorder):08X}"
    try:
        return wanted in Path(f"/proc/{pid}/net/igmp").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
