"""Cache file of a repairer: memory for its reads that outlives the process.

The file is mapped, and the chunks of the arena lie in it. Packets are therefore read from the socket into the file, and
cached where they are: nothing is copied. A record of 64 octets per cached run is all that is written besides. The next
process maps the file, checks the records, and finds the packets in place.

    file    = page with magic, layout and boot id, slots
    slot    = head, records, chunk of 4 MiB
    record  = generation of the slot, session, sqns, time, place of the packets, CRC-32

The CRC-32 covers the record and the octets of its packets, and only a record with the right CRC-32 counts. The arena
reuses a chunk once no packet in it is cached. The generation of the slot changes first, so that older records no longer
count. A process can die between any two writes.

The times are those of the monotonic clock. The file therefore counts only until the machine boots again, and belongs on
a file system in memory.
"""

from __future__ import annotations

import errno
import mmap
import os
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import attrs
import numpy as np

from pgm.core.counters import Counters
from pgm.core.effects import Save
from pgm.core.structures.arena import CHUNK_OCTETS, PROCESS_MEMORY, Arena, populate
from pgm.crc32 import crc32
from pgm.errors import ProcessError
from pgm.net.sockets.trusted_folders import make_folder
from pgm.own_files import boot_id, open_own
from pgm.units import MIB
from pgm.wire.formats import DATA_HEADER_OCTETS
from pgm.wire.train import Octets, Run

Log = Callable[[str, str], None]  # code, text

_MAGIC, _LAYOUT = b"pgmcache", 1
_HEAD = struct.Struct("<8sI36sI")  # magic, layout, boot id, CRC-32 of these
_HEAD_OCTETS = 4096  # a page
_GENERATION = struct.Struct("<I")  # head of a slot; 0: never used
_RECORD = struct.Struct(
    "<I8sHHqqqIII8x"
)  # generation, TSI, port, payload_at, epoch, first, time, count, stride, offset
_RECORD_TYPE = np.dtype([("generation", "<u4"), ("rest", "V60")])
_SUM = struct.Struct("<I")
_SUM_AT = _RECORD.size
_RECORD_OCTETS = 64
_RECORDS = 4096  # of a slot, its head included: enough for single packets of 1 KB
_RECORDS_OCTETS = _RECORDS * _RECORD_OCTETS
_PAGE_RECORDS = 64  # records in a page of 4 KB
_SLOT_OCTETS = _RECORDS_OCTETS + CHUNK_OCTETS
_MOST_GENERATION = 0xFFFFFFFF
_MORE_SLOTS = 16  # chunks beside the cache: those that are read into, and those that sends still hold
_LEFT_OCTETS, _LEFT_SHARE = 64 * MIB, 8  # left free in the file system: the octets or an eighth, whichever is less


@attrs.define(eq=False)
class _Slot:
    at: int  # place in the file
    generation: int
    records: int = 1  # next free record, behind the head


class CacheFile:
    """Chunks of an arena in a file, and records of the runs to save. `counters` may be replaced by the core's."""

    def __init__(self, path: Path, most_octets: int, log: Log = lambda _code, _text: None) -> None:
        """Open or create the file, for a cache of `most_octets`. Raises `ProcessError`."""
        self.path = path
        self.counters = Counters()
        self._log = log
        self._slots: dict[int, _Slot] = {}  # by identity of the chunk
        self._chunks: list[Octets] = []  # until the arena takes them
        self._copies: Arena | None = None  # of packets that were not read into the file
        slots = -(-most_octets // CHUNK_OCTETS) + _MORE_SLOTS
        size = _HEAD_OCTETS + slots * _SLOT_OCTETS
        other = 'name another folder with cache = { directory = "..." }'
        try:
            make_folder(path.parent)
        except OSError as error:
            raise ProcessError(f"the cache file {path} cannot be opened: {error.strerror}", remedy=other) from error
        self._fd = open_own(path, "the cache file", other)
        try:
            if not _is_of_this_boot(self._fd):
                os.ftruncate(self._fd, 0)
                os.pwrite(self._fd, _head(), 0)
            os.ftruncate(self._fd, size)  # sparse: only slots in use take memory
            self._map = mmap.mmap(self._fd, size)
        except OSError as error:
            os.close(self._fd)
            raise ProcessError(
                f"the cache file {path} cannot be used: {error.strerror}",
                remedy='name another folder with cache = { directory = "..." }, or none with ""',
            ) from error
        self._unused = [_HEAD_OCTETS + slot * _SLOT_OCTETS for slot in reversed(range(slots))]
        self._has_room = True
        for at in list(reversed(self._unused)):
            [generation] = _GENERATION.unpack(os.pread(self._fd, _GENERATION.size, at))
            if generation and self._reserve(at):
                self._unused.remove(at)
                self._chunks.append(self._chunk_of(_Slot(at, generation)))

    def close(self) -> None:
        """Close the file. The chunks stay mapped while views of them exist."""
        os.close(self._fd)

    def _reserve_next(self) -> bool:
        """Reserve the next slot, if other programs still have room then: `/run` has the system's files too."""
        status = os.fstatvfs(self._fd)
        left = status.f_bavail * status.f_frsize - _SLOT_OCTETS
        if left < min(_LEFT_OCTETS, status.f_blocks * status.f_frsize // _LEFT_SHARE):
            self._give_up(os.strerror(errno.ENOSPC))
            return False
        return self._reserve(self._unused[-1])

    def _reserve(self, at: int) -> bool:
        """Reserve the memory of a slot: a write to a mapped page without memory would end the process."""
        try:
            os.posix_fallocate(self._fd, at, _PAGE_RECORDS * _RECORD_OCTETS)
            os.posix_fallocate(self._fd, at + _RECORDS_OCTETS, CHUNK_OCTETS)
        except OSError as error:
            self._give_up(error.strerror or str(error))
            return False
        return True

    def _give_up(self, reason: str) -> None:
        """Let the file grow no more."""
        if self._has_room:
            octets = len(self._slots) * CHUNK_OCTETS // MIB
            self._log(
                "cache-file-full",
                f"{self.path} has no room beyond {octets} MiB: {reason}; other packets are lost in a restart",
            )
        self._has_room = False

    def _chunk_of(self, slot: _Slot) -> Octets:
        chunk: Octets = np.ndarray((CHUNK_OCTETS,), np.uint8, self._map, slot.at + _RECORDS_OCTETS)
        self._slots[id(chunk)] = slot
        return chunk

    # Memory of the arena, see `ChunkMemory`

    def existing(self) -> list[Octets]:
        """Return the chunks of the earlier process, once."""
        chunks, self._chunks = self._chunks, []
        return chunks

    def untouched(self, octets: int) -> Octets:
        """Return memory for a chunk, in the file if there is room."""
        if octets != CHUNK_OCTETS or not (self._unused and self._has_room and self._reserve_next()):
            return PROCESS_MEMORY.untouched(octets)
        slot = _Slot(self._unused.pop(), 0)
        self._begin(slot)
        return self._chunk_of(slot)

    def touch(self, chunk: Octets, at: int, end: int) -> None:
        """Map the pages of a new chunk from `at` to `end`."""
        slot = self._slots.get(id(chunk))
        begin = 0 if slot is None else slot.at + _RECORDS_OCTETS
        if slot is None or not populate(self._map, begin + at, begin + end):
            PROCESS_MEMORY.touch(chunk, at, end)

    def reuse(self, chunk: Octets) -> None:
        """Invalidate the records of a chunk, whose octets will be overwritten."""
        slot = self._slots.get(id(chunk))
        if slot is not None:
            self._begin(slot)

    def _begin(self, slot: _Slot) -> None:
        slot.generation = slot.generation % _MOST_GENERATION + 1
        slot.records = 1
        _GENERATION.pack_into(self._map, slot.at, slot.generation)

    # Saving

    def save(self, save: Save, now_ns: int) -> None:
        """Write a record of a run. Packets outside of the file are copied into it first."""
        run = save.run
        slot = self._slots.get(id(run.buffer))
        if slot is None:
            run, slot = self._copied(run)
        if slot is None or slot.records == _RECORDS or not self._has_record_room(slot):
            self.counters.cache_packets_unsaved += run.count
            return
        offset, octets = run.offset, run.octets
        head = _RECORD.pack(
            slot.generation, save.tsi, save.data_port, run.payload_at, save.epoch_ns,
            run.first, now_ns, run.count, run.stride, offset,
        )  # fmt: skip
        at = slot.at + slot.records * _RECORD_OCTETS
        checksum = crc32(run.buffer[offset : offset + octets], crc32(head))
        self._map[at : at + _RECORD_OCTETS] = head + _SUM.pack(checksum)
        slot.records += 1

    def _copied(self, run: Run) -> tuple[Run, _Slot | None]:
        if self._copies is None:
            self._copies = Arena(memory=self)
        chunk, at = self._copies.put(run.buffer[run.offset : run.offset + run.octets].tobytes())
        return Run(run.first, run.count, chunk, at, run.stride, run.payload_at), self._slots.get(id(chunk))

    def _has_record_room(self, slot: _Slot) -> bool:
        """Return whether the page of the next record has memory."""
        if slot.records % _PAGE_RECORDS:
            return True
        try:
            os.posix_fallocate(self._fd, slot.at + slot.records * _RECORD_OCTETS, _PAGE_RECORDS * _RECORD_OCTETS)
        except OSError:
            return False
        return True

    # Restoring

    def saved(self, since_ns: int, now_ns: int) -> Iterator[tuple[int, Save]]:
        """Yield what the earlier process saved since an instant, and the time of each, before the arena exists."""
        for chunk in self._chunks:
            slot = self._slots[id(chunk)]
            octets = os.pread(self._fd, _RECORDS_OCTETS, slot.at)
            rows = np.frombuffer(octets, _RECORD_TYPE)
            for index in np.flatnonzero(rows["generation"][1:] == slot.generation).tolist():
                slot.records = index + 2
                at = slot.records * _RECORD_OCTETS - _RECORD_OCTETS
                entry = _entry_untrusted(octets[at : at + _RECORD_OCTETS], chunk, now_ns)
                if entry is None:
                    self.counters.cache_records_refused += 1
                elif entry[0] >= since_ns:
                    yield entry


def _entry_untrusted(record: bytes, chunk: Octets, now_ns: int) -> tuple[int, Save] | None:
    """Return the time and the content of a record; None if the record is damaged."""
    _, tsi, port, payload_at, epoch_ns, first, at_ns, count, stride, offset = _RECORD.unpack_from(record)
    end = offset + count * stride
    is_possible = count and DATA_HEADER_OCTETS <= payload_at <= stride and first >= 0 and 0 <= at_ns <= now_ns
    if not is_possible or end > chunk.nbytes:
        return None
    [checksum] = _SUM.unpack_from(record, _SUM_AT)
    if checksum != crc32(chunk[offset:end], crc32(record[:_SUM_AT])):
        return None
    return at_ns, Save(tsi, port, epoch_ns, Run(first, count, chunk, offset, stride, payload_at))


def _head() -> bytes:
    # A container may hide the id of the boot; times of an earlier boot are then mostly in the future.
    head = _HEAD.pack(_MAGIC, _LAYOUT, boot_id().encode(), 0)[: -_SUM.size]
    return head + _SUM.pack(crc32(head))


def _is_of_this_boot(fd: int) -> bool:
    head = _head()
    return os.pread(fd, len(head), 0) == head
