"""Recovery of an archive that is opened for writing, perhaps after a crash.

Synced data is complete unless the disk damaged it. Recovery logs the damage and never cuts synced data. Later data in
the newest segment is kept as far as it is complete. The rest, an unfinished batch, is cut off and logged.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from pgm.archive.errors import CorruptSegment
from pgm.archive.store.committed import CommitPoint, read_committed
from pgm.archive.store.index import Index
from pgm.archive.store.segment import END_OF_STREAM, SegmentFile, numbers_in

Log = Callable[[str, str], None]  # code, text


def scan(file: SegmentFile, limit: int, index: Index, *, start: int = 0, verifies: bool = False) -> tuple[int, bool]:
    """Add the batches of a segment before octet `limit` to the index.

    Return the octet at which the scan stopped, and whether the end was marked. Raises `CorruptSegment` for an
    unreadable batch; the batches before it are in the index.
    """
    offset = start or file.read_head()
    while offset and offset < limit:
        entry = file.entry_at(offset, limit)
        if entry is None:
            return offset + len(END_OF_STREAM), True
        if verifies:
            file.octets_of(entry.offset, entry.octets)
        index.add(entry)
        offset = entry.after
    return offset, False


def recover(directory: Path, index: Index, log: Log) -> dict[int, int]:
    """Fill the index, cut a torn tail; return the octets of each segment. Raises `ArchiveError`, `SchemaTooNew`."""
    committed = read_committed(directory) or CommitPoint()
    sizes: dict[int, int] = {}
    numbers = numbers_in(directory)
    for number in numbers:
        with SegmentFile(directory, number) as file:
            is_newest = number == numbers[-1]
            try:
                end, is_marked = scan(file, file.octets, index, verifies=is_newest)
            except CorruptSegment as error:
                end, is_marked = _after_damage(file, index, is_newest, committed, log, error), True
            if is_newest and end and not is_marked:
                end = _seal(file, end, log)
            sizes[number] = file.octets
            if not end:
                log("archive-empty", f"{file.path} has no complete header: removed")
                file.path.unlink()
                del sizes[number]
    return sizes


def _after_damage(
    file: SegmentFile, index: Index, is_newest: bool, committed: CommitPoint, log: Log, error: CorruptSegment
) -> int:
    """Cut data that was never synced; keep damaged synced data, which readers report."""
    complete = max(
        (
            session.entries[-1].after
            for session in index.sessions.values()
            if session.entries and session.entries[-1].segment == file.number
        ),
        default=file.head_octets,
    )
    if not is_newest or (file.number, complete) < (committed.segment, committed.offset):
        log("archive-corrupt", error.message)
        return max(complete, 1)
    octets = file.octets
    log(
        "archive-torn",
        f"{file.path}: the last {octets - complete} octets, from octet {complete} on, are no complete batch: cut off",
    )
    return _seal(file, complete, log) if complete else 0


def _seal(file: SegmentFile, end: int, log: Log) -> int:
    """Cut a segment after its last batch, and mark the end."""
    with file.path.open("r+b") as writable:
        writable.truncate(end)
        writable.seek(end)
        try:
            writable.write(END_OF_STREAM)
            writable.flush()
            os.fsync(writable.fileno())
        except OSError as error:  # on a full disk, readers do without the mark
            log("archive-full", f"{file.path}: {error.strerror}; the segment stays without its end mark")
    return end
