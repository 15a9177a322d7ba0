"""Lookup of a topology's interface by name, address or CIDR, never by host name."""

from __future__ import annotations

import fcntl
import ipaddress
import socket
import struct

import attrs
import ifaddr

from pgm.errors import TransportError

_SIOCGIFFLAGS = 0x8913
_IFREQ = struct.Struct("16sH22x")
_IFF_UP = 0x1
_IFF_LOOPBACK = 0x8
_IFF_MULTICAST = 0x1000

IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address


@attrs.frozen
class Interface:
    """Local interface, and its address that serves a segment."""

    name: str
    index: int
    address: str
    network: str | None = None  # the network of the address


@attrs.frozen
class _LocalAddress:
    name: str
    index: int
    address: IpAddress
    network: ipaddress.IPv4Network | ipaddress.IPv6Network


def _local_addresses() -> list[_LocalAddress]:
    addresses = []
    for adapter in ifaddr.get_adapters():
        for ip in adapter.ips:
            text = ip.ip if isinstance(ip.ip, str) else ip.ip[0]
            address = ipaddress.ip_address(text)
            network = ipaddress.ip_network(f"{text}/{ip.network_prefix}", strict=False)
            addresses.append(_LocalAddress(adapter.name, adapter.index or 0, address, network))
    return addresses


def find_interface(spec: str, family: int, address: str | None, *, is_unicast: bool = False) -> Interface:
    """Return the interface that `spec` names, for IPv4 (4) or IPv6 (6).

    The address is `address`, or else the first one of the interface. Raises `TransportError` if no interface matches,
    if it is down, or, unless `is_unicast`, if it has no multicast.
    """
    entries = [entry for entry in _local_addresses() if entry.address.version == family]
    # An address that needs no scope goes before a link-local one.
    matches = sorted(
        (entry for entry in entries if _matches(entry, spec)), key=lambda entry: entry.address.is_link_local
    )
    if not matches:
        known = ", ".join(f"{entry.name} {entry.address}/{entry.network.prefixlen}" for entry in entries) or "none"
        raise TransportError(
            f"no IPv{family} interface matches {spec!r}",
            remedy=f"run the node on the host that has this interface, or change the file: this host has {known}; a tree for this machine: pgm init",
        )
    chosen = matches[0]
    if address is not None:
        wanted = ipaddress.ip_address(address)
        chosen = next((entry for entry in matches if entry.address == wanted), chosen)
    _require_flags(chosen, family, is_unicast=is_unicast)
    return Interface(chosen.name, chosen.index, address or str(chosen.address), str(chosen.network))


def is_own_address(address: str) -> bool:
    """Return whether an address is one of this host's; all of 127/8 is."""
    wanted = ipaddress.ip_address(address)
    return (wanted.version == 4 and wanted.is_loopback) or any(entry.address == wanted for entry in _local_addresses())


def interface_addresses() -> dict[str, list[str]]:
    """Return the addresses of each interface that has one, with the length of their network."""
    found: dict[str, list[str]] = {}
    for entry in _local_addresses():
        found.setdefault(entry.name, []).append(f"{entry.address}/{entry.network.prefixlen}")
    return found


def multicast_interfaces() -> list[str]:
    """Return the names of interfaces that are up and have multicast, without loopback."""
    names = dict.fromkeys(entry.name for entry in _local_addresses())
    required = _IFF_UP | _IFF_MULTICAST
    return [name for name in names if _flags(name) & (required | _IFF_LOOPBACK) == required]


def _matches(local: _LocalAddress, spec: str) -> bool:
    if local.name == spec:
        return True
    try:
        network = ipaddress.ip_network(spec, strict=False)
    except ValueError:
        return False
    if network.version != local.address.version:
        return False
    if network.prefixlen == network.max_prefixlen:
        # A single address matches the interface that has it, or the loopback interface whose network contains it.
        return local.address == network.network_address or (
            local.address.is_loopback and network.network_address in local.network
        )
    # The loopback interface owns all of 127/8, regardless of the part that a segment names.
    return local.address in network or (local.address.is_loopback and network.network_address in local.network)


def needs_scope(address: str) -> bool:
    """Return whether an address needs an interface: IPv6 of link or interface scope."""
    octets = ipaddress.ip_address(address).packed
    if len(octets) == 4:
        return False
    if octets[0] == 0xFF:
        return octets[1] & 0x0F in (1, 2)
    return octets[0] == 0xFE and octets[1] & 0xC0 == 0x80


def _flags(name: str) -> int:
    """Return the interface's flags from the kernel. /sys may show interfaces of another network namespace."""
    request = _IFREQ.pack(name.encode(), 0)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        answer = fcntl.ioctl(sock, _SIOCGIFFLAGS, request)
    return int(_IFREQ.unpack(answer)[1])


def _require_flags(local: _LocalAddress, family: int, *, is_unicast: bool) -> None:
    flags = _flags(local.name)
    if not flags & _IFF_UP:
        raise TransportError(f"interface {local.name} is down", remedy=f"ip link set {local.name} up")
    if is_unicast:
        return
    if flags & _IFF_LOOPBACK:
        if family == 6:
            raise TransportError(
                f"loopback interface {local.name} carries no IPv6 multicast",
                remedy="use IPv4 groups on loopback, or join two network namespaces with a veth pair",
            )
        return
    if not flags & _IFF_MULTICAST:
        raise TransportError(
            f"interface {local.name} cannot do multicast",
            remedy=f"choose another interface, or: ip link set {local.name} multicast on",
        )
