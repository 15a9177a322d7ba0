"""Offsets between the clocks of hosts, estimated from requests and their confirmations.

A NAK and its NCF are one round trip: t1 and t4 by the clock of the node that asks, t2 and t3 by the clock of its parent. As
in NTP the offset is ((t2 - t1) + (t3 - t4)) / 2, and it is wrong by at most half of the round trip without the time at the
parent. The round trip that took least counts. Nodes of one host share a monotonic clock, and need no estimate.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import attrs
import numpy as np

from pgm.flight.contents import RingContents
from pgm.flight.record import FlightKind, address_text
from pgm.units import SECOND
from pgm.wire.formats import Nla, Tsi

_MOST_WAIT_NS = 10 * SECOND  # for a confirmation

Ask = tuple[Tsi, int, Nla]  # session, sqn, the other node


@attrs.frozen
class RoundTrip:
    """Evidence of one request: the parent's clock is `ahead_ns` ahead, give or take `error_ns`."""

    ahead_ns: int
    error_ns: int


@attrs.frozen
class HostClock:
    """Clock of a host: its times are `ahead_ns` later than those of the reference, give or take `error_ns`.

    `pairs` is the number of round trips that were compared. None in `error_ns`: there was none, and the clocks are taken
    as equal.
    """

    host: str
    boot_id: str
    ahead_ns: int = 0
    error_ns: int | None = 0
    pairs: int = 0
    is_reference: bool = False


def estimate_clocks(rings: Iterable[RingContents], reference: str) -> dict[str, HostClock]:
    """Return the clock of each host by boot id. `reference` is the boot id of the host whose clock is the measure."""
    by_host: dict[str, list[RingContents]] = defaultdict(list)
    for ring in rings:
        by_host[ring.boot_id].append(ring)
    names = {boot_id: ", ".join(sorted({str(one.facts["host"]) for one in own})) for boot_id, own in by_host.items()}
    edges: dict[tuple[str, str], list[RoundTrip]] = defaultdict(list)
    if len(by_host) > 1:
        for ring in (one for own in by_host.values() for one in own):
            for parent in (one for boot_id, own in by_host.items() if boot_id != ring.boot_id for one in own):
                edges[ring.boot_id, parent.boot_id] += _round_trips(ring, parent)
    clocks = {reference: HostClock(names.get(reference, ""), reference, is_reference=True)}
    waiting = [reference]
    while waiting:
        known = clocks[waiting.pop(0)]
        for boot_id in by_host:
            trips = [
                *edges[known.boot_id, boot_id],
                *(RoundTrip(-one.ahead_ns, one.error_ns) for one in edges[boot_id, known.boot_id]),
            ]
            if boot_id in clocks or not trips:
                continue
            best = min(trips, key=lambda one: one.error_ns)
            error_ns = best.error_ns + (known.error_ns or 0)
            clocks[boot_id] = HostClock(names[boot_id], boot_id, known.ahead_ns + best.ahead_ns, error_ns, len(trips))
            waiting.append(boot_id)
    for boot_id in by_host:
        clocks.setdefault(boot_id, HostClock(names[boot_id], boot_id, 0, None))
    return clocks


def _round_trips(ring: RingContents, parent: RingContents) -> list[RoundTrip]:
    """Return the round trips of the requests of one node to another that both have recorded exactly once."""
    own, others = _addresses(ring), _addresses(parent)
    asks = _once(ring, FlightKind.NAK_OUT, others)
    heard = _once(parent, FlightKind.NAK_IN, own)
    answers = _times(ring, FlightKind.NCF_IN, others)
    confirmations = _times(parent, FlightKind.NCF_OUT, None)
    trips = []
    for (tsi, sqn), t1 in asks.items():
        t2 = heard.get((tsi, sqn))
        if t2 is None:
            continue
        t3 = next((at for at in confirmations.get((tsi, sqn), ()) if at >= t2), None)
        t4 = next((at for at in answers.get((tsi, sqn), ()) if at >= t1), None)
        if t3 is None or t4 is None or t4 - t1 > _MOST_WAIT_NS:
            continue
        round_trip_ns = (t4 - t1) - (t3 - t2)
        if round_trip_ns >= 0:
            trips.append(RoundTrip(((t2 - t1) + (t3 - t4)) // 2, round_trip_ns // 2))
    return trips


def _addresses(ring: RingContents) -> frozenset[Nla]:
    return frozenset(str(segment["address"]) for segment in ring.facts["segments"])


def _times(ring: RingContents, kind: FlightKind, peers: frozenset[Nla] | None) -> dict[tuple[Tsi, int], list[int]]:
    """Return the times of records of a kind, by session and first sqn, in ns since 1970 by the node's clock."""
    records = ring.records[ring.records["kind"] == kind]
    times: dict[tuple[Tsi, int], list[int]] = defaultdict(list)
    for row in records[np.argsort(records["time_ns"], kind="stable")]:
        place = int(row["tsi"])
        if place < len(ring.sessions) and (peers is None or address_text(bytes(row["peer"])) in peers):
            times[ring.sessions[place][0], int(row["first"])].append(int(row["time_ns"]) + ring.wall_offset_ns)
    return times


def _once(ring: RingContents, kind: FlightKind, peers: frozenset[Nla]) -> dict[tuple[Tsi, int], int]:
    return {key: times[0] for key, times in _times(ring, kind, peers).items() if len(times) == 1}
