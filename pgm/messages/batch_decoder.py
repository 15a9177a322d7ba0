"""Batches into messages: the packets of one session in, columns out. Nothing that a peer sends raises."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import attrs
import numpy as np
import numpy.typing as npt

from pgm.messages.batch_format import BadBatch, BatchLayout, alike, columns_of, read_layout, times_of
from pgm.messages.columns import Columns, Octets, joined
from pgm.messages.subjects import SubjectFilter

_LAYOUTS = 64  # kept of each session: of full packets with more or fewer messages, and of ends of batches
_LARGE_OCTETS = 64 * 1024
_BEGINNING = 18  # octets by which they are told apart: how many messages there are comes first

Sqns = npt.NDArray[np.int64]
NO_TIME = -1


Take = Callable[[int], Octets]


def _new(octets: int) -> Octets:
    return np.empty(octets, np.uint8)


@attrs.define(eq=False)
class DecodedBatch:
    """Messages of successive packets: packet i has the sqn `sqns[i]` and gave `counts[i]` of them."""

    columns: Columns
    sqns: Sqns
    counts: Sqns
    skipped: int = 0  # messages that were there and are not wanted
    sent_us: Sqns | None = None  # when each packet was filled, NO_TIME where it does not say; None if none does


@attrs.frozen
class BadPackets:
    """Packets that arrived and are no batches."""

    first: int
    count: int


class BatchDecoder:
    """Reads the batches of one session. Messages for other nodes, and of subjects nobody wants, are left out unread.

    Without a `node` messages for any node are taken. `take` gives memory for the octets of messages, which is theirs alone
    for as long as anything refers to it.
    """

    def __init__(self, node: str | None, subjects: SubjectFilter, take: Take = _new) -> None:
        self._node = node
        self._subjects = subjects
        self._layouts: dict[tuple[int, bytes], BatchLayout] = {}  # of batches seen before
        self._last: BatchLayout | None = None  # of the last: the next one's, as a rule
        self._take = take

    def add(self, first: int, packets: Octets) -> Iterator[DecodedBatch | BadPackets]:
        """Take packets `first`, `first + 1` and so on, a (count, octets) array; gives what came of them, in order."""
        found: list[DecodedBatch] = []
        at = 0
        while at < len(packets):
            rows = packets[at:]
            layout = self._layout_of(rows[0])
            count = 0 if layout is None else alike(rows, layout)
            unpacked = None if layout is None else self._unpack(layout, first + at, rows[:count])
            if layout is not None and unpacked is None and count > 1:
                # One of them has arrays that make no sense; which, they say one by one.
                count, unpacked = 1, self._unpack(layout, first + at, rows[:1])
            if unpacked is None:
                yield from _merged(found)
                found = []
                yield BadPackets(first + at, 1)
                count = 1
            else:
                found.append(unpacked)
            at += count
        yield from _merged(found)

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
        """Which of the messages are for this node and of a subject that is wanted; None for all."""
        chosen: npt.NDArray[np.bool_] | None = None
        if not self._subjects.takes_all:
            chosen = _looked_up(self._subjects.wanted(columns.subjects), columns.subject, columns.count)
        if columns.nodes and self._node is not None:
            ours = np.array([True, *(name == self._node for name in columns.nodes)], bool)
            for_us = _looked_up(ours, columns.to, columns.count)
            if for_us is not None:
                chosen = for_us if chosen is None else chosen & for_us
        return chosen


def _looked_up(
    table: npt.NDArray[np.bool_], indexes: npt.NDArray[np.unsignedinteger] | int, count: int
) -> npt.NDArray[np.bool_] | None:
    """What a table says of each message; None if it says yes to all."""
    if isinstance(indexes, int):
        return None if table[indexes] else np.zeros(count, bool)
    if 0 not in table.tobytes()[1:] and (table[0] or np.count_nonzero(indexes) == count):
        return None
    chosen: npt.NDArray[np.bool_] = table[indexes]
    return chosen


def _merged(found: list[DecodedBatch]) -> Iterator[DecodedBatch]:
    """Small ones as one. Of large ones there are few: to put them together would cost more than they do."""
    small: list[DecodedBatch] = []
    for one in found:
        if one.columns.octets < _LARGE_OCTETS:
            small.append(one)
            continue
        yield from _joined(small)
        small = []
        yield one
    yield from _joined(small)


def _joined(found: list[DecodedBatch]) -> Iterator[DecodedBatch]:
    if len(found) == 1:
        yield found[0]
    elif found:
        yield DecodedBatch(
            joined([one.columns for one in found]),
            np.concatenate([one.sqns for one in found]),
            np.concatenate([one.counts for one in found]),
            sum(one.skipped for one in found),
            _merged_times(found),
        )


def _merged_times(found: list[DecodedBatch]) -> Sqns | None:
    if all(one.sent_us is None for one in found):
        return None
    each = (np.full(len(one.sqns), NO_TIME) if one.sent_us is None else one.sent_us for one in found)
    return np.concatenate(list(each))
