"""Archives of other recorders, which fill what a recorder could not get.

A loss is looked up once, before its row is written. The look-up takes what the other archives hold at that time, and waits
for no rows to come. So two recorders that lack the same packets do not wait for each other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from pgm.archive.client import ArchivedMessages, RangeClient, RangeServices
from pgm.archive.errors import ArchiveError
from pgm.archive.recording.rows import RowBuilder, rows_of_loss
from pgm.archive.requests import RangeRequest, SessionExtent
from pgm.archive.session import OPENED, SIGNED, RecordedSession
from pgm.core.structures.ranges import Span, without
from pgm.parameters import Parameters
from pgm.units import SECOND

_SLICE_SQNS = 65_536  # looked up at a time, so that the rows of a long loss do not fill the memory


class OtherArchives:
    """Range services of other recorders, in the order in which they are asked."""

    def __init__(self, locations: Sequence[str], parameters: Parameters) -> None:
        patience_s = parameters.durable_archive_ivl / SECOND
        self._services = RangeServices(locations, patience_s, rest_s=patience_s)

    def rows(self, session: RecordedSession, span: Span, cause: str, at_us: int) -> Iterator[RowBuilder]:
        """Yield rows for all sqns of a loss, in order: messages that another archive holds, and losses."""
        first, end = span
        held: list[tuple[RangeClient, SessionExtent]] = []
        if session.epoch_us is not None:  # other nodes do not share the sqns of a session without an epoch
            held = [
                (client, extent)
                for client, extent in self._services.extents(session.tsi, session.epoch_us)
                if extent.node != session.node and extent.oldest < end and first < extent.next_sqn
            ]
        if not held:
            yield rows_of_loss(first, end - first, cause, at_us)
            return
        for low in range(first, end, _SLICE_SQNS):
            slice_span = low, min(low + _SLICE_SQNS, end)
            yield from _filled(held, slice_span, cause, at_us, is_signed=session.kind in (OPENED, SIGNED))


def _filled(
    held: Sequence[tuple[RangeClient, SessionExtent]], span: Span, cause: str, at_us: int, *, is_signed: bool
) -> Iterator[RowBuilder]:
    found: list[RowBuilder] = []
    holes = [span]
    for client, extent in held:
        read = [rows for hole in holes for rows in _read(client, extent, hole, at_us, is_signed)]
        holes = without(holes, [(rows.first, rows.end) for rows in read])
        found += read
    at, end = span
    for rows in sorted(found, key=lambda one: one.first):
        if rows.first > at:
            yield rows_of_loss(at, rows.first - at, cause, at_us)
        yield rows
        at = rows.end
    if at < end:
        yield rows_of_loss(at, end - at, cause, at_us)


def _read(client: RangeClient, extent: SessionExtent, span: Span, at_us: int, is_signed: bool) -> Iterator[RowBuilder]:
    first, end = max(span[0], extent.oldest), min(span[1], extent.next_sqn)
    if first >= end:
        return
    request = RangeRequest(extent.tsi, extent.epoch_us, first, end, node=extent.node, paced=True)
    try:
        for piece in client.rows(request, has_times=True, has_frames=is_signed):
            rows = _rows_of(piece, end, at_us) if isinstance(piece, ArchivedMessages) else None
            if rows is not None and rows.first >= first:
                yield rows
    except ArchiveError:
        return  # what has come counts


def _rows_of(messages: ArchivedMessages, end: int, at_us: int) -> RowBuilder | None:
    """Return the rows of messages before `end`; None without any. A message that crosses `end` is left out."""
    ends = messages.sqns + np.maximum(messages.counts, 1)
    count = int(np.count_nonzero(ends <= end))
    if not count:
        return None
    columns, sqns = messages.columns, messages.sqns[:count]
    octets = columns.ends
    return RowBuilder(
        first=int(sqns[0]),
        end=int(ends[:count].max()),
        sqns=sqns,
        counts=messages.counts[:count],
        lengths=columns.sizes[:count],
        octets=(columns.data[octets[0] : octets[count]],),
        received_us=at_us,
        repaired=np.ones(count, np.bool_),
        indices=np.arange(count) - np.searchsorted(sqns, sqns),
        subjects=columns.subjects,
        subject=columns.subject if isinstance(columns.subject, int) else columns.subject[:count],
        sent_us=messages.sent_us,
        frames={row: frame for row, frame in messages.frames.items() if row < count},
    )
