"""Netchecks of an agent: one at a time, of the segments of the agent's own topology file alone."""

from __future__ import annotations

import ipaddress
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs
import trio

from deploy.doctor import readings
from deploy.doctor.command import nodes_to_check
from deploy.doctor.network import check_nodes
from deploy.doctor.view import rows_of
from deploy.netcheck.host_netcheck import HostNetcheck
from deploy.netcheck.igmp import QuerierWatch
from deploy.netcheck.places import Ear, ProbePlace, ears_of, places_of
from deploy.netcheck.probes import ID_OCTETS, LEAST_SHARE, MOST_HOSTS
from pgm.errors import ProcessError, UsageError
from pgm.net.driver.nurseries import open_plain_nursery
from pgm.topology.load import load_checked
from pgm.topology.model import Topology

_REMEDY = "ask by pgm netcheck FILE of the same version"
_MOST_PEERS = 4096


@attrs.frozen
class _Preparation:
    """Facts that a thread has found before a netcheck opens its sockets."""

    topology: Topology
    places: list[ProbePlace]
    ears: list[Ear]
    checks: list[dict[str, Any]]


@attrs.define
class ProbeService:
    """Netchecks at one agent. `run` must run beside the requests."""

    file: Path
    _queriers: QuerierWatch = attrs.field(init=False, factory=QuerierWatch)
    _netcheck: HostNetcheck | None = attrs.field(init=False, default=None)
    _opening: trio.Lock = attrs.field(init=False, factory=trio.Lock)
    _new: tuple[trio.MemorySendChannel[HostNetcheck], trio.MemoryReceiveChannel[HostNetcheck]] = attrs.field(
        init=False, factory=lambda: trio.open_memory_channel[HostNetcheck](1)
    )

    async def run(self) -> None:
        """Hear queriers, and the probes of each netcheck, until cancelled."""
        async with open_plain_nursery() as nursery:
            nursery.start_soon(self._queriers.run)
            async for netcheck in self._new[1]:
                nursery.start_soon(netcheck.run)

    async def answer(self, wanted: Mapping[str, Any]) -> dict[str, Any]:
        """Answer a request of `pgm netcheck`. Raises `UsageError`, `ProcessError`, `TopologyError`."""
        do = wanted.get("do")
        if do == "open":
            return await self._open(wanted)
        netcheck = self._netcheck
        if netcheck is None or netcheck.ends.is_set() or wanted.get("id") != netcheck.id.hex():
            raise UsageError("this netcheck is not open on this host", remedy="begin again: pgm netcheck FILE")
        if do == "probe":
            await netcheck.send_probes(_whole(wanted, "hosts", 1, MOST_HOSTS))
            return {"sent": True}
        if do == "ask":
            await netcheck.ask(_peers_of(wanted.get("peers")))
            return {"asked": True}
        if do == "burst":
            segment = wanted.get("segment")
            if not isinstance(segment, str) or segment not in netcheck.places:
                raise UsageError("`segment` of the burst is none of this host", remedy=_REMEDY)
            await netcheck.burst(segment, _share(wanted.get("share")))
            return {"sent": True}
        if do == "result":
            return netcheck.result()
        if do == "close":
            netcheck.ends.set()
            return {"closed": True}
        raise UsageError(f"`do` = {str(do)[:40]!r} is unknown", remedy=_REMEDY)

    async def _open(self, wanted: Mapping[str, Any]) -> dict[str, Any]:
        name, host = wanted.get("id"), _whole(wanted, "host", 0, MOST_HOSTS - 1)
        if not isinstance(name, str) or not re.fullmatch(f"[0-9a-f]{{{2 * ID_OCTETS}}}", name):
            raise UsageError("`id` is missing", remedy=_REMEDY)
        async with self._opening:
            if self._netcheck is not None and not self._netcheck.ends.is_set():
                raise ProcessError("another netcheck runs", remedy="wait until it ends, within a minute")
            if self._netcheck is not None:
                await self._netcheck.rested.wait()
            prepared = await trio.to_thread.run_sync(_prepare, self.file, abandon_on_cancel=True)
            places = {place.plan.name: place for place in prepared.places}
            netcheck = HostNetcheck(bytes.fromhex(name), host, places, prepared.topology.fleet.probe_port)
            try:
                netcheck.open(prepared.ears)
            except OSError:  # no room for files
                netcheck.close()
                raise
            self._netcheck = netcheck
            self._new[0].send_nowait(netcheck)  # no cancellation: each netcheck that is open runs, and ends
        return {
            "places": [
                place.row(self._facts_of(place)) for place in prepared.places if place.plan.name in netcheck.mouths
            ],
            "silent": sum(ear.place is None for ear in prepared.ears),
            "checks": prepared.checks,
            "problems": netcheck.problems,
        }

    def _facts_of(self, place: ProbePlace) -> dict[str, Any]:
        name = place.interface.name
        return {
            "rp_filter": readings.interface_sysctl(name, "rp_filter"),
            "is_loopback": ipaddress.ip_address(place.interface.address).is_loopback,
            **self._queriers.facts_of(place.interface),
        }


def _prepare(file: Path) -> _Preparation:
    """Read the file, and check the interfaces of this host's nodes."""
    topology = load_checked(file)
    checked = nodes_to_check(file, ())
    places = places_of(checked.plans, checked.uses)
    checks = rows_of(check_nodes(checked.plans, checked.uses))
    return _Preparation(topology, places, ears_of(topology, places, checked.uses), checks)


def _whole(wanted: Mapping[str, Any], key: str, low: int, high: int) -> int:
    value = wanted.get(key)
    if not isinstance(value, int) or not low <= value <= high:
        raise UsageError(f"`{key}` is no number from {low} to {high}", remedy=_REMEDY)
    return value


def _share(value: Any) -> float:
    if not isinstance(value, int | float) or not LEAST_SHARE <= value < math.inf:  # NaN is less than nothing
        raise UsageError(f"`share` = {str(value)[:40]!r} is no number from {LEAST_SHARE:g} to 1", remedy=_REMEDY)
    return float(min(value, 1.0))


def _peers_of(value: Any) -> list[tuple[str, str]]:
    """Return the pairs of a segment and an address of a request."""
    if not isinstance(value, list) or len(value) > _MOST_PEERS:
        raise UsageError(f"`peers` is no list of at most {_MOST_PEERS:,} pairs", remedy=_REMEDY)
    return [(str(pair[0]), str(pair[1])) for pair in value if isinstance(pair, list) and len(pair) == 2]
