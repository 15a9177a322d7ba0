"""Ranges read from the segments themselves, by a client that sees the directory which the range service serves.

The service says in which octets of which segments a range lies (`ACTION_FILES`); whoever can open them reads there what it would
be sent. Nothing is believed of a path: a batch counts only if it says itself that it is the one meant, and its checksum is right. In
every other case the client asks for the rows, and the service's answer is what holds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import attrs
import pyarrow as pa

from pgm.archive.errors import NotInFiles
from pgm.archive.requests import RangeRequest
from pgm.archive.service.batch_joining import joined
from pgm.archive.store.segment import SegmentFile
from pgm.archive.store.selection import RowSelection


@attrs.frozen
class FileRange:
    """What the service says of a batch: it is `octets` octets of a segment from `offset` on, and holds the sqns `first` to `end` - 1."""

    segment: int
    offset: int
    octets: int
    first: int
    end: int


def read_spots(told: dict[str, Any], request: RangeRequest, first: int, end: int) -> Iterator[pa.RecordBatch]:
    """The rows of `request` with `first <= sqn < end`, as far as the spots go. Raises `NotInFiles`, `ArchiveError`, OSError.

    What was given before an error is good.
    """
    yield from joined(
        _batches(Path(told["directory"]), [FileRange(*one) for one in told["spots"]], request, first, end)
    )


def _batches(
    directory: Path, spots: Sequence[FileRange], request: RangeRequest, first: int, end: int
) -> Iterator[pa.RecordBatch]:
    selection = RowSelection(request)
    file: SegmentFile | None = None
    at = first
    try:
        for spot in spots:
            if spot.first > at:
                raise NotInFiles(f"nothing is said of the sqns {at} to {spot.first - 1}")
            if file is None or file.number != spot.segment:
                if file is not None:
                    file.close()
                file = SegmentFile(directory, spot.segment)
            entry, stored = file.batch_at(spot.offset, spot.octets)
            one = entry.session
            if (one.key, one.node) != ((request.tsi, request.epoch_us), request.node) or (
                entry.first,
                entry.end,
            ) != (spot.first, spot.end):
                raise NotInFiles(f"{file.path} holds something else at octet {spot.offset}")
            until = min(entry.end, end)
            batch = selection.of(stored, at, until)
            at = max(at, until)
            if batch is not None:
                yield batch
    finally:
        if file is not None:
            file.close()
