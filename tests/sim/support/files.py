"""Topology files for predictions and placements: trees of segments with relays, written as text."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

_HEAD = """\
version = 1
name = "drawn"
profile = "{profile}"
rtt = "{rtt}"
[streams.s]
data_port = 7500
rate = "{rate}"
window = "30s"
"""


@attrs.define
class TreeFile:
    """Text of a topology file. Segments have the networks 10.0.1.0/24, 10.0.2.0/24 and so on."""

    rtt: str = "1ms"
    rate: str = "80Mbit/s"
    profile: str = "lan"
    parts: list[str] = attrs.field(factory=list)
    nets: dict[str, int] = attrs.field(factory=dict)

    @property
    def text(self) -> str:
        """Return the file."""
        return _HEAD.format(profile=self.profile, rtt=self.rtt, rate=self.rate) + "".join(self.parts)

    def segment(self, name: str, loss: str = "0%", more: str = "") -> None:
        """Add a segment, on which each node loses `loss`; `more` is the rest of the loss or further keys."""
        net = self.nets[name] = len(self.nets) + 1
        self.parts.append(
            f'[segments.{name}]\ngroup = "239.192.1.{net}"\ninterface = "10.0.{net}.0/24"\n'
            f'loss = {{ loss = "{loss}"{more} }}\n'
        )

    def source(self, segment: str) -> None:
        """Add the source, which loses nothing that it reads."""
        address = f"10.0.{self.nets[segment]}.10"
        self.parts.append(
            f'[nodes.source]\nrole = "source"\nsegment = "{segment}"\naddress = "{address}"\nstreams = ["s"]\n'
            'loss = { loss = "0%" }\n'
        )

    def relay(self, up: str, down: str, loss: str, parent: str = "source", *, role: str = "aggregator", more: str = "") -> str:  # fmt: skip
        """Add a relay that loses `loss` on its way in, and nothing from below. Return its name."""
        name, net, host = f"relay-{down}", self.nets[down], 20 + self.nets[down]
        self.parts.append(
            f'[nodes.{name}]\nrole = "{role}"\nparents = ["{parent}"]\n{more}'
            f'upstream = {{ segment = "{up}", address = "10.0.{self.nets[up]}.{host}", loss = {{ loss = "{loss}" }} }}\n'
            f'downstream = [{{ segment = "{down}", address = "10.0.{net}.1", loss = {{ loss = "0%" }} }}]\n'
        )
        return name

    def repairer(self, segment: str, *parents: str) -> str:
        """Add an on-LAN repairer, and return its name."""
        name = f"repairer-{segment}"
        self.parts.append(
            f'[nodes.{name}]\nrole = "repairer"\nsegment = "{segment}"\naddress = "10.0.{self.nets[segment]}.2"\n'
            f"parents = {_listed(parents)}\n"
        )
        return name

    def receivers(self, segment: str, count: int, *parents: str, loss: str = "", first: int = 60) -> None:
        """Add receivers with the addresses from `first` on. Their loss is that of the segment unless given."""
        net = self.nets[segment]
        self.parts.append(
            f'[nodes."receiver-{net}-{first}-*"]\nrole = "receiver"\nsegment = "{segment}"\ncount = {count}\n'
            f'addresses = "10.0.{net}.{first}-10.0.{net}.{first + count - 1}"\nparents = {_listed(parents)}\n'
            + (f'loss = {{ loss = "{loss}" }}\n' if loss else "")
        )


def _listed(names: Sequence[str]) -> str:
    return "[" + ", ".join(f'"{name}"' for name in names) + "]"


NO_CACHE = 'parameters = { relay_cache_ivl = "0s" }\n'  # an element as in RFC 3208, which repairs nothing itself


def floors(
    losses: Sequence[str], receivers: Sequence[int], uplink: str, *, keeps: bool = True, role: str = "aggregator", **head: str
) -> TreeFile:  # fmt: skip
    """Return a source, and floors behind a relay each, with a loss and a number of receivers of their own."""
    tree = TreeFile(**head)
    tree.segment("core")
    tree.source("core")
    for number, (loss, count) in enumerate(zip(losses, receivers, strict=True), 1):
        floor = f"floor-{number}"
        tree.segment(floor, loss)
        relay = tree.relay("core", floor, uplink, role=role, more="" if keeps else NO_CACHE)
        tree.receivers(floor, count, relay)
    return tree
