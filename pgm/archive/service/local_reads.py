"""Reads of segments by a client that sees the directory of the range service.

The service answers `ACTION_FILES` with the octets of the segments that hold a range. A client that can open these files
reads the rows there.

The client does not trust a path. A batch counts only if its own header names the expected rows, and its checksum is
right. In all other cases the client asks the service for the rows.
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
    """Place of a batch: `octets` octets from `offset` of the segment, with the sqns `first` to `end - 1`."""

    segment: int
    offset: int
    octets: int
    first: int
    end: int


def read_file_ranges(answer: dict[str, Any], request: RangeRequest, first: int, end: int) -> Iterator[pa.RecordBatch]:
    """Yield the rows of `request` with `first <= sqn < end`.

    The rows end where the answer ends. Rows yielded before an error are valid. Raises `NotInFiles`, `ArchiveError`,
    OSError.
    """
    yield from joined(
        _batches(Path(answer["directory"]), [FileRange(*fields) for fields in answer["spots"]], request, first, end)
    )


def _batches(
    directory: Path, ranges: Sequence[FileRange], request: RangeRequest, first: int, end: int
) -> Iterator[pa.RecordBatch]:
    selection = RowSelection(request)
    file: SegmentFile | None = None
    at = first
    try:
        for file_range in ranges:
            if file is None or file.number != file_range.segment:
                if file is not None:
                    file.close()
                file = SegmentFile(directory, file_range.segment)
            entry, stored = file.batch_at(file_range.offset, file_range.octets)
            session = entry.session
            if (session.key, session.node) != ((request.tsi, request.epoch_us), request.node) or (
                entry.first,
                entry.end,
            ) != (file_range.first, file_range.end):
                raise NotInFiles(f"{file.path} holds something else at octet {file_range.offset}")
            until = min(entry.end, end)
            batch = selection.of(stored, at, until)
            at = max(at, until)
            if batch is not None:
                yield batch
    finally:
        if file is not None:
            file.close()
