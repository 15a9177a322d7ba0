"""Processor time and memory of nodes, from a profile of one machine that `pgm plan --measure-machine` writes.

The processor time of a node is a sum over its packets: data that it sends or takes, and requests that it makes or answers. The
memory is that of the process without packets, and the packets that its window or cache holds at the rate of the feed.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import attrs

from pgm.errors import UsageError
from pgm.parameters import Parameters
from pgm.prediction.json_files import fault_of
from pgm.prediction.waits import DrawnWaits
from pgm.topology.node_plan import Role
from pgm.units import SECOND

_LEAST_REQUESTS = 500  # of a role, for costs of its own
_REMEDY = "pgm plan FILE --measure-machine PROFILE writes a profile of this machine"


@attrs.frozen(kw_only=True)
class NodeLoad:
    """Load of one of `count` nodes that are alike, in packets per packet of the feed."""

    name: str
    role: Role
    count: int
    parameters: Parameters
    sent: float = 0.0
    repairs: float = 0.0
    naks_in: float = 0.0
    naks_out: float = 0.0
    missed: float = 0.0
    waits: tuple[DrawnWaits, ...] = ()

    @property
    def requests(self) -> float:
        """Return the requests that the node makes or answers."""
        return self.missed if self.role is Role.RECEIVER else max(self.repairs, self.naks_in, self.missed)


@attrs.frozen
class RoleCosts:
    """Costs of a role: processor seconds for a packet of data and for a request, and octets of memory without packets."""

    data_s: float
    request_s: float
    memory_bytes: int


@attrs.frozen
class MachineProfile:
    """Costs of all roles on one machine."""

    machine: str
    roles: dict[str, RoleCosts]

    @classmethod
    def read(cls, file: Path) -> MachineProfile:
        """Read a profile. Raises `UsageError` if the file is missing or no profile."""
        try:
            content = json.loads(file.read_text())
            roles = {role.value: RoleCosts(**content["roles"][role.value]) for role in Role}
            return cls(str(content["machine"]), roles)
        except OSError as error:
            raise UsageError(f"{file}: {error.strerror}", remedy=_REMEDY) from None
        except (ValueError, KeyError, TypeError) as error:
            raise UsageError(f"{file} is no profile of a machine: {fault_of(error)}", remedy=_REMEDY) from None

    def write(self, file: Path) -> None:
        """Write the profile. Raises `UsageError` if the file cannot be written."""
        try:
            file.write_text(json.dumps(attrs.asdict(self), indent=1) + "\n")
        except OSError as error:
            raise UsageError(f"{file}: {error.strerror}", remedy="write to another folder") from None

    def cpu(self, load: NodeLoad, per_s: float) -> float:
        """Return the processor seconds a second of a node, at `per_s` packets a second."""
        costs = self.roles[load.role.value]
        links = max(1.0, load.sent)
        return per_s * (costs.data_s * links + costs.request_s * load.requests)

    def memory(self, load: NodeLoad, octets_per_s: float) -> int:
        """Return the octets of memory of a node at a rate in octets a second."""
        return self.roles[load.role.value].memory_bytes + round(_held_octets(load, octets_per_s))


def _held_octets(load: NodeLoad, octets_per_s: float) -> float:
    """Return the octets of packets that a node keeps in its window or cache at a rate in octets a second."""
    own = load.parameters
    if load.role is Role.REPAIRER:
        return min(own.cache_bytes, octets_per_s * own.cache_secs / SECOND)
    if load.role is Role.AGGREGATOR and load.sent:
        return min(own.relay_cache_bytes, octets_per_s * own.relay_cache_ivl / SECOND)
    if load.role is Role.SOURCE:
        return own.txw_bytes or own.txw_max_rte * own.txw_secs / SECOND
    return 0.0


def fitted(machine: str, runs: list[dict[str, dict[str, Any]]], packets: tuple[int, int]) -> MachineProfile:
    """Return the profile that fits three runs: few packets, more packets, and as many with losses.

    A run has for each role the processor seconds `cpu_s`, the memory `rss_bytes`, and the `requests` that it made or answered.
    A role with few requests has the largest costs of the others.
    """
    few, more, lossy = runs
    names = [role.value for role in Role]
    extra = {name: max(0.0, lossy[name]["cpu_s"] - more[name]["cpu_s"]) for name in names}
    known = {
        name: extra[name] / lossy[name]["requests"] for name in names if lossy[name]["requests"] >= _LEAST_REQUESTS
    }
    usual = max(known.values(), default=0.0)
    span = packets[1] - packets[0]
    roles = {
        name: RoleCosts(
            data_s=max(0.0, more[name]["cpu_s"] - few[name]["cpu_s"]) / span,
            request_s=known.get(name, usual),
            memory_bytes=int(few[name]["rss_bytes"]),
        )
        for name in names
    }
    return MachineProfile(machine, roles)
