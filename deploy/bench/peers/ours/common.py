"""What both of our programs share: addresses, parameters, what they say at the end."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from pgm.core.counters import Counters
from pgm.core.interface import Core
from pgm.impairments import Impairment, Injector
from pgm.net.link.link import Link
from pgm.wire.formats import DATA_HEADER_OCTETS

PING_PORT, PONG_PORT = 7500, 7501
_MAX_RATE = 125_000_000_000  # octets a second: as fast as it goes
_MOST_PACKETS = 2_000_000  # a second, of those whose losses are drawn before
_MOST_FORESEEN = 20_000_000  # of these in all: it takes 20 ns a packet, and the rest are drawn when they come
_LARGE_DATAGRAM = 9000  # a segment with larger ones is a loopback interface; they would not travel further
_LARGEST_MESSAGE = 1472  # of those for which packets of an ordinary Ethernet are used there


def target(job: Mapping[str, Any], seat: str, group: int, data_port: int, *, is_source: bool) -> dict[str, Any]:
    """What is opened: a node of a topology file, or without one the address of a group."""
    if job["file"]:
        return {"target": job["file"], "node": "source" if is_source else "receiver"}
    where = job[seat]
    own = f"&address={where['address']}&flow={job['flow']}" if is_source else ""
    query = f"interface={where['interface']}&data_port={data_port}{own}"
    return {"target": f"pgm://{job['groups'][group]}:{job['port']}?{query}"}


def source_parameters(job: Mapping[str, Any]) -> dict[str, Any]:
    """Rows of the parameter table for a source."""
    size = job["size"]
    packet = min(job["max_datagram"], _LARGE_DATAGRAM if size > _LARGEST_MESSAGE else _LARGEST_MESSAGE)
    per_message = -(-size // (packet - DATA_HEADER_OCTETS))
    wire_octets = size + per_message * DATA_HEADER_OCTETS
    rate = round(job["rate"] * wire_octets) or (0 if job["flow"] == "yield" else _MAX_RATE)  # that has one of its own
    return {
        "max_tpdu": packet,
        **({"txw_max_rte": rate} if rate else {}),
        "txw_bytes": job["window"],
        "warm_bytes": job["window"],  # what is measured is how it goes on, not its first seconds
        "so_rcvbuf": job["rcvbuf"],
        "so_sndbuf": job["sndbuf"],
        "fin_quiet_ivl": "50ms",
        "ambient_spm_ivl": "100ms",
        **job["parameters"],
    }


def receiver_parameters(job: Mapping[str, Any]) -> dict[str, Any]:
    """Rows of the parameter table for a receiver."""
    buffers = {"so_rcvbuf": job["rcvbuf"], "so_sndbuf": job["sndbuf"]}
    return {**buffers, "rxw_warm_bytes": job["window"], **job["receiver_parameters"]}  # as the source's window


def lose(links: Sequence[Link], job: Mapping[str, Any]) -> None:
    """Have a source lose on their way out what the job says, single packets out of its trains, as networks do whose cards join what is left."""
    if job["loss"]:
        links[0].outgoing = outgoing = Injector(Impairment(loss=job["loss"]), "bench")
        outgoing.foresee(min(_MOST_FORESEEN, round(job["seconds"] * (job["rate"] or _MOST_PACKETS))))


def counted(counters: Counters) -> dict[str, Any]:
    """What both ends say at the end."""
    return {
        "packets": counters.odata_packets or counters.received_packets,
        "octets": counters.odata_octets or counters.received_octets,
        "repaired": counters.repaired_sqns,
        "lost": counters.lost_sqns,
        "kernel_drops": counters.socket_drops,
        "counters": counters.snapshot(),
    }


def window_of(core: Core) -> dict[str, int]:
    """What a source keeps for repairs: packets, and octets of memory for them."""
    status = core.status(time.monotonic_ns())[0]
    return {"window_packets": status.lead + 1 - status.trail, "window_octets": status.held_octets}


def both_of(job: Mapping[str, Any], *, is_ping: bool) -> tuple[dict[str, Any], dict[str, Any]]:
    """What whoever asks, or answers, opens as its source and as its receiver."""
    seat = "sender" if is_ping else "receiver"
    ports = (PING_PORT, PONG_PORT) if is_ping else (PONG_PORT, PING_PORT)
    groups = (0, 1) if is_ping else (1, 0)
    asking = target(job, seat, groups[0], ports[0], is_source=True)
    listening = target(job, seat, groups[1], ports[1], is_source=False)
    return asking, listening
