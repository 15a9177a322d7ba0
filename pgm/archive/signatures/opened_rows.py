"""Rows of a sealed session in the clear: values decrypted, and messages that share a packet as rows of their own."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from pgm.archive.signatures.row_check import JudgedRows, RowVerdict
from pgm.archive.signatures.row_packets import NEEDED, Flags, Longs, Octets, rows_with_packets
from pgm.archive.signatures.session_secrets import SessionSecrets
from pgm.archive.store.schema import plain
from pgm.messages.batch_decoder import NO_TIME, BatchDecoder, DecodedBatch
from pgm.messages.subjects import SubjectFilter

_TIME = pa.timestamp("us", tz="UTC")


def opened_rows(judged: JudgedRows, secrets: SessionSecrets, *, has_batches: bool) -> JudgedRows:
    """Return rows with values in the clear. The value is null unless the row is proved and its secret is there.

    `judged` are rows of encrypted packets with the columns of `NEEDED`. With `has_batches` each packet becomes the rows of
    its messages.
    """
    if not judged.rows.num_rows:
        return judged
    packets = rows_with_packets(judged.rows.select(NEEDED), is_batched=False)
    payloads, found = secrets.applied(packets)
    lows, highs = np.searchsorted(packets.sqns, packets.begins), np.searchsorted(packets.sqns, packets.limits)
    known = np.append(0, np.cumsum(found))
    is_open = (judged.verdicts == RowVerdict.PROVED) & judged.may_open
    is_open &= (highs > lows) & (known[highs] - known[lows] == highs - lows)
    begins, ends = packets.ends[lows], packets.ends[highs]
    if has_batches:
        return _of_batches(judged, is_open, (begins, ends), payloads)
    return JudgedRows(_with(judged.rows, value=_values(is_open, begins, ends, payloads)), judged.verdicts)


def _values(is_open: Flags, begins: Longs, ends: Longs, payloads: Octets) -> pa.Array:
    """Return the values of rows, null where a row is not open. No octet of another row is in the memory of the column."""
    lengths = np.where(is_open, ends - begins, 0)
    offsets = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    parts = [payloads[begin:end] for begin, end in zip(begins[is_open].tolist(), ends[is_open].tolist(), strict=True)]
    octets = np.concatenate([np.zeros(0, np.uint8), *parts])
    nulls = pa.py_buffer(np.packbits(is_open, bitorder="little"))
    return pa.Array.from_buffers(pa.binary(), len(lengths), [nulls, pa.py_buffer(offsets), pa.py_buffer(octets)])


def _of_batches(judged: JudgedRows, is_open: Flags, spans: tuple[Longs, Longs], payloads: Octets) -> JudgedRows:
    """Return a row for each message. A packet in the clear that is no batch has a null value."""
    decoder = BatchDecoder(None, SubjectFilter(None))
    counts = np.ones(len(is_open), np.int64)
    values: list[bytes | None] = []
    subjects: list[str | None] = []
    sent: list[int | None] = []
    for row, (begin, end) in enumerate(zip(*(one.tolist() for one in spans), strict=True)):
        batches = list(decoder.add(0, payloads[begin:end].reshape(1, -1))) if is_open[row] else []
        if len(batches) != 1 or not isinstance(batch := batches[0], DecodedBatch):
            values, subjects, sent = [*values, None], [*subjects, None], [*sent, None]
            continue
        columns = batch.columns
        counts[row] = columns.count
        values += columns.payloads()
        places = [columns.subject] * columns.count if isinstance(columns.subject, int) else columns.subject.tolist()
        names: list[str | None] = [None, *columns.subjects]
        subjects += [names[place] for place in places]
        time_us = NO_TIME if batch.sent_us is None else int(batch.sent_us[0])
        sent += [None if time_us == NO_TIME else time_us] * columns.count
    places_of = np.repeat(np.arange(len(counts)), counts)
    columns_of_rows = [plain(column) for column in judged.rows.columns]  # Arrow takes nothing of encoded columns
    rows = pa.RecordBatch.from_arrays(columns_of_rows, judged.rows.schema.names).take(pa.array(places_of))
    index = np.arange(len(places_of)) - np.repeat(np.cumsum(counts) - counts, counts)
    packets = np.where(index == 0, rows.column("count").to_numpy(zero_copy_only=False), 0)
    rows = _with(
        rows,
        value=pa.array(values, pa.binary()),
        subject=pa.array(subjects, pa.string()),
        sent=pa.array(sent, pa.int64()).cast(_TIME),
        index=pa.array(index, pa.int32()),
        count=pa.array(packets, pa.int64()),
    )
    return JudgedRows(rows, judged.verdicts[places_of])


def _with(rows: pa.RecordBatch, **columns: pa.Array) -> pa.RecordBatch:
    names = rows.schema.names
    return pa.RecordBatch.from_arrays([columns.get(name, rows.column(name)) for name in names], names)
