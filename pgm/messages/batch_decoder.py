"""Decoder of batches: packets of one session in, columns out. No packet of a peer raises an exception."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import attrs
import numpy as np
import numpy.typing as npt

from pgm.messages.batch_format import BadBatch, BatchLayout, columns_of, equal_rows, read_layout, times_of
from pgm.messages.columns import Columns, Octets, joined
from pgm.messages.subjects import SubjectFilter

_LAYOUTS = 64  # layouts kept per session, for full packets and for ends of batches
_LARGE_OCTETS = 64 * 1024
_BEGINNING = 18  # octets of a batch that identify its layout; they begin with the number of messages

Sqns = npt.NDArray[np.int64]
NO_TIME = -1


Take = Callable[[int], Octets]


def _new(octets: int) -> Octets:
    return np.empty(octets, np.uint8)


@attrs.define(eq=False)
class DecodedBatch:
    """Messages of successive packets: packet i has sqn `sqns[i]` and `counts[i]` of the messages."""

    columns: Columns
    sqns: Sqns
    counts: Sqns
    skipped: int = 0  # messages that the receiver does not want
    sent_us: Sqns | None = None  # time of each packet in us since 1970, or NO_TIME; None if no packet has a time


@attrs.frozen
class BadPackets:
    """Packets that arrived and are not batches."""

    first: int
    count: int


class BatchDecoder:
    """Decoder of the batches of one session. It skips messages for other nodes and of subjects that the filter rejects.

    With `node` None it accepts messages for any node. `take` returns memory for the octets of messages. The messages own
    that memory while any object refers to it.
    """

    def __init__(self, node: str | None, subjects: SubjectFilter, take: Take = _new) -> None:
        self._node = node
        self._subjects = subjects
        self._layouts: dict[tuple[int, bytes], BatchLayout] = {}  # layouts of earlier batches
        self._last: BatchLayout | None = None  # layout of the last batch, which the next one usually has too
        self._take = take

    def add(self, first: int, packets: Octets) -> Iterator[DecodedBatch | BadPackets]:
        """Decode packets `first`, `first + 1` and so on, a (count, octets) array. Yields the results in order."""
        batches: list[DecodedBatch] = []
        at = 0
        while at < len(packets):
            rows = packets[at:]
            layout = self._layout_of(rows[0])
            count = 0 if layout is None else equal_rows(rows, layout)
            unpacked = None if layout is None else self._unpack(layout, first + at, rows[:count])
            if layout is not None and unpacked is None and count > 1:
                # One of the packets has invalid arrays. Decoding one by one finds it.
                count, unpacked = 1, self._unpack(layout, first + at, rows[:1])
            if unpacked is None:
                yield from _merge(batches)
                batches = []
                yield BadPackets(first + at, 1)
                count = 1
            else:
                batches.append(unpacked)
            at += count
        yield from _merge(batches)

    def _layout_of(self, octets: Octets) -> BatchLayout | None:
        if self._last is None or self._last.octets != len(octets) or not self._last.fits(octets):
            self._last = self._known_or_read(octets)
        return self._last

    def _known_or_read(self, octets: Octets) -> BatchLayout | None:
        key = len(octets), octets[:_BEGINNING].tobytes()
        layout = self._layouts.get(key)
        if layout is not None and layout.fits(octets):
            return layout
        try:
            layout = read_layout(octets.tobytes())
        except BadBatch:
            return None
        if len(self._layouts) >= _LAYOUTS:
            self._layouts.clear()
        self._layouts[key] = layout
        return layout

    def _unpack(self, layout: BatchLayout, first: int, rows: Octets) -> DecodedBatch | None:
        try:
            columns, sent_us = columns_of(rows, layout, self._take), times_of(rows, layout)
        except BadBatch:
            return None
        sqns = np.arange(first, first + len(rows), dtype=np.int64)
        counts = np.full(len(rows), layout.count, np.int64)
        wanted = self._wanted(columns)
        if wanted is None:
            return DecodedBatch(columns, sqns, counts, sent_us=sent_us)
        places = np.flatnonzero(wanted)
        skipped = columns.count - len(places)
        if skipped:
            counts = wanted.reshape(len(rows), layout.count).sum(axis=1, dtype=np.int64)
            columns = columns.select(places)
        return DecodedBatch(columns, sqns, counts, skipped, sent_us)

    def _wanted(self, columns: Columns) -> npt.NDArray[np.bool_] | None:
        """Return a mask of the messages for this node with a wanted subject; None for all."""
        chosen: npt.NDArray[np.bool_] | None = None
        if not self._subjects.takes_all:
            chosen = _look_up(self._subjects.wanted(columns.subjects), columns.subject, columns.count)
        if columns.nodes and self._node is not None:
            ours = np.array([True, *(name == self._node for name in columns.nodes)], bool)
            for_us = _look_up(ours, columns.to, columns.count)
            if for_us is not None:
                chosen = for_us if chosen is None else chosen & for_us
        return chosen


def _look_up(
    table: npt.NDArray[np.bool_], indexes: npt.NDArray[np.unsignedinteger] | int, count: int
) -> npt.NDArray[np.bool_] | None:
    """Return the table's value for each message, or None if all values are true."""
    if isinstance(indexes, int):
        return None if table[indexes] else np.zeros(count, bool)
    if 0 not in table.tobytes()[1:] and (table[0] or np.count_nonzero(indexes) == count):
        return None
    chosen: npt.NDArray[np.bool_] = table[indexes]
    return chosen


def _merge(batches: list[DecodedBatch]) -> Iterator[DecodedBatch]:
    """Join small batches. Large batches are few, and a copy would cost more than it saves."""
    small: list[DecodedBatch] = []
    for batch in batches:
        if batch.columns.octets < _LARGE_OCTETS:
            small.append(batch)
            continue
        yield from _join(small)
        small = []
        yield batch
    yield from _join(small)


def _join(batches: list[DecodedBatch]) -> Iterator[DecodedBatch]:
    if len(batches) == 1:
        yield batches[0]
    elif batches:
        yield DecodedBatch(
            joined([batch.columns for batch in batches]),
            np.concatenate([batch.sqns for batch in batches]),
            np.concatenate([batch.counts for batch in batches]),
            sum(batch.skipped for batch in batches),
            _times_of_all(batches),
        )


def _times_of_all(batches: list[DecodedBatch]) -> Sqns | None:
    if all(batch.sent_us is None for batch in batches):
        return None
    times = (np.full(len(batch.sqns), NO_TIME) if batch.sent_us is None else batch.sent_us for batch in batches)
    return np.concatenate(list(times))
