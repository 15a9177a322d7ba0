"""Hosts of a topology file, by the addresses of their nodes."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping

import attrs

from pgm.topology.model import Topology
from pgm.topology.node_plan import Address, NodePlan

_LOOPBACK = "loopback"  # group of all loopback addresses: they belong to one machine
_OWN = {4: "127.0.0.1", 6: "::1"}


@attrs.frozen
class FleetHost:
    """One host: the addresses at which its agent may answer, and the names of its nodes."""

    addresses: tuple[Address, ...]
    nodes: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Return a name for people until the agent gives its own."""
        return self.addresses[0]


def hosts_of(topology: Topology, plans: Mapping[str, NodePlan]) -> list[FleetHost]:
    """Return the hosts of a file, in the order of its nodes.

    Nodes with a common address share a host, and so do all nodes on loopback. Nodes without an address belong to no host
    of the file. Each entry of `[fleet] agents` that no node has is a host without known nodes.
    """
    groups = _Groups()
    names: dict[str, list[str]] = {}
    for name, plan in plans.items():
        addresses = [seat.address for seat in plan.segments if seat.address is not None]
        if addresses:
            groups.join(map(_key, addresses))
            names.setdefault(_key(addresses[0]), []).append(name)
            for address in addresses:
                groups.add(_key(address), address)
    for address in topology.fleet.agents:
        groups.join([_key(address)])
        groups.add(_key(address), address)
    members: dict[str, list[str]] = {}
    for key, found in names.items():
        members.setdefault(groups.root(key), []).extend(found)
    return [
        FleetHost(_candidates(addresses), tuple(members.get(root, ()))) for root, addresses in groups.found().items()
    ]


def _key(address: Address) -> str:
    return _LOOPBACK if ipaddress.ip_address(address).is_loopback else address


def _candidates(addresses: Iterable[Address]) -> tuple[Address, ...]:
    """Return the addresses to try. On loopback the usual address replaces all others."""
    found = tuple(dict.fromkeys(addresses))
    first = ipaddress.ip_address(found[0])
    return (_OWN[first.version],) if first.is_loopback else found


class _Groups:
    """Disjoint sets of keys, with the addresses of each."""

    def __init__(self) -> None:
        self._above: dict[str, str] = {}
        self._addresses: dict[str, list[Address]] = {}

    def root(self, key: str) -> str:
        """Return the key that stands for the set of a key."""
        above = self._above.setdefault(key, key)
        while above != self._above[above]:
            above = self._above[above]
        self._above[key] = above
        return above

    def join(self, keys: Iterable[str]) -> None:
        """Unite the sets of keys."""
        first, *others = (self.root(key) for key in keys)
        for other in others:
            self._above[other] = first

    def add(self, key: str, address: Address) -> None:
        """Add an address to a key."""
        self._addresses.setdefault(key, []).append(address)

    def found(self) -> dict[str, list[Address]]:
        """Return the addresses of each set by its root."""
        sets: dict[str, list[Address]] = {}
        for key, addresses in self._addresses.items():
            sets.setdefault(self.root(key), []).extend(addresses)
        return sets
