"""Ring of the flight recorder: memory or a mapped file, which one process writes and any process may read.

    ring    = head, records
    head    = magic, layout, time of day, boot id, facts of the node as JSON, table of sessions

The file outlives its process. A record counts only if its check is right, so a write that the end of the process cut off
is no record. Records have numbers, which readers sort by: no position must be stored. The file grows by `_STEP_OCTETS`
as records need room, and every step is reserved first. A write to a mapped page without memory would end the process.
"""

from __future__ import annotations

import json
import mmap
import os
import struct
import threading
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from pgm.errors import ProcessError
from pgm.flight.record import NO_TSI, RECORD, RECORD_OCTETS, Body, is_whole, seal_record
from pgm.own_files import boot_id, open_own
from pgm.units import KIB, MIB
from pgm.wire.formats import Tsi

MAGIC, LAYOUT = b"pgmflght", 1
HEAD_OCTETS = 64 * KIB
_FRONT = struct.Struct("<8sII")  # magic, layout, octets of a record
_OFFSET_AT = 16
_OFFSET = struct.Struct("<q")
_BOOT_AT, _BOOT_OCTETS = 24, 40
_FACTS_AT = 64
_FACTS = struct.Struct("<II")  # octets, CRC-32
MOST_FACTS_OCTETS = 32 * KIB - _FACTS_AT - _FACTS.size
SESSIONS_AT = 32 * KIB
SESSION = np.dtype([("tsi", "V8"), ("data_port", "<u2"), ("used", "u1"), ("spare", "V5")])
MOST_SESSIONS = (HEAD_OCTETS - SESSIONS_AT) // SESSION.itemsize
_STEP_OCTETS = MIB
LEAST_OCTETS = 2 * HEAD_OCTETS

Facts: TypeAlias = dict[str, Any]


class FlightRing:
    """Ring over writable memory. `reserve` gets an end in octets, and returns whether the memory up to it may be used."""

    def __init__(
        self,
        memory: bytearray | mmap.mmap,
        boot_id: str,
        facts: Facts,
        reserve: Callable[[int], bool] = lambda _end: True,
    ) -> None:
        self._memory: memoryview | None = memoryview(memory)
        self._reserve = reserve
        self._lock = threading.Lock()
        self._most_end = HEAD_OCTETS + (len(memory) - HEAD_OCTETS) // RECORD_OCTETS * RECORD_OCTETS
        self._end = HEAD_OCTETS  # of the memory that is reserved
        self._at = HEAD_OCTETS  # of the next record
        self.number = 0  # of the last record
        self.places: dict[Tsi, int] = {}  # of sessions in the table
        if self._continues(boot_id):
            self._find_position()
        else:
            self._memory[:HEAD_OCTETS] = bytes(HEAD_OCTETS)
        self._write_head(boot_id, facts)

    def _continues(self, boot_id: str) -> bool:
        """Return whether the memory has records of an earlier process, by the same clock."""
        assert self._memory is not None
        front = _FRONT.unpack_from(self._memory)
        return front == (MAGIC, LAYOUT, RECORD_OCTETS) and read_boot_id(self._memory) == boot_id

    def _find_position(self) -> None:
        """Continue behind the last record of the earlier process."""
        assert self._memory is not None
        places = (self._most_end - HEAD_OCTETS) // RECORD_OCTETS
        numbers = np.frombuffer(self._memory, RECORD, places, HEAD_OCTETS)["number"]
        for place in np.argsort(numbers)[::-1][:2].tolist():  # only the last one can be torn
            at = HEAD_OCTETS + place * RECORD_OCTETS
            if numbers[place] and is_whole(self._memory[at : at + RECORD_OCTETS]):
                self.number, self._at = int(numbers[place]), at + RECORD_OCTETS
                break
        used = np.flatnonzero(numbers)
        self._end = HEAD_OCTETS + (int(used[-1]) + 1) * RECORD_OCTETS if len(used) else HEAD_OCTETS
        del numbers
        rows = np.frombuffer(self._memory, SESSION, MOST_SESSIONS, SESSIONS_AT)
        self.places.update({bytes(rows[place]["tsi"]): place for place in np.flatnonzero(rows["used"]).tolist()})

    def _write_head(self, boot_id: str, facts: Facts) -> None:
        assert self._memory is not None
        octets = json.dumps(facts, separators=(",", ":")).encode()
        if len(octets) > MOST_FACTS_OCTETS:
            octets = json.dumps({key: facts.get(key) for key in ("topology", "node", "role", "host")}).encode()
        at = _FACTS_AT + _FACTS.size
        self._memory[at : at + len(octets)] = octets
        _FACTS.pack_into(self._memory, _FACTS_AT, len(octets), zlib.crc32(octets))
        self._memory[_BOOT_AT : _BOOT_AT + _BOOT_OCTETS] = boot_id.encode()[:_BOOT_OCTETS].ljust(_BOOT_OCTETS, b"\0")
        _FRONT.pack_into(self._memory, 0, MAGIC, LAYOUT, RECORD_OCTETS)

    def set_wall_offset(self, offset_ns: int) -> None:
        """Note the time of day minus the monotonic clock."""
        if self._memory is not None:
            _OFFSET.pack_into(self._memory, _OFFSET_AT, offset_ns)

    def session(self, tsi: Tsi, data_port: int) -> int:
        """Return the place of a session in the table, and note its data port; 0 is unknown.

        The table has room for `MOST_SESSIONS`, and the ring starts anew when it is full.
        """
        with self._lock:
            if self._memory is None:
                return NO_TSI
            place = self.places.get(tsi)
            if place is None:
                if len(self.places) >= MOST_SESSIONS:
                    self._forget()
                place = self.places[tsi] = len(self.places)
                self._write_session(place, tsi, data_port)
            elif data_port:
                self._write_session(place, tsi, data_port)
            return place

    def _write_session(self, place: int, tsi: Tsi, data_port: int) -> None:
        assert self._memory is not None
        at = SESSIONS_AT + place * SESSION.itemsize
        self._memory[at : at + SESSION.itemsize] = np.array([(tsi, data_port, 1, bytes(5))], SESSION).tobytes()

    def _forget(self) -> None:
        assert self._memory is not None
        self._memory[SESSIONS_AT : self._end] = bytes(self._end - SESSIONS_AT)
        self.places.clear()
        self._at = HEAD_OCTETS

    def append(self, bodies: Iterable[Body]) -> None:
        """Write records, in place of the oldest ones if the ring is full."""
        with self._lock:
            memory = self._memory
            if memory is None:
                return
            for body in bodies:
                at = self._at
                if at >= self._end:
                    at = self._next_place(at)
                    if at >= self._end:
                        return  # there is no memory for a single record
                self.number += 1
                memory[at : at + RECORD_OCTETS] = seal_record(self.number, body)
                self._at = at + RECORD_OCTETS

    def _next_place(self, at: int) -> int:
        """Reserve more memory, or return to the first place."""
        if self._end < self._most_end and self._reserve(end := min(self._end + _STEP_OCTETS, self._most_end)):
            self._end = end
            return at
        return HEAD_OCTETS

    def octets(self) -> bytes:
        """Return a copy of the ring."""
        with self._lock:
            return b"" if self._memory is None else bytes(self._memory[: self._end])

    def close(self) -> None:
        """Write nothing more."""
        with self._lock:
            if self._memory is not None:
                self._memory.release()
                self._memory = None


class RingFile:
    """Ring in a file that this process alone writes. The file stays when the process ends."""

    def __init__(self, path: Path, most_octets: int, facts: Facts) -> None:
        """Open or create the file in a folder that exists. Raises `ProcessError`."""
        self.path = path
        size = max(LEAST_OCTETS, most_octets)
        self._fd = open_own(path, "the flight recorder", "set flight_bytes = 0")
        try:
            if os.fstat(self._fd).st_size != size:
                os.ftruncate(self._fd, 0)
            os.posix_fallocate(self._fd, 0, HEAD_OCTETS)
            os.ftruncate(self._fd, size)
            self._map = mmap.mmap(self._fd, size)
        except OSError as error:
            os.close(self._fd)
            raise ProcessError(
                f"the flight recorder has no room in {path}: {error.strerror}",
                remedy="free memory, or lower flight_bytes",
            ) from error
        self.ring = FlightRing(self._map, boot_id(), facts, self._reserve)

    def _reserve(self, end: int) -> bool:
        try:
            os.posix_fallocate(self._fd, 0, end)
        except OSError:
            return False
        return True

    def close(self) -> None:
        """Close the file, and so give up its lock."""
        self.ring.close()
        self._map.close()
        os.close(self._fd)


def read_boot_id(memory: bytes | memoryview) -> str:
    """Return the boot id in the head of a ring."""
    return bytes(memory[_BOOT_AT : _BOOT_AT + _BOOT_OCTETS]).rstrip(b"\0").decode("ascii", "replace")


def read_wall_offset(memory: bytes | memoryview) -> int:
    """Return the time of day minus the monotonic clock, in ns, from the head of a ring."""
    return int(_OFFSET.unpack_from(memory, _OFFSET_AT)[0])


def read_facts_untrusted(memory: bytes | memoryview) -> Facts:
    """Return the facts of the node in the head of a ring; none if they are damaged."""
    count, check = _FACTS.unpack_from(memory, _FACTS_AT)
    at = _FACTS_AT + _FACTS.size
    octets = bytes(memory[at : at + min(count, MOST_FACTS_OCTETS)])
    if zlib.crc32(octets) != check:
        return {}
    try:
        facts = json.loads(octets)
    except ValueError:
        return {}
    return facts if isinstance(facts, dict) else {}


def has_ring_head(memory: bytes | memoryview) -> bool:
    """Return whether octets begin with the head of a ring of this layout."""
    return len(memory) >= HEAD_OCTETS and _FRONT.unpack_from(memory) == (MAGIC, LAYOUT, RECORD_OCTETS)
