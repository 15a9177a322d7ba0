"""Bridges of a lab that stand for switches."""

from __future__ import annotations

from tests.net.support.lab import Host


def add_bridge(switch: Host, name: str) -> None:
    """Add a bridge that floods all groups."""
    switch.run("ip", "link", "add", name, "type", "bridge", "mcast_snooping", "0")
    switch.run("ip", "link", "set", name, "up")


def plug(switch: Host, bridge: str, host: Host, name: str, address: str) -> None:
    """Join a host to a bridge by an interface with an address."""
    port = f"{host.name}{name}"
    switch.run("ip", "link", "add", port, "type", "veth", "peer", "name", name, "netns", str(host.holder.pid))
    switch.run("ip", "link", "set", port, "master", bridge, "up")
    host.add_address(name, address)
    host.run("ip", "link", "set", name, "up")
