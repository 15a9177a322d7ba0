"""Packets as their source sent them, made of the rows of an archive."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pgm.archive.store.frames import Frame, decode_frame_untrusted
from pgm.archive.store.schema import plain
from pgm.messages.batch_decoder import NO_TIME, BatchDecoder, DecodedBatch
from pgm.messages.subjects import SubjectFilter
from pgm.trust.blocks import records_of, records_of_fragments

NEEDED = ("sqn", "count", "index", "subject", "sent", "lost", "value", "frame")  # columns of a check

Longs = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
Octets = npt.NDArray[np.uint8]


@attrs.frozen(eq=False)
class RowPackets:
    """Packets of consecutive rows. `sqns` ascend, with gaps where rows are losses or lack their frame.

    `payloads` has the octets of packet i from `ends[i]` to `ends[i + 1]`. `fits` tells for each row whether its columns
    agree with its packet, whose octets the proof decides about. Row i stands for the sqns from `begins[i]` to
    `limits[i] - 1`.
    """

    sqns: Longs
    records: npt.NDArray[np.uint32]
    ends: Longs
    payloads: Octets
    fits: Flags
    begins: Longs
    limits: Longs


class _Parts:
    """Packets in pieces."""

    def __init__(self) -> None:
        self.sqns: list[Longs] = []
        self.records: list[npt.NDArray[np.uint32]] = []
        self.lengths: list[Longs] = []
        self.payloads: list[Octets] = []

    def add(self, sqns: Longs, records: npt.NDArray[np.uint32], lengths: Longs, payloads: Sequence[Octets]) -> None:
        self.sqns.append(sqns)
        self.records.append(records)
        self.lengths.append(lengths)
        self.payloads += payloads


class _Rows:
    """Columns of rows as arrays."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        self.count = batch.num_rows
        self.sqns = _longs(batch, "sqn")
        self.counts = _longs(batch, "count")
        self.indices = _longs(batch, "index")
        self.is_message = _is_valid(batch, "value") & ~_is_valid(batch, "lost")
        self.has_frame = _is_valid(batch, "frame")
        self.is_bare = ~(_is_valid(batch, "subject") | _is_valid(batch, "sent")) & (self.indices == 0)
        self._batch = batch
        values = batch.column("value")
        _, offsets, octets = values.buffers()
        self.ends = np.frombuffer(offsets, np.int32)[values.offset : values.offset + self.count + 1].astype(np.int64)
        self.octets = np.empty(0, np.uint8) if octets is None else np.frombuffer(octets, np.uint8)
        # Rows of one packet follow each other: the first has its sqn first, and the others share it.
        self.starts = np.flatnonzero(np.append(True, self.sqns[1:] != self.sqns[:-1])) if self.count else self.sqns

    def values(self, first: int, end: int) -> Octets:
        return self.octets[self.ends[first] : self.ends[end]]

    def frame(self, row: int) -> Frame | None:
        return decode_frame_untrusted(self._batch.column("frame")[row].as_py())

    def subjects(self, first: int, end: int) -> list[str | None]:
        found: list[str | None] = self._batch.column("subject").slice(first, end - first).to_pylist()
        return found

    def sent_us(self, first: int, end: int) -> Longs:
        sent = self._batch.column("sent").slice(first, end - first).cast("int64").fill_null(NO_TIME)
        return np.asarray(sent.to_numpy(zero_copy_only=False), np.int64)


def rows_with_packets(batch: pa.RecordBatch, *, is_batched: bool | None) -> RowPackets:
    """Return the packets of rows with the columns of `NEEDED`. `is_batched`: see `SignedStream`."""
    batch = pa.RecordBatch.from_arrays([plain(batch.column(name)) for name in NEEDED], NEEDED)
    rows, parts = _Rows(batch), _Parts()
    fits = rows.is_bare.copy() if not is_batched else np.zeros(rows.count, np.bool_)
    starts = rows.starts
    sizes = np.diff(np.append(starts, rows.count))
    is_plain = (sizes == 1) & rows.is_message[starts] & ~rows.has_frame[starts] & (rows.counts[starts] == 1)
    decoder = BatchDecoder(None, SubjectFilter(None))
    at = 0
    cuts = np.flatnonzero(np.diff(is_plain)) + 1
    for first, end in zip((0, *cuts.tolist()), (*cuts.tolist(), len(starts)), strict=True):
        if first == end:
            continue
        if is_plain[first]:
            at = int(starts[first])
            if not is_batched:  # otherwise the frame is missing
                _add_plain(parts, rows, at, at + end - first)
            continue
        for group in range(first, end):
            at = int(starts[group])
            _add_group(parts, rows, (at, at + int(sizes[group])), fits, (decoder, is_batched))
    limits = rows.sqns + np.repeat(np.maximum(rows.counts[starts], 1), sizes)
    return _joined(parts, fits, rows.sqns, limits)


def _add_plain(parts: _Parts, rows: _Rows, first: int, end: int) -> None:
    lengths = np.diff(rows.ends[first : end + 1])
    parts.add(rows.sqns[first:end], records_of(lengths), lengths, (rows.values(first, end),))


def _add_group(
    parts: _Parts, rows: _Rows, span: tuple[int, int], fits: Flags, batches: tuple[BatchDecoder, bool | None]
) -> None:
    """Add the packets of the rows that share a packet, or of one message in several packets."""
    first, end = span
    if not rows.has_frame[first] or not rows.is_message[first:end].all():
        return  # a loss, or rows of an archive that keeps no frames: no proof can be checked
    frame = rows.frame(first)
    values = rows.values(first, end)
    count = int(rows.counts[first])
    sqns = np.arange(rows.sqns[first], rows.sqns[first] + max(count, 1))
    lengths = np.zeros(len(sqns), np.int64)
    if frame is None:  # no recorder writes it: the packets, without octets, fit no proof
        parts.add(sqns, records_of(lengths), lengths, ())
        return
    pieces = (np.frombuffer(frame.before, np.uint8), values, np.frombuffer(frame.after, np.uint8))
    total = sum(map(len, pieces))
    sizes = _sizes(frame, total)
    if len(sizes) != count:
        parts.add(sqns, records_of(lengths), lengths, ())
        return
    records = records_of_fragments(int(sqns[0]), sizes) if frame.sizes else records_of(sizes)
    parts.add(sqns, records, sizes, pieces)
    decoder, is_batched = batches
    if is_batched is not None and frame.is_batch is not is_batched:
        fits[first:end] = False
    elif frame.is_batch:
        fits[first:end] = _fits_batch(rows, span, np.concatenate(pieces), decoder)
    elif end - first > 1 or frame.before or frame.after:
        fits[first:end] = False


def _sizes(frame: Frame, total: int) -> Longs:
    """Return the octets of each packet; none if the frame does not fit the message."""
    if not frame.sizes:
        return np.array([total], np.int64)
    number = sum(count for count, _ in frame.sizes)
    octets = sum(count * size for count, size in frame.sizes)
    if octets != total or number > max(total, 1):
        return np.zeros(0, np.int64)
    counts, sizes = np.array(frame.sizes, np.int64).T
    return np.repeat(sizes, counts)


def _fits_batch(rows: _Rows, span: tuple[int, int], packet: Octets, decoder: BatchDecoder) -> bool:
    """Return whether rows are the messages of a batch, in order, with their subjects and the time."""
    first, end = span
    decoded = list(decoder.add(0, packet.reshape(1, -1)))
    if len(decoded) != 1 or not isinstance(decoded[0], DecodedBatch):
        return False
    batch = decoded[0]
    columns = batch.columns
    if columns.count != end - first or not np.array_equal(rows.indices[first:end], np.arange(end - first)):
        return False
    if rows.counts[first + 1 : end].any() or not np.array_equal(columns.sizes, np.diff(rows.ends[first : end + 1])):
        return False
    sent_us = NO_TIME if batch.sent_us is None else int(batch.sent_us[0])
    if (rows.sent_us(first, end) != sent_us).any():
        return False
    places = np.full(columns.count, columns.subject) if isinstance(columns.subject, int) else columns.subject
    names: list[str | None] = [None, *columns.subjects]
    return rows.subjects(first, end) == [names[place] for place in places.tolist()]


def _joined(parts: _Parts, fits: Flags, begins: Longs, limits: Longs) -> RowPackets:
    lengths = np.concatenate([np.zeros(0, np.int64), *parts.lengths])
    ends = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=ends[1:])
    payloads = (
        parts.payloads[0] if len(parts.payloads) == 1 else np.concatenate([np.zeros(0, np.uint8), *parts.payloads])
    )
    sqns = np.concatenate([np.zeros(0, np.int64), *parts.sqns])
    records = np.concatenate([np.zeros((0, 4), np.uint32), *parts.records])
    return RowPackets(sqns, records, ends, payloads, fits, begins, limits)


def _longs(batch: pa.RecordBatch, name: str) -> Longs:
    return np.asarray(batch.column(name).to_numpy(zero_copy_only=False), np.int64)


def _is_valid(batch: pa.RecordBatch, name: str) -> Flags:
    return np.asarray(batch.column(name).is_valid().to_numpy(zero_copy_only=False), np.bool_)
