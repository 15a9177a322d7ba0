"""Addresses, parameters and final reports of pgm's programs."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from deploy.bench.peers.messages import Octets
from pgm.core.counters import Counters
from pgm.core.interface import Core
from pgm.impairments import Impairment, Injector
from pgm.messages.arguments import Names
from pgm.net.link.link import Link
from pgm.wire.formats import DATA_HEADER_OCTETS

PING_PORT, PONG_PORT = 7500, 7501
_MAX_RATE = 125_000_000_000  # octets a second: no limit in practice
_MOST_PACKETS = 2_000_000  # a second, for which losses are drawn in advance
_MOST_FORESEEN = 20_000_000  # losses drawn in advance at most, at 20 ns a packet; further losses are drawn on arrival
# A segment with datagrams above this size is a loopback interface. No other network would carry them.
_LARGE_DATAGRAM = 9000
# On the loopback interface, packets of a standard MTU carry messages of up to this size.
_LARGEST_MESSAGE = 1472
_BATCH_OCTETS = 100  # octets of a packet for the subject table and message headers, at most
SUBJECTS = tuple(f"/market/{number}" for number in range(10))


def target(job: Mapping[str, Any], seat: str, group: int, data_port: int, *, is_source: bool) -> dict[str, Any]:
    """Return the arguments that open a node of the job's topology file, or a group's address without such a file.

    Nodes of the second group have names that end in "-back".
    """
    if job["file"]:
        return {"target": job["file"], "node": ("source" if is_source else "receiver") + ("-back" if group else "")}
    where = job[seat]
    own = f"&address={where['address']}&flow={job['flow']}" if is_source else ""
    query = f"interface={where['interface']}&data_port={data_port}{own}"
    return {"target": f"pgm://{job['groups'][group]}:{job['port']}?{query}"}


def source_parameters(job: Mapping[str, Any]) -> dict[str, Any]:
    """Return parameters for a source."""
    size = job["size"]
    packet = min(job["max_datagram"], _LARGE_DATAGRAM if size > _LARGEST_MESSAGE else _LARGEST_MESSAGE)
    per_message = -(-size // (packet - DATA_HEADER_OCTETS))
    wire_octets = size + per_message * DATA_HEADER_OCTETS
    # A yielding source adapts its own rate.
    rate = round(job["rate"] * wire_octets) or (0 if job["flow"] == "yield" else _MAX_RATE)
    return {
        "max_tpdu": packet,
        **({"txw_max_rte": rate} if rate else {}),
        "txw_bytes": job["window"],
        "warm_bytes": job["window"],  # the steady state is measured, not the first seconds
        "so_rcvbuf": job["rcvbuf"],
        "so_sndbuf": job["sndbuf"],
        "fin_quiet_ivl": "50ms",
        "ambient_spm_ivl": "100ms",
        **job["parameters"],
    }


def receiver_parameters(job: Mapping[str, Any]) -> dict[str, Any]:
    """Return parameters for a receiver."""
    buffers = {"so_rcvbuf": job["rcvbuf"], "so_sndbuf": job["sndbuf"]}
    return {**buffers, "rxw_warm_bytes": job["window"], **job["receiver_parameters"]}  # as large as the source's window


def source_opening(job: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments that open the sending end's source. With `batched`, messages share packets."""
    opening = target(job, "sender", 0, PING_PORT, is_source=True)
    parameters = source_parameters(job)
    if job["batched"]:
        opening |= _batched(opening)
        packet = job["max_datagram"]
        each = packet / max(1, (packet - DATA_HEADER_OCTETS - _BATCH_OCTETS) // (job["size"] + 1))
        parameters |= {"max_tpdu": packet, "txw_max_rte": round(job["rate"] * each) or parameters["txw_max_rte"]}
    return opening | parameters


def _batched(opening: Mapping[str, Any]) -> dict[str, Any]:
    """Return the argument for messages that share packets; a topology file says so itself."""
    return {} if "node" in opening else {"target": f"{opening['target']}&framing=batch"}


def receiver_opening(job: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments that open the receiving end. With `batched`, the subscription has a wildcard."""
    opening = target(job, "receiver", 0, PING_PORT, is_source=False)
    if job["batched"]:
        opening |= _batched(opening)
        opening["subjects"] = ["/market/*"]
    return opening | receiver_parameters(job)


def subjects_of(rows: Octets, job: Mapping[str, Any]) -> Names:
    """Return the subjects of messages, ten in turn, or None if messages do not share packets."""
    return (SUBJECTS, np.arange(len(rows), dtype=np.uint8) % len(SUBJECTS)) if job["batched"] else None


def lose(links: Sequence[Link], job: Mapping[str, Any]) -> None:
    """Drop the job's share of packets from a source's trains, as network cards leave gaps when they join packets."""
    if job["loss"]:
        links[0].outgoing = outgoing = Injector(Impairment(loss=job["loss"]), "bench")
        outgoing.foresee(min(_MOST_FORESEEN, round(job["seconds"] * (job["rate"] or _MOST_PACKETS))))


def counted(counters: Counters) -> dict[str, Any]:
    """Return the counters that both ends report."""
    return {
        "packets": counters.odata_packets or counters.received_packets,
        "octets": counters.odata_octets or counters.received_octets,
        "repaired": counters.repaired_sqns,
        "lost": counters.lost_sqns,
        "kernel_drops": counters.socket_drops,
        "counters": counters.snapshot(),
    }


def window_of(core: Core) -> dict[str, int]:
    """Return the source's window in packets, and in octets of memory."""
    status = core.status(time.monotonic_ns())[0]
    return {"window_packets": status.lead + 1 - status.trail, "window_octets": status.held_octets}


def both_of(job: Mapping[str, Any], *, is_ping: bool) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the arguments for the source and the receiver of a round trip end."""
    seat = "sender" if is_ping else "receiver"
    ports = (PING_PORT, PONG_PORT) if is_ping else (PONG_PORT, PING_PORT)
    groups = (0, 1) if is_ping else (1, 0)
    asking = target(job, seat, groups[0], ports[0], is_source=True)
    listening = target(job, seat, groups[1], ports[1], is_source=False)
    return asking, listening
