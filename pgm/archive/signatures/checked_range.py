"""Check of the rows of a range, which may begin and end inside of a span."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator

import attrs
import numpy as np
import pyarrow as pa

from pgm.archive.signatures.row_check import JudgedRows, RowCheck
from pgm.archive.store.selection import end_of

_LOOK_BACK = 64  # packets before a span that are read first, for a message that reaches into the span
_LOOK_FURTHER = 16  # by which the number grows


@attrs.frozen(eq=False)
class HeldRows:
    """Rows of a session: `read(first, end)` yields those of a range, of which `oldest` to `next_sqn - 1` are held."""

    read: Callable[[int, int], Iterator[pa.RecordBatch]]
    oldest: int
    next_sqn: int


def checked_range(rows: HeldRows, check: RowCheck, first: int, end: int) -> Iterator[JudgedRows]:
    """Yield the rows with `first <= sqn < end`, judged, with what a message of the range shares with its neighbours."""
    batches = rows.read(first, end)
    head = next(batches, None)
    before = [] if head is None else _rows_before(rows, check, first, head)
    skipped = sum(batch.num_rows for batch in before)
    wanted, at = 0, end
    for batch in before:
        skipped = yield from _kept(check.take(batch), skipped)
    while head is not None:
        wanted, at = wanted + head.num_rows, end_of(head)
        judged = check.take(head)
        wanted -= max(0, judged.rows.num_rows - skipped)
        skipped = yield from _kept(judged, skipped)
        head = next(batches, None)
    while wanted and (until := check.waits_until) is not None and (until := min(until, rows.next_sqn)) > at:
        at, begin = until, max(end, at)
        for batch in rows.read(begin, until):
            judged = _first(check.take(batch), skipped + wanted)
            wanted -= max(0, judged.rows.num_rows - skipped)
            skipped = yield from _kept(judged, skipped)
    rest = check.end()
    if rest is not None and wanted:
        yield from _kept(_first(rest, skipped + wanted), skipped)


def _kept(judged: JudgedRows, skipped: int) -> Generator[JudgedRows, None, int]:
    """Yield the rows after `skipped` others. Return how many of those are still to come."""
    count: int = judged.rows.num_rows
    if count > skipped:
        yield judged.part(skipped, count)
    return max(0, skipped - count)


def _first(judged: JudgedRows, count: int) -> JudgedRows:
    return judged.part(0, min(count, judged.rows.num_rows))


def _rows_before(rows: HeldRows, check: RowCheck, first: int, head: pa.RecordBatch) -> list[pa.RecordBatch]:
    """Return the rows before `first` that a check of the rows from there on needs."""
    span_first = check.first_sqn
    target = first if span_first is None else min(first, span_first)
    if target == first and head.column("sqn")[0].as_py() == first:
        return []
    look_back = 0
    while True:
        begin = max(rows.oldest, target - look_back)
        found = list(rows.read(begin, first)) if begin < first else []
        if begin == rows.oldest or (found and found[0].column("sqn")[0].as_py() <= target):
            return _from(found, target)
        look_back = look_back * _LOOK_FURTHER or _LOOK_BACK


def _from(batches: list[pa.RecordBatch], target: int) -> list[pa.RecordBatch]:
    """Return the rows from the one on that holds a sqn."""
    kept: list[pa.RecordBatch] = []
    for batch in reversed(batches):
        sqns = np.asarray(batch.column("sqn").to_numpy(zero_copy_only=False), np.int64)
        at = int(np.searchsorted(sqns, target, "right"))
        if at:
            kept.append(batch.slice(int(np.searchsorted(sqns, sqns[at - 1], "left"))))
            break
        kept.append(batch)
    return kept[::-1]
