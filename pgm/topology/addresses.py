"""Addresses of the topology file: single addresses, ranges, and interfaces."""

from __future__ import annotations

import ipaddress
import re
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network

import attrs

from pgm.errors import UnitError
from pgm.topology.node_plan import Address

IpAddress = IPv4Address | IPv6Address
IpNetwork = IPv4Network | IPv6Network

_LOOPBACK_NAMES = ("lo", "lo0")
_LOOPBACK_NETWORKS = (IPv4Network("127.0.0.0/8"), IPv6Network("::1/128"))
_LOOKS_NUMERIC = re.compile(r"[\d.]+|.*:.*")
_INTERFACE_NAME = re.compile(r"[^\s/]{1,15}")  # IFNAMSIZ less its terminator


def parse_address(text: object) -> Address:
    """Read an IPv4 or IPv6 address into its usual spelling. Raises `UnitError`."""
    if isinstance(text, str) and "%" not in text:  # an NLA has no room for a scope
        try:
            return str(ipaddress.ip_address(text.strip()))
        except ValueError:
            pass
    raise UnitError(f"{short(text)} is not an IP address", remedy='write an address such as "10.0.0.10"')


def parse_interface(text: object) -> str:
    """Read an interface name, an address, or a network as in "10.0.0.0/24". Raises `UnitError`."""
    remedy = 'write an interface name such as "eth0", an address, or a network such as "10.0.0.0/24"'
    if not isinstance(text, str) or not text:
        raise UnitError(f"{short(text)} is not an interface", remedy=remedy)
    if "/" in text:
        try:
            return str(ipaddress.ip_network(text, strict=False))
        except ValueError:
            raise UnitError(f"{short(text)} is not a network", remedy=remedy) from None
    if _LOOKS_NUMERIC.fullmatch(text):
        return parse_address(text)
    if not _INTERFACE_NAME.fullmatch(text):
        raise UnitError(f"{short(text)} is not an interface name", remedy=remedy)
    return text


def network_of(interface: str) -> IpNetwork | None:
    """Return the network of an interface that is given as a network, else None."""
    return ipaddress.ip_network(interface) if "/" in interface else None


def version_of(interface: str) -> int | None:
    """Return 4 or 6 for an interface given by address or network, and None for a name."""
    if _LOOKS_NUMERIC.fullmatch(interface) or "/" in interface:
        return ipaddress.ip_address(interface.partition("/")[0]).version
    return None


def is_loopback(interface: str) -> bool:
    """Return whether the interface is loopback, in any spelling."""
    return interface in _LOOPBACK_NAMES or any(_covers(network, interface) for network in _LOOPBACK_NETWORKS)


def may_overlap(interface: str, other: str) -> bool:
    """Return whether two interfaces are known to overlap. A name and a number are not comparable."""
    first, second = _as_network(interface), _as_network(other)
    if first is not None and first.is_link_local and first.num_addresses > 1:
        return False  # every interface is on that network
    if interface == other or (is_loopback(interface) and is_loopback(other)):
        return True
    return first is not None and second is not None and first.version == second.version and first.overlaps(second)


def _as_network(interface: str) -> IpNetwork | None:
    return None if version_of(interface) is None else ipaddress.ip_network(interface)


def _covers(network: IpNetwork, interface: str) -> bool:
    inner = _as_network(interface)
    if isinstance(network, IPv4Network) and isinstance(inner, IPv4Network):
        return inner.subnet_of(network)
    return isinstance(network, IPv6Network) and isinstance(inner, IPv6Network) and inner.subnet_of(network)


def short(value: object) -> str:
    """Return a value as an error message shows it, at most 60 characters."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


@attrs.frozen
class AddressPool:
    """Addresses for the nodes of a pattern, in order, as ranges that include both ends."""

    ranges: tuple[tuple[IpAddress, IpAddress], ...]

    @property
    def size(self) -> int:
        """Return the number of addresses."""
        return sum(int(last) - int(first) + 1 for first, last in self.ranges)

    def address(self, index: int) -> Address:
        """Return the address of the node with this index, from 0. Raises `IndexError` beyond the last."""
        for first, last in self.ranges:
            room = int(last) - int(first) + 1
            if index < room:
                return str(first + index)
            index -= room
        raise IndexError(index)

    @property
    def spelling(self) -> str:
        """Return the pool spelled for people."""
        return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in self.ranges)


def parse_pool(value: object) -> AddressPool:
    """Read "127.0.2.10-127.0.2.13", or a list of addresses and such ranges. Raises `UnitError`."""
    items = value if isinstance(value, list) else [value]
    if not items:
        raise UnitError("an empty list has no addresses", remedy='write a range such as "127.0.2.10-127.0.2.13"')
    return AddressPool(tuple(_parse_range(item) for item in items))


def _parse_range(item: object) -> tuple[IpAddress, IpAddress]:
    remedy = 'write a range such as "127.0.2.10-127.0.2.13", or a list of addresses'
    if not isinstance(item, str):
        raise UnitError(f"{short(item)} is not a range of addresses", remedy=remedy)
    low, dash, high = item.partition("-")
    first = ipaddress.ip_address(parse_address(low))
    last = ipaddress.ip_address(parse_address(high)) if dash else first
    if first.version != last.version:
        raise UnitError(f"{item!r} mixes IPv4 and IPv6", remedy=remedy)
    if int(last) < int(first):
        raise UnitError(f"{item!r} ends before it begins", remedy="write the lower address first")
    return first, last
