"""Contents of a flight recorder's ring, as readers see it: a file, octets from another host, or JSON.

`pack` makes octets of a ring file for another host, and `unpack_untrusted` reads them. `to_json` and `from_json_untrusted`
do the same for programs without this package. Readers trust nothing: what is damaged is left out.
"""

from __future__ import annotations

import os
import stat
import zlib
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

from pgm.errors import ProcessError, WireError
from pgm.flight.facts import checked_facts_untrusted
from pgm.flight.record import (
    CAUSES,
    HEAD_CAUSES,
    KINDS,
    RECORD,
    RECORD_OCTETS,
    FlightKind,
    address_octets,
    address_text,
    is_whole,
    sealed_again,
    tsi_octets,
)
from pgm.flight.ring import (
    HEAD_OCTETS,
    LEAST_OCTETS,
    MOST_SESSIONS,
    SESSION,
    SESSIONS_AT,
    Facts,
    FlightRing,
    has_ring_head,
    read_boot_id,
    read_facts_untrusted,
    read_wall_offset,
)
from pgm.units import GIB
from pgm.wire.formats import Tsi, tsi_text

Records = npt.NDArray[np.void]
SUFFIX = ".flight"
JSON_VERSION = 1
_MOST_OCTETS = GIB


@attrs.define(eq=False)
class RingContents:
    """Records of one node, oldest first, with the facts of its head. Times of records are by the monotonic clock."""

    facts: Facts
    boot_id: str
    wall_offset_ns: int
    sessions: list[tuple[Tsi, int]]  # TSI and data port, by place
    records: Records
    causes: tuple[str, ...] = CAUSES

    @property
    def node(self) -> str:
        """Name of the node."""
        return str(self.facts["node"])

    @property
    def role(self) -> str:
        """Role of the node."""
        return str(self.facts["role"])

    def cause(self, place: int) -> str:
        """Return the name of a cause."""
        return self.causes[place] if place < len(self.causes) else f"cause-{place}"

    def segment(self, place: int) -> str:
        """Return the name of a segment of the node; empty if there is none."""
        segments = self.facts["segments"]
        return str(segments[place]["name"]) if place < len(segments) else ""


def read_ring(path: Path) -> RingContents:
    """Return the contents of a ring file that a process may write meanwhile. Raises `ProcessError`."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(fd, "rb") as file:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise ProcessError(f"{path} is no flight recorder's file", remedy="name another file")
            octets = file.read(_MOST_OCTETS)
    except OSError as error:
        raise ProcessError(f"{path}: {error.strerror}", remedy="run as the user of the node") from error
    try:
        return contents_untrusted(octets)
    except WireError as error:
        raise ProcessError(f"{path} is no flight recorder's file: {error.reason}", remedy="remove the file") from error


def contents_untrusted(octets: bytes | memoryview) -> RingContents:
    """Return the contents of a ring's octets. Raises `WireError`."""
    if not has_ring_head(octets):
        raise WireError("layout")
    places = (len(octets) - HEAD_OCTETS) // RECORD_OCTETS
    every = np.frombuffer(octets, RECORD, places, HEAD_OCTETS)
    used = np.flatnonzero(every["number"])
    view = memoryview(octets)
    whole = [
        at
        for at in used.tolist()
        if is_whole(view[HEAD_OCTETS + at * RECORD_OCTETS : HEAD_OCTETS + (at + 1) * RECORD_OCTETS])
    ]
    records = every[whole]
    rows = np.frombuffer(octets, SESSION, MOST_SESSIONS, SESSIONS_AT)
    count = int(np.flatnonzero(rows["used"])[-1]) + 1 if rows["used"].any() else 0
    facts = checked_facts_untrusted(read_facts_untrusted(octets))
    return RingContents(
        facts,
        read_boot_id(octets),
        read_wall_offset(octets),
        [(bytes(row["tsi"]), int(row["data_port"])) for row in rows[:count]],
        records[np.argsort(records["number"], kind="stable")],
        tuple(facts[HEAD_CAUSES]),
    )


def pack(path: Path) -> bytes:
    """Return a ring file as compressed octets for another host. Raises `ProcessError`."""
    try:
        octets = path.read_bytes()
    except OSError as error:
        raise ProcessError(f"{path}: {error.strerror}", remedy="run as the user of the node") from error
    return zlib.compress(octets, 1)


def ring_octets(contents: RingContents) -> bytes:
    """Return the octets of a ring file with these contents and nothing else, which `read_ring` reads again."""
    octets = bytearray(max(LEAST_OCTETS, HEAD_OCTETS + len(contents.records) * RECORD_OCTETS))
    ring = FlightRing(octets, contents.boot_id, contents.facts)
    ring.set_wall_offset(contents.wall_offset_ns)
    for tsi, data_port in contents.sessions:
        ring.session(tsi, data_port)
    ring.close()
    records = memoryview(contents.records.tobytes())
    for at in range(0, len(records), RECORD_OCTETS):
        octets[HEAD_OCTETS + at : HEAD_OCTETS + at + RECORD_OCTETS] = sealed_again(records[at : at + RECORD_OCTETS])
    return bytes(octets)


def unpack_untrusted(octets: bytes, most: int = 256 << 20) -> RingContents:
    """Return the contents of packed octets of at most `most` octets in the clear. Raises `WireError`."""
    inflater = zlib.decompressobj()
    try:
        clear = inflater.decompress(octets, most)
    except zlib.error:
        raise WireError("compression") from None
    if not inflater.eof:
        raise WireError("length")
    return contents_untrusted(clear)


def rings_in(folder: Path) -> list[Path]:
    """Return the ring files of a folder, sorted by name."""
    try:
        return sorted(path for path in folder.iterdir() if path.name.endswith(SUFFIX))
    except OSError:
        return []


def to_json(contents: RingContents) -> dict[str, Any]:
    """Return the contents as an object for JSON; docs/reference/flight.md describes it."""
    kinds = {int(kind): kind.name.lower() for kind in KINDS}
    rows = []
    for row in contents.records:
        place = int(row["tsi"])
        rows.append(
            {
                "number": int(row["number"]),
                "time_ns": int(row["time_ns"]),
                "kind": kinds.get(int(row["kind"]), f"kind-{row['kind']}"),
                "tsi": tsi_text(contents.sessions[place][0]) if place < len(contents.sessions) else "",
                "first": int(row["first"]),
                "count": int(row["count"]),
                "segment": contents.segment(int(row["segment"])),
                "peer": address_text(bytes(row["peer"])),
                "value": int(row["value"]),
                "tries": int(row["tries"]),
                "cause": contents.cause(int(row["cause"])),
                "since_us": int(row["since_us"]),
            }
        )
    return {
        "version": JSON_VERSION,
        "facts": contents.facts,
        "boot_id": contents.boot_id,
        "wall_offset_ns": contents.wall_offset_ns,
        "sessions": [{"tsi": tsi_text(tsi), "data_port": port} for tsi, port in contents.sessions],
        "records": rows,
    }


def from_json_untrusted(value: object) -> RingContents:
    """Return the contents that `to_json` made an object of. Raises `WireError`."""
    try:
        return _from_json(value)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
        raise WireError("json") from None


def _from_json(value: Any) -> RingContents:
    if value["version"] != JSON_VERSION:
        raise ValueError
    facts = checked_facts_untrusted(value["facts"])
    sessions = [(tsi_octets(row["tsi"]), int(row["data_port"])) for row in value["sessions"]]
    places = {tsi_text(tsi): place for place, (tsi, _) in enumerate(sessions)}
    segments = [segment["name"] for segment in facts["segments"]]
    causes = tuple(facts[HEAD_CAUSES])
    records = np.zeros(len(value["records"]), RECORD)
    for at, row in enumerate(value["records"]):
        records[at] = (
            row["number"], row["time_ns"], row["value"], row["first"], row["count"], places.get(row["tsi"], 0xFFFF),
            row["tries"], FlightKind[row["kind"].upper()], segments.index(row["segment"]) if row["segment"] else 255,
            causes.index(row["cause"]) if row["cause"] in causes else 0, 0, address_octets(row["peer"]), row["since_us"], 0,
        )  # fmt: skip
    return RingContents(facts, str(value["boot_id"]), int(value["wall_offset_ns"]), sessions, records, causes)
