"""Places of a host on the segments of its topology file, and the groups that it must not hear. No socket is opened."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import attrs

from deploy.doctor.network import SegmentUse
from deploy.netcheck.probes import SegmentLoad
from pgm.net.sockets.interfaces import Interface, find_interface
from pgm.topology.model import Topology
from pgm.topology.node_plan import Address, NodePlan, SegmentPlan

MOST_EARS = 256  # sockets of one host: each has a task, and a membership


@attrs.frozen
class ProbePlace:
    """One place of this host on a segment, with the interface that serves it."""

    plan: SegmentPlan
    interface: Interface
    load: SegmentLoad
    hops: int  # TTL of multicast
    nodes: int  # of this host on the segment
    sends: bool  # whether a node of this host sends data there
    known: frozenset[str]  # bare addresses of the file on the segment, with the peers of a unicast leg

    def is_near(self, address: str) -> bool:
        """Return whether a question may go to an address: the file has it, or it is in the interface's network."""
        one = bare(address)
        return one in self.known or _in_network(one, self.interface.network)

    def row(self, facts: Mapping[str, Any]) -> dict[str, Any]:
        """Return the place as plain values for JSON, with readings of its interface."""
        return {
            "segment": self.plan.name,
            "interface": self.interface.name,
            "address": self.interface.address,
            "network": self.interface.network or "",
            "group": "" if self.plan.peers is not None else self.plan.group,
            "version": self.load.version,
            "packet": self.load.packet,
            "rate": self.load.rate,
            "hops": self.hops,
            "nodes": self.nodes,
            "sends": self.sends,
            **facts,
        }


def bare(address: str) -> Address:
    """Return the one form of an address, without a zone; any other text as it is."""
    try:
        return str(ipaddress.ip_address(address.partition("%")[0]))
    except ValueError:
        return address


def places_of(plans: Iterable[NodePlan], uses: Mapping[str, SegmentUse]) -> list[ProbePlace]:
    """Return the places of the nodes of this host, one for each segment. Raises `TransportError`."""
    found: dict[str, ProbePlace] = {}
    for plan in plans:
        for segment in plan.segments:
            place = found.get(segment.name)
            if place is not None:
                found[segment.name] = attrs.evolve(
                    place, nodes=place.nodes + 1, sends=place.sends or segment.downstream
                )
                continue
            version = 6 if ":" in segment.group else 4
            is_unicast = segment.peers is not None
            interface = find_interface(segment.interface, version, segment.address, is_unicast=is_unicast)
            use = uses[segment.name]
            load = SegmentLoad(version, use.packet, use.rate)
            found[segment.name] = ProbePlace(
                segment,
                interface,
                load,
                plan.parameters.multicast_hops,
                1,
                segment.downstream,
                frozenset(map(bare, (*use.addresses, *(segment.peers or ())))),
            )
    return list(found.values())


@attrs.frozen
class Ear:
    """A group to hear on an interface of this host. Probes of other segments than `allowed` leak."""

    group: str
    interface: Interface
    allowed: frozenset[str]  # names of segments; none for a group that must not be heard
    place: ProbePlace | None = None

    @property
    def plan(self) -> SegmentPlan:
        """Return the plan of a receiver that hears the group. Its ports are not set."""
        if self.place is not None:
            return attrs.evolve(
                self.place.plan, address=self.interface.address, upstream=True, downstream=False, transport="udp"
            )
        return SegmentPlan(self.group, self.group, 0, 0, self.interface.name, None, upstream=True, downstream=False)


def ears_of(topology: Topology, places: Sequence[ProbePlace], uses: Mapping[str, SegmentUse]) -> list[Ear]:
    """Return what this host hears: its own places first, then the groups that it must not hear.

    A group may be heard on an interface if a place of this host, or an address of the group's segment, is in its
    network. Interfaces of loopback are alike on all segments.
    """
    found: dict[tuple[str, str], Ear] = {}
    for place in places:
        if place.plan.peers is None:
            key = place.plan.group, place.interface.name
            allowed = found[key].allowed if key in found else frozenset[str]()
            found[key] = Ear(place.plan.group, place.interface, allowed | {place.plan.name}, place)
    own = frozenset(found)
    for interface in {place.interface.name: place.interface for place in places}.values():
        address = ipaddress.ip_address(interface.address)
        for name, segment in topology.segments.items():
            if segment.unicast or ipaddress.ip_address(segment.group).version != address.version:
                continue
            key = segment.group, interface.name
            is_near = address.is_loopback or _shares(segment.interface, name, uses, interface)
            known = found.get(key, Ear(segment.group, interface, frozenset()))
            found[key] = attrs.evolve(known, allowed=known.allowed | {name}) if is_near else known
    return [ear for key, ear in found.items() if key in own or not ear.allowed]


def _shares(spec: str, name: str, uses: Mapping[str, SegmentUse], interface: Interface) -> bool:
    """Return whether a segment may lie in the network of an interface."""
    addresses = uses[name].addresses if name in uses else ()
    if any(_in_network(address, interface.network) for address in addresses):
        return True
    try:
        return ipaddress.ip_address(interface.address) in ipaddress.ip_network(spec, strict=False)
    except ValueError:
        return False  # the name of an interface, which may mean another network on each host


def _in_network(address: str, network: str | None) -> bool:
    try:
        return network is not None and ipaddress.ip_address(address) in ipaddress.ip_network(network)
    except ValueError:
        return False
