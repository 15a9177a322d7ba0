"""Network of a cloud: hosts on networks whose gateway forwards unicast, and multicast to members of IGMPv2 alone.

    exchange   relay   zone-a   zone-b          office   desk
       │         │        │        │               │       │
    ───┴─────────┴── gateway ──────┴───   ─────────┴───────┴───  the gateway's other network

A host has one interface, IGMPv2 forced, a strict reverse path filter, and a route to the gateway. The gateway is a bridge
for each network, which snoops, asks by IGMPv2, and sends a group only to members.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import attrs

from tests.net.support.lab import Host, Lab, lab


@attrs.frozen
class CloudNetwork:
    """One network of the gateway. `first` is the start of its addresses, such as "10.60"; hosts are by name."""

    first: str
    hosts: Mapping[str, tuple[str, ...]]  # addresses of each host
    mtu: int = 1500
    prefix: int = 24  # of the interfaces

    def gateway_of(self, address: str) -> str:
        """Return the gateway's address in the subnet of an address."""
        return address.rpartition(".")[0] + ".254"


def _attach(net: CloudNetwork, bridge: str, gateway: Host, host: Host, addresses: tuple[str, ...]) -> None:
    port = f"v{host.name}"
    router = net.gateway_of(addresses[0])
    lines = [
        f"ip link add eth0 type veth peer name {port} netns {gateway.holder.pid}",
        *(f"ip address add {address}/{net.prefix} dev eth0" for address in addresses),
        f"ip link set eth0 mtu {net.mtu} up",
        f"ip route replace {router} dev eth0 scope link",
        f"ip route add default via {router} dev eth0",
        "sysctl -qw net.ipv4.conf.all.rp_filter=1 net.ipv4.conf.eth0.rp_filter=1 net.ipv4.conf.eth0.force_igmp_version=2",
    ]
    host.run("sh", "-euc", "\n".join(lines))
    gateway.run("ip", "link", "set", port, "master", bridge, "mtu", str(net.mtu), "up")


def _bridge(made: Lab, gateway: Host, name: str, net: CloudNetwork) -> dict[str, Host]:
    routers = {net.gateway_of(address) for addresses in net.hosts.values() for address in addresses}
    lines = [
        f"ip link add {name} type bridge mcast_snooping 1 mcast_querier 1 mcast_igmp_version 2",
        *(f"ip address add {router}/24 dev {name}" for router in sorted(routers)),
        f"ip link set {name} mtu {net.mtu} up",
        "sysctl -qw net.ipv4.ip_forward=1 net.ipv4.conf.all.send_redirects=0",
        f"sysctl -qw net.ipv4.conf.{name}.send_redirects=0",
    ]
    gateway.run("sh", "-euc", "\n".join(lines))
    hosts = {host: made.host(host) for host in net.hosts}
    for host, addresses in net.hosts.items():
        _attach(net, name, gateway, hosts[host], addresses)
    return hosts


@contextmanager
def cloud(*networks: CloudNetwork) -> Iterator[dict[str, Host]]:
    """Make the gateway and the hosts of its networks. Return the hosts by name, with `gateway`."""
    with lab() as made:
        gateway = made.host("gateway")
        hosts = {"gateway": gateway}
        for number, net in enumerate(networks):
            hosts |= _bridge(made, gateway, f"br{number}", net)
        yield hosts
