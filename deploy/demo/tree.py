"""Topology of `pgm demo`: a generated file for the loopback interface of this machine."""

from __future__ import annotations

import json
import os
from pathlib import Path

import attrs

from deploy.node import ports
from pgm.errors import UsageError
from pgm.impairments import Impairment
from pgm.units import format_fraction, format_rate

_BURST_LENGTH = 8
_FIRST_RELAY = 21  # last octet of the upstream address of the first relay; below the receivers of that segment
_RECORDER_ADDRESS = 90
_FIRST_RECEIVER = 100
_LEAST_RATE = 250_000  # octets/s, the least rate of the source; even a busy machine keeps up with it
_MOST_RECEIVERS = 255 - _FIRST_RECEIVER  # in one subnet
_NETS = 150


@attrs.frozen
class DemoTree:
    """Shape and losses of the demo's tree. Receivers are spread evenly over the subnets."""

    subnets: int = 3
    receivers: int = 12
    loss: float = 0.02  # random, on every last hop
    burst_loss: float = 0.02  # in bursts of mean 8, on every last hop
    loss_at: str = "all"  # nodes with the losses of a last hop: all, or only receivers
    uplink_loss: float = 0.002
    rate: int = 4_500_000  # octets/s: twenty processes share a few cores
    record: Path | None = None  # folder for the archives of one recorder per subnet

    @property
    def losses(self) -> dict[str, Impairment]:
        """Return the losses of last hops and of uplinks."""
        return {
            "last_hop": Impairment(self.loss, self.burst_loss, _BURST_LENGTH),
            "uplink": Impairment(self.uplink_loss),
        }

    def receivers_of(self, subnet: int) -> int:
        """Return the number of receivers of a subnet; subnets count from 1."""
        return self.receivers // self.subnets + (1 if subnet <= self.receivers % self.subnets else 0)

    def upstream_of(self, subnet: int) -> str:
        """Return the segment above a subnet. Every third subnet is below the previous one, on a second tier."""
        return f"subnet-{subnet - 1}" if subnet % 3 == 0 else "core"


def demo_topology(tree: DemoTree) -> str:
    """Return the text of the topology file. Ports and addresses follow from the process id, so that demos do not collide.

    Raises `UsageError` for more receivers than the subnets have addresses.
    """
    if tree.receivers_of(1) > _MOST_RECEIVERS:
        raise UsageError(
            f"a subnet of the demo has room for {_MOST_RECEIVERS} receivers, not for {tree.receivers_of(1)}",
            remedy=f"ask for more subnets: --subnets {-(-tree.receivers // _MOST_RECEIVERS)}",
        )
    pid = os.getpid()
    net = f"127.{64 + pid % _NETS}"
    group = f"239.{192 + pid % 60}.{pid // 60 % 250}"
    port = ports.OF_DEMOS.of(pid // _NETS)  # differs from the port of the next process id with the same net
    uplink = f'{{ loss = "{format_fraction(tree.uplink_loss)}" }}'
    last_hop = f'{{ loss = "{format_fraction(tree.loss)}", burst_loss = "{format_fraction(tree.burst_loss)}", burst_length = {_BURST_LENGTH} }}'
    parts = [
        _HEAD.format(
            rate=format_rate(tree.rate),
            least=format_rate(min(tree.rate, _LEAST_RATE)),
            group=f"{group}.1",
            port=port,
            net=net,
            uplink=uplink,
        )
    ]
    for subnet in range(1, tree.subnets + 1):
        upstream = tree.upstream_of(subnet)
        above = 0 if upstream == "core" else subnet - 1
        values = {
            "n": subnet,
            "group": f"{group}.{1 + subnet}",
            "port": port,
            "net": net,
            "upstream": upstream,
            "above": above,
            "parent": "source" if upstream == "core" else f"subnet-{subnet - 1}-repairer",
            "uplink": uplink,
            "last_hop": last_hop,
            "repairer_loss": "" if tree.loss_at == "all" else f"loss = {uplink}\n",
            "relay": _FIRST_RELAY + subnet - 1,
            "count": tree.receivers_of(subnet),
            "first": _FIRST_RECEIVER,
            "last": _FIRST_RECEIVER + tree.receivers_of(subnet) - 1,
        }
        parts.append(_SEGMENT.format(**values))
        parts.append((_RELAYING_REPAIRER if subnet % 3 == 2 else _AGGREGATOR_AND_REPAIRER).format(**values))
        parents = (
            f'["subnet-{subnet}-repairer"]'
            if subnet % 3 == 2
            else f'["subnet-{subnet}-aggregator", "subnet-{subnet}-repairer"]'
        )
        if values["count"]:
            parts.append(_RECEIVERS.format(parents=parents, **values))
        if tree.record is not None:
            directory = json.dumps(str(tree.record.resolve() / f"subnet-{subnet}"))
            parts.append(_RECORDER.format(parents=parents, recorder=_RECORDER_ADDRESS, directory=directory, **values))
    return "".join(parts)


_HEAD = """\
# A repair tree on the loopback interface, made by `pgm demo`.
version = 1
name = "demo"
profile = "lossy"
rtt = "50ms"               # twenty processes share a few cores
repair_budget = "30s"      # as long as the window

[parameters]
rx_wake_ivl = "20ms"       # a process wakes up at most once in this time, for a batch of packets
rxw_warm_bytes = "0B"      # a process takes memory only when it needs the memory
txw_burst_ivl = "20ms"
txw_min_rte = "{least}"    # the source slows down if the receivers get too little CPU time
txw_yield_share = "1%"

[streams.numbers]
data_port = 7500
rate = "{rate}"
window = "30s"

[segments.core]
group = "{group}"
port = {port}
interface = "{net}.0.0/24"
loss = {uplink}

[nodes.source]
role = "source"
segment = "core"
address = "{net}.0.10"
streams = ["numbers"]
"""

_SEGMENT = """
[segments.subnet-{n}]
group = "{group}"
port = {port}
interface = "{net}.{n}.0/24"
loss = {last_hop}
"""

_AGGREGATOR_AND_REPAIRER = """
[nodes.subnet-{n}-aggregator]      # a relay, the only SPM speaker of its subnet
role = "aggregator"
upstream = {{ segment = "{upstream}", address = "{net}.{above}.{relay}", loss = {uplink} }}
downstream = [{{ segment = "subnet-{n}", address = "{net}.{n}.1" }}]
repairers = ["subnet-{n}-repairer"]
parents = ["{parent}"]

[nodes.subnet-{n}-repairer]        # on-LAN, below the aggregator
role = "repairer"
segment = "subnet-{n}"
address = "{net}.{n}.2"
parents = ["subnet-{n}-aggregator"]
{repairer_loss}"""

_RELAYING_REPAIRER = """
[nodes.subnet-{n}-repairer]        # relay and repairer in one
role = "repairer"
upstream = {{ segment = "{upstream}", address = "{net}.{above}.{relay}", loss = {uplink} }}
downstream = [{{ segment = "subnet-{n}", address = "{net}.{n}.1" }}]
parents = ["{parent}"]
"""

_RECEIVERS = """
[nodes."receiver-{n}-*"]
role = "receiver"
segment = "subnet-{n}"
count = {count}
addresses = "{net}.{n}.{first}-{net}.{n}.{last}"
streams = ["numbers"]
parents = {parents}
"""

_RECORDER = """
[nodes.recorder-{n}]               # a receiver that records its messages in an archive
role = "receiver"
segment = "subnet-{n}"
address = "{net}.{n}.{recorder}"
streams = ["numbers"]
parents = {parents}
record = {{ directory = {directory} }}
"""
