"""Answers of an agent about the flight recorders of its host."""

from __future__ import annotations

import json
from collections.abc import Sequence

import attrs

from pgm.errors import ProcessError, UsageError
from pgm.fleet.runtime_folders import tree_folders
from pgm.flight.contents import read_ring, rings_in, to_json
from pgm.flight.excerpt import MOST_PACKETS, Packet, about_packets, worst_of

_MOST_WORST = 1000


@attrs.frozen
class FlightQuery:
    """Question of a request to the recorders: some packets, or the worst troubles."""

    packets: tuple[Packet, ...]
    worst: int = 0


def query_of(packets: Sequence[str], worst: str | None) -> FlightQuery:
    """Return the query of a request's parameters. Raises `UsageError`."""
    if len(packets) > MOST_PACKETS:
        raise UsageError(f"{len(packets):,} packets in one request", remedy=f"ask for {MOST_PACKETS:,} at most")
    if worst is not None:
        if not worst.isdecimal() or not 1 <= int(worst[:9]) <= _MOST_WORST:
            raise UsageError(f"worst={worst[:20]!r} is no number", remedy=f"choose from 1 to {_MOST_WORST}")
        return FlightQuery((), int(worst))
    found: list[Packet] = []
    for packet in packets:
        stream, mark, sqn = packet.rpartition(":")
        if not mark or not sqn.isdecimal() or len(sqn) > 20:
            raise UsageError(f"packet={packet[:80]!r} is no packet", remedy="write packet=STREAM:SQN")
        found.append((stream, int(sqn)))
    if not found:
        raise UsageError("`packet` and `worst` are missing", remedy="ask for packet=STREAM:SQN, or for worst=10")
    return FlightQuery(tuple(found))


def rings_as_json(topology: str, query: FlightQuery) -> bytes:
    """Return an object with `rings`, the recorders of a tree on this host. Rings that cannot be read are left out."""
    rings = []
    for path in (path for folder in tree_folders(topology) for path in rings_in(folder)):
        try:
            contents = read_ring(path)
        except ProcessError:
            continue  # a file that begins, or of another version
        own = worst_of(contents, query.worst) if query.worst else about_packets(contents, query.packets)
        rings.append(to_json(own))
    return json.dumps({"rings": rings}, separators=(",", ":")).encode()
