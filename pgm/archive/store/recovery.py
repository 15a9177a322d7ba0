"""Opening an archive for writing after it was left, perhaps by SIGKILL or a crash of the machine.

What was synced is whole, or the disk has damaged it, which is told and never cut. What lies behind it in the newest segment is kept as far as it is whole; the rest,
a batch that was being written, is cut off, and told.
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
    """Put the batches of a segment up to octet `limit` into the index; returns where it stopped, and whether its end was marked.

    Raises `CorruptSegment` where a batch cannot be read; what lies before it is in the index.
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
    """Fill the index, cut a torn tail; returns the octets of each segment. Raises `ArchiveError`, `SchemaTooNew`."""
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
                end = _finish(file, end, log)
            sizes[number] = file.octets
            if not end:
                log("archive-empty", f"{file.path} was begun and holds nothing: removed")
                file.path.unlink()
                del sizes[number]
    return sizes


def _after_damage(
    file: SegmentFile, index: Index, is_newest: bool, committed: CommitPoint, log: Log, error: CorruptSegment
) -> int:
    """Cut what was never synced; leave what was, since a reader must be told of it."""
    whole = max(
        (
            one.entries[-1].after
            for one in index.sessions.values()
            if one.entries and one.entries[-1].segment == file.number
        ),
        default=file.head_octets,
    )
    if not is_newest or (file.number, whole) < (committed.segment, committed.offset):
        log("archive-corrupt", error.message)
        return max(whole, 1)
    octets = file.octets
    log(
        "archive-torn",
        f"{file.path}: the last {octets - whole} octets, from octet {whole} on, are no whole batch: cut off",
    )
    return _finish(file, whole, log) if whole else 0


def _finish(file: SegmentFile, end: int, log: Log) -> int:
    """Cut a segment where its batches end, and mark the end."""
    with file.path.open("r+b") as writable:
        writable.truncate(end)
        writable.seek(end)
        try:
            writable.write(END_OF_STREAM)
            writable.flush()
            os.fsync(writable.fileno())
        except OSError as error:  # a full disk: readers do without the mark
            log("archive-full", f"{file.path}: {error.strerror}; the segment stays without its end mark")
    return end
