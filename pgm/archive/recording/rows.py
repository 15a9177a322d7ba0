"""Rows of received messages: columns made with numpy.

No object is made for a single message. `rows_of` is the only place where packets and messages become rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

import attrs
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pgm.archive.session import RecordedSession
from pgm.archive.store.schema import COLUMNS, STORED_SCHEMA
from pgm.core.window.reassembly import LargeMessage, WholeMessages
from pgm.messages.batch_decoder import NO_TIME, DecodedBatch
from pgm.wire.formats import PacketType
from pgm.wire.train import Octets, Run

Longs = npt.NDArray[np.int64]

_TYPE_AT = 4  # octet of a PGM header that holds the packet's type (RFC 8.1)
_TYPE_BITS = 0x0F
_NO = np.zeros(1, np.bool_)
_NO_FRAMES: Mapping[int, bytes] = MappingProxyType({})


@attrs.frozen(eq=False)
class RowBuilder:
    """Consecutive rows: the messages of one train, or one loss. `end` is the sqn after the last."""

    first: int
    end: int
    sqns: Longs
    counts: Longs
    lengths: Longs
    octets: Sequence[Octets]  # the values of all rows, in order
    received_us: int
    repaired: npt.NDArray[np.bool_]
    lost: str | None = None
    indices: Longs | None = None  # positions of the messages in their packets; None: all 0
    subjects: tuple[str, ...] = ()
    # for each message, or one for all: 0 for no subject, i for subjects[i - 1]
    subject: npt.NDArray[np.unsignedinteger] | int = 0
    sent_us: Longs | None = None  # for each message, NO_TIME if unknown; None: unknown for all
    frames: Mapping[int, bytes] = _NO_FRAMES  # of rows by their place

    @property
    def size(self) -> int:
        """Approximate octets on disk."""
        return sum(part.size for part in self.octets) + 12 * len(self.sqns) + sum(map(len, self.frames.values()))


def rows_of(messages: WholeMessages | LargeMessage, shift: int, received_us: int) -> RowBuilder:
    """Return the rows of whole messages. `shift` is added to the node's own sqns to get those of the source."""
    if isinstance(messages, LargeMessage):
        payload = np.frombuffer(messages.payload, np.uint8)
        first = messages.first + shift
        sqns, counts, lengths = np.array([[first], [messages.count], [payload.size]], np.int64)
        return RowBuilder(first, first + messages.count, sqns, counts, lengths, (payload,), received_us, _NO)
    run = messages.run
    payloads = run.payloads
    first, count = run.first + shift, run.count
    return RowBuilder(
        first,
        first + count,
        np.arange(first, first + count, dtype=np.int64),
        np.ones(count, np.int64),
        np.full(count, payloads.shape[1], np.int64),
        (payloads,),
        received_us,
        repaired_of(run),
    )


def repaired_of(run: Run) -> npt.NDArray[np.bool_]:
    """Return which packets of a run arrived as repairs."""
    flags: npt.NDArray[np.bool_] = (run.rows[:, _TYPE_AT] & _TYPE_BITS) == PacketType.RDATA.value
    return flags


def rows_of_batch(
    batch: DecodedBatch, shift: int, received_us: int, repaired: npt.NDArray[np.bool_], packets_each: int
) -> RowBuilder:
    """Return the rows of messages that share packets, at least one each. `repaired` has one flag for each packet."""
    columns, sqns = batch.columns, batch.sqns + shift
    begins = np.cumsum(batch.counts) - batch.counts
    counts = np.zeros(columns.count, np.int64)
    counts[begins] = packets_each
    ends = columns.ends
    return RowBuilder(
        first=int(sqns[0]),
        end=int(sqns[-1]) + packets_each,
        sqns=np.repeat(sqns, batch.counts),
        counts=counts,
        lengths=columns.sizes,
        octets=(columns.data[ends[0] : ends[-1]],),
        received_us=received_us,
        repaired=np.repeat(repaired, batch.counts),
        indices=np.arange(columns.count) - np.repeat(begins, batch.counts),
        subjects=columns.subjects,
        subject=columns.subject,
        sent_us=None if batch.sent_us is None else np.repeat(batch.sent_us, batch.counts),
    )


def rows_of_loss(first: int, count: int, cause: str, received_us: int) -> RowBuilder:
    """Return the row of a loss."""
    sqns, counts, lengths = np.array([[first], [count], [0]], np.int64)
    return RowBuilder(first, first + count, sqns, counts, lengths, (), received_us, _NO, cause)


def constant(value: object, count: int, kind: pa.DataType) -> pa.Array:
    """Return a column with the same value in all rows."""
    ends = pa.array([count] if count else [], pa.int32())
    return pa.RunEndEncodedArray.from_arrays(ends, pa.array([value] if count else [], kind))


def _encoded(values: npt.NDArray[np.generic], kind: pa.DataType) -> pa.Array:
    """Return a run-end encoded column; meant for few runs of equal values."""
    ends = np.append(np.flatnonzero(values[1:] != values[:-1]) + 1, len(values)).astype(np.int32)
    return pa.RunEndEncodedArray.from_arrays(pa.array(ends), pa.array(values[ends - 1]).cast(kind))


def _per_part(values: Iterable[object], lengths: Sequence[int], kind: pa.DataType) -> pa.Array:
    """Return a column with the same value in all rows of each part."""
    kept: list[object] = []
    ends: list[int] = []
    at = 0
    for value, length in zip(values, lengths, strict=True):
        at += length
        if kept and kept[-1] == value:
            ends[-1] = at
        else:
            kept.append(value)
            ends.append(at)
    return pa.RunEndEncodedArray.from_arrays(pa.array(ends, pa.int32()), pa.array(kept, kind))


def _indices(parts: Sequence[RowBuilder]) -> pa.Array:
    if all(part.indices is None for part in parts):
        return constant(0, sum(len(part.sqns) for part in parts), pa.int32())
    zeros = (np.zeros(len(part.sqns), np.int64) if part.indices is None else part.indices for part in parts)
    return _encoded(np.concatenate(list(zeros)), pa.int32())


def _sent(parts: Sequence[RowBuilder]) -> pa.Array:
    kind = STORED_SCHEMA.field("sent").type.value_type
    if all(part.sent_us is None for part in parts):
        return constant(None, sum(len(part.sqns) for part in parts), kind)
    each = (np.full(len(part.sqns), NO_TIME) if part.sent_us is None else part.sent_us for part in parts)
    encoded = _encoded(np.concatenate(list(each)), pa.int64())
    times = encoded.values.to_numpy()
    return pa.RunEndEncodedArray.from_arrays(encoded.run_ends, pa.array(times, pa.int64(), mask=times < 0).cast(kind))


def _subjects(parts: Sequence[RowBuilder]) -> pa.Array:
    """Return the subject column, with the subject tables of all parts joined."""
    names: list[str | None] = [None]
    indexes = []
    for part in parts:
        if isinstance(part.subject, int):
            index = len(names) if part.subject else 0
            names += [part.subjects[part.subject - 1]] if part.subject else []
            indexes.append(np.full(len(part.sqns), index, np.int64))
        else:
            indices_in_part = part.subject.astype(np.int64)
            indexes.append(np.where(indices_in_part > 0, indices_in_part + len(names) - 1, 0))
            names += part.subjects
    if len(names) == 1:
        return constant(None, sum(map(len, indexes)), pa.string())
    encoded = _encoded(np.concatenate(indexes), pa.int64())
    return pa.RunEndEncodedArray.from_arrays(encoded.run_ends, pa.array(names, pa.string()).take(encoded.values))


def _frames(parts: Sequence[RowBuilder]) -> pa.Array:
    """Return the frames: one run for each, and one for the rows between two of them."""
    total = sum(len(part.sqns) for part in parts)
    if not any(part.frames for part in parts):
        return constant(None, total, pa.binary())
    ends: list[int] = []
    values: list[bytes | None] = []
    base = at = 0
    for part in parts:
        for place, frame in part.frames.items():
            if base + place > at:
                ends.append(base + place)
                values.append(None)
            at = base + place + 1
            ends.append(at)
            values.append(frame)
        base += len(part.sqns)
    if at < total:
        ends.append(total)
        values.append(None)
    return pa.RunEndEncodedArray.from_arrays(pa.array(ends, pa.int32()), pa.array(values, pa.binary()))


def _values(parts: Sequence[RowBuilder]) -> pa.Array:
    lengths = np.concatenate([part.lengths for part in parts])
    offsets = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    octets = np.empty(int(offsets[-1]), np.uint8)
    at = 0
    for part in parts:
        for piece in part.octets:
            octets[at : at + piece.size].reshape(piece.shape)[...] = piece
            at += piece.size
    is_message = np.concatenate([np.full(len(part.sqns), part.lost is None) for part in parts])
    nulls = None if is_message.all() else pa.py_buffer(np.packbits(is_message, bitorder="little"))
    return pa.Array.from_buffers(pa.binary(), len(lengths), [nulls, pa.py_buffer(offsets), pa.py_buffer(octets)])


def batch_of(session: RecordedSession, parts: Sequence[RowBuilder]) -> pa.RecordBatch:
    """Return a record batch of the stored schema. The values must total less than 2 GiB."""
    sizes = [len(part.sqns) for part in parts]
    count = sum(sizes)
    constants = attrs.asdict(session)
    constants["epoch"] = constants.pop("epoch_us")
    del constants["kind"]
    columns = {
        column.name: constant(constants[column.name], count, column.type)
        for column in COLUMNS
        if column.name in constants
    }
    if not count:
        empty = {column.name: constant(None, 0, column.type) for column in COLUMNS if column.is_constant}
        empty |= {"sqn": pa.array([], pa.int64()), "value": pa.array([], pa.binary())}
        return pa.RecordBatch.from_arrays([empty[column.name] for column in COLUMNS], schema=STORED_SCHEMA)
    columns["sqn"] = pa.array(np.concatenate([part.sqns for part in parts]))
    columns["count"] = _encoded(np.concatenate([part.counts for part in parts]), pa.int64())
    columns["repaired"] = _encoded(np.concatenate([part.repaired for part in parts]), pa.bool_())
    columns["index"] = _indices(parts)
    columns["subject"] = _subjects(parts)
    columns["sent"] = _sent(parts)
    columns["received"] = _per_part(
        (part.received_us for part in parts), sizes, STORED_SCHEMA.field("received").type.value_type
    )
    columns["lost"] = _per_part((part.lost for part in parts), sizes, pa.string())
    columns["value"] = _values(parts)
    columns["frame"] = _frames(parts)
    return pa.RecordBatch.from_arrays([columns[column.name] for column in COLUMNS], schema=STORED_SCHEMA)
