"""Format of one record of the flight recorder: 64 octets, and the tables of its kinds and causes.

A record stands for a range of sqns, not for a packet. Sqns are the 32-bit numbers of the wire, because all nodes agree on
these. `docs/reference/flight.md` is printed from the tables. Rows are only appended: a file names them by their place.
"""

from __future__ import annotations

import enum
import ipaddress
import struct
from typing import TypeAlias
from zlib import crc32

import numpy as np

from pgm.core.effects import CloseCause, LossCause
from pgm.core.recovery.repair_table import RepairState
from pgm.errors import WireError
from pgm.wire.formats import Nla, Tsi

RECORD_OCTETS = 64
_FIELDS = struct.Struct("<QqqIIHHBBBx16sI")  # all fields of `RECORD` but the check
_CHECK = struct.Struct("<I")
_CHECKED_OCTETS = RECORD_OCTETS - _CHECK.size

# The fields of a record in a file, little-endian.
RECORD = np.dtype(
    [
        ("number", "<u8"),  # counts the records of a node from 1; 0: never written
        ("time_ns", "<i8"),  # monotonic clock of the host
        ("value", "<i8"),  # see the kind
        ("first", "<u4"),
        ("count", "<u4"),
        ("tsi", "<u2"),  # place in the table of the file
        ("tries", "<u2"),
        ("kind", "u1"),
        ("segment", "u1"),  # place among the segments of the node; NO_SEGMENT: none
        ("cause", "u1"),  # place in CAUSES
        ("spare", "u1"),
        ("peer", "V16"),  # IPv6 address, or IPv4 address in its IPv6 form; zeros: none
        ("since_us", "<u4"),  # of DROPPED and SHED: time since the counter was read before
        ("check", "<u4"),  # CRC-32 of all octets before
    ]
)
assert RECORD.itemsize == RECORD_OCTETS == _FIELDS.size + _CHECK.size

NO_SEGMENT = 255
NO_TSI = 0xFFFF
NO_PEER = bytes(16)
MOST_TRIES = 0xFFFF

# field -> meaning, for the docs
FIELDS: dict[str, str] = {
    "number": "Counts the records of a node from 1. 0: the place was never written.",
    "time_ns": "Time by the monotonic clock of the host. The head of the file has the offset of the time of day.",
    "value": "A time in ns, or a number; see the kind.",
    "first": "First sqn of the range, of 32 bits.",
    "count": "Sqns in the range.",
    "tsi": "Place of the session in the table of the file; 65535: no session.",
    "tries": "Retries so far.",
    "kind": "FlightKind of the record, see below.",
    "segment": "Place among the segments of the node in the head; 255: none.",
    "cause": "Cause or state, see below; 0: none.",
    "spare": "Zero.",
    "peer": "Address of the other node as IPv6 address, IPv4 mapped; zeros: none.",
    "since_us": "Of SHED and DROPPED: time in us since the counter was read before.",
    "check": "CRC-32 of all octets before. A record with another check is torn, and is no record.",
}


class FlightKind(enum.IntEnum):
    """Kind of a record of the flight recorder."""

    BEGAN = 1
    SENT = 2
    REACHED = 3
    GAP = 4
    REPAIRED = 5
    LATE = 6
    SKIPPED = 7
    GAVE_UP = 8
    SUPPRESSED = 9
    NCF_TIMEOUT = 10
    RDATA_TIMEOUT = 11
    MENDED = 12
    PARENT = 13
    NAK_IN = 14
    NAK_OUT = 15
    NCF_IN = 16
    NCF_OUT = 17
    RDATA_IN = 18
    RDATA_OUT = 19
    LOST = 20
    FORGED = 21
    CONFLICT = 22
    OPENED = 23
    CLOSED = 24
    SHED = 25
    DROPPED = 26
    SKIPPED_RECORDS = 27
    CLOCK = 28


# kind -> roles that write it, meaning
KINDS: dict[FlightKind, tuple[str, str]] = {
    FlightKind.BEGAN: ("all", "The node began to record. `value` is the time of day minus the monotonic clock."),
    FlightKind.SENT: ("sources", "Sqns sent in the `value` ns before this time."),
    FlightKind.REACHED: ("all but sources", "Sqns that the node learnt of in the `value` ns before this time, by data, an SPM or an NCF. Those without a gap have arrived."),
    FlightKind.GAP: ("all but sources", "Sqns detected as missing."),
    FlightKind.REPAIRED: ("all but sources", "Missing sqns that arrived as RDATA of `peer`. `value` is the time since detection, `cause` the state before."),
    FlightKind.LATE: ("all but sources", "Missing sqns that arrived as ODATA of `peer`: reordered, or recovered by the relay above."),
    FlightKind.SKIPPED: ("receivers, repairers", "Missing sqns that were never sent, because a parity group ended before them."),
    FlightKind.GAVE_UP: ("all but sources", "Sqns that are not requested any more. `value` is the time since detection."),
    FlightKind.SUPPRESSED: ("receivers, repairers", "Sqns that another node requested first. `value` is the time since detection."),
    FlightKind.NCF_TIMEOUT: ("receivers, repairers", "Sqns without an NCF within `value` ns of the NAK."),
    FlightKind.RDATA_TIMEOUT: ("receivers, repairers", "Sqns without RDATA within `value` ns of the NCF."),
    FlightKind.MENDED: ("aggregators", "Sqns that the relay missed, received, and sent down as ODATA."),
    FlightKind.PARENT: ("all but sources", "`peer` receives the NAKs from now on."),
    FlightKind.NAK_IN: ("all", "Sqns in a NAK of `peer`."),
    FlightKind.NAK_OUT: ("all but sources", "Sqns requested from `peer`."),
    FlightKind.NCF_IN: ("all but sources", "Sqns in an NCF of `peer`."),
    FlightKind.NCF_OUT: ("all but receivers", "Sqns confirmed by an NCF. Without `peer` to the group."),
    FlightKind.RDATA_IN: ("all but sources", "Repairs of `peer` read in trains of which the node needed none. Needed repairs are `repaired`."),
    FlightKind.RDATA_OUT: ("all but receivers", "Repairs sent or forwarded. Without `peer` to the group."),
    FlightKind.LOST: ("receivers", "Sqns reported to the application as lost, with the cause."),
    FlightKind.FORGED: ("receivers", "Delivered sqns that the source has not sent, or for which no proof came."),
    FlightKind.CONFLICT: ("receivers", "Sqns of which two different copies came."),
    FlightKind.OPENED: ("receivers", "A session begins or resumes at `first`, from the source at `peer`."),
    FlightKind.CLOSED: ("receivers", "A session ends or becomes silent at `first`, with the cause."),
    FlightKind.SHED: ("all", "Requests of `peer` for these sqns met a budget, which `cause` names. `value` is the growth of its counter."),
    FlightKind.DROPPED: ("all", "Packets dropped at the node's own sockets since the last look; `cause` names the counter, and `value` is its growth."),
    FlightKind.SKIPPED_RECORDS: ("all", "`value` records were not written, because flight_rte allows no more."),
    FlightKind.CLOCK: ("all", "The time of day was set, by `value` ns."),
}  # fmt: skip

HEAD_CAUSES = "causes"  # key of the causes in the facts of a head, by place

# Counters of budgets that refuse requests, and of packets that the node's own sockets drop.
SHEDDING = (
    "nak_packets_braked",
    "excess_nak_packets",
    "ncf_packets_braked",
    "repairs_braked",
    "repairs_ignored",
    "states_refused",
    "parity_packets_braked",
)
DROPPING = ("socket_drops", "injected_losses", "sends_dropped", "send_errors", "truncated_reads")

# Only appended: files name a cause by its place.
CAUSES: tuple[str, ...] = (
    "",
    *(state.name for state in RepairState),
    *SHEDDING,
    *DROPPING,
    *(cause.value for cause in LossCause),
    *(name for name in (cause.value for cause in CloseCause) if name not in {one.value for one in LossCause}),
    "begins",
    "resumed",
    "delivered",
    "dropped",
)
_PLACES = {name: place for place, name in reversed(tuple(enumerate(CAUSES)))}


def cause_place(name: str) -> int:
    """Return the place of a cause in the table; 0 for an unknown name."""
    return _PLACES.get(name, 0)


# Fields of a record between its number and its check, without `spare`.
Body: TypeAlias = tuple[int, int, int, int, int, int, int, int, int, bytes, int]


def seal_record(number: int, body: Body) -> bytes:
    """Return the octets of a record: its number, its other fields, and the check."""
    octets = _FIELDS.pack(number, *body)
    return octets + _CHECK.pack(crc32(octets))


def sealed_again(octets: bytes | memoryview) -> bytes:
    """Return the octets of a record with its right check: records of JSON have none."""
    fields = octets[: _FIELDS.size]
    return bytes(fields) + _CHECK.pack(crc32(fields))


def is_whole(octets: bytes | memoryview) -> bool:
    """Return whether the octets of one record have the right check."""
    [check] = _CHECK.unpack_from(octets, _CHECKED_OCTETS)
    return bool(crc32(octets[:_CHECKED_OCTETS]) == check)


def address_octets(address: Nla) -> bytes:
    """Return an address as 16 octets; zeros for no address or an invalid one."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return NO_PEER
    return parsed.packed if parsed.version == 6 else bytes(10) + b"\xff\xff" + parsed.packed


def address_text(octets: bytes) -> Nla:
    """Return the usual spelling of 16 octets; empty for zeros. Raises `WireError` for another length."""
    if len(octets) != len(NO_PEER):
        raise WireError("length")
    if octets == NO_PEER:
        return ""
    parsed = ipaddress.IPv6Address(octets)
    return str(parsed.ipv4_mapped or parsed)


def tsi_octets(text: str) -> Tsi:
    """Return the TSI of its usual spelling. Raises `ValueError`."""
    *gsi, port = (int(part) for part in text.split("."))
    if len(gsi) != 6:
        raise ValueError(text)
    return bytes(gsi) + port.to_bytes(2, "big")
