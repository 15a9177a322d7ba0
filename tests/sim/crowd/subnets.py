"""Topology file of many subnets behind relays: `python -m tests.sim.crowd.subnets 1000 1000 > subnets.toml`."""

from __future__ import annotations

import sys


def subnets(count: int, receivers: int, *, loss: str = "0%") -> str:
    """Return a file with a source, and `count` subnets with a relay and `receivers` receivers each.

    A subnet has at most 1,000 receivers, and there are at most 4,000 subnets.
    """
    parts = [_HEAD]
    for number in range(1, count + 1):
        net, third = number >> 6, (number & 63) << 2
        parts.append(
            f"""
[segments.subnet-{number}]
group = "239.{193 + (number >> 8)}.{number & 255}.2"
interface = "10.{net}.{third}.0/22"
loss = {{ loss = "{loss}" }}
[nodes.relay-{number}]
role = "aggregator"
upstream = {{ segment = "core", address = "10.250.{1 + (number >> 7)}.{1 + (number & 127)}" }}
downstream = [{{ segment = "subnet-{number}", address = "10.{net}.{third}.1" }}]
parents = ["server"]
[nodes."desk-{number}-*"]
role = "receiver"
segment = "subnet-{number}"
count = {receivers}
addresses = "10.{net}.{third}.10-10.{net}.{third + 3}.250"
parents = ["relay-{number}"]
"""
        )
    return "".join(parts)


_HEAD = """version = 1
name = "subnets"
profile = "lan"
rtt = "2ms"

[streams.updates]
data_port = 7500
rate = "80Mbit/s"
window = "20s"

[segments.core]
group = "239.192.60.1"
interface = "10.250.0.0/16"

[nodes.server]
role = "source"
segment = "core"
address = "10.250.0.1"
streams = ["updates"]
"""

if __name__ == "__main__":
    print(subnets(int(sys.argv[1]), int(sys.argv[2])))
