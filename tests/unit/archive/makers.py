"""Makers of runs, rows and small archives for tests."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pyarrow as pa

from pgm.archive.recording.rows import RowBuilder, batch_of, rows_of, rows_of_loss
from pgm.archive.requests import RangeRequest
from pgm.archive.session import RecordedSession
from pgm.archive.store.reader import ArchiveReader
from pgm.archive.store.writer import ArchiveWriter
from pgm.core.window.reassembly import WholeMessages
from pgm.parameters import Parameters
from pgm.wire.formats import DATA_HEADER_OCTETS, PacketType
from pgm.wire.train import Run

TSI = bytes([1, 2, 3, 4, 5, 6, 0x1D, 0x4C])
TSI_TEXT = "1.2.3.4.5.6.7500"
SESSION = RecordedSession(TSI_TEXT, 1_000_000, "quotes", "exchange", "recorder-1", "core")


def payload(sqn: int, size: int) -> bytes:
    """Return the payload of the packet of a sqn."""
    return (sqn.to_bytes(8, "big") * (size // 8 + 1))[:size]


def run_of(first: int, count: int, size: int = 16, repaired: Sequence[int] = ()) -> Run:
    """Return a run of packets as received; those of `repaired` came as RDATA."""
    packets = []
    for sqn in range(first, first + count):
        header = bytearray(DATA_HEADER_OCTETS)
        header[4] = (PacketType.RDATA if sqn in repaired else PacketType.ODATA).value
        packets.append(bytes(header) + payload(sqn, size))
    octets = np.frombuffer(b"".join(packets), np.uint8)
    return Run(first, count, octets, 0, DATA_HEADER_OCTETS + size, DATA_HEADER_OCTETS)


def messages(first: int, count: int, size: int = 16, repaired: Sequence[int] = (), at_us: int = 0) -> RowBuilder:
    """Return rows of messages of one packet each."""
    return rows_of(WholeMessages(TSI, run_of(first, count, size, repaired)), 0, at_us or first)


def loss(first: int, count: int, cause: str = "retries", at_us: int = 0) -> RowBuilder:
    """Return the row of a loss."""
    return rows_of_loss(first, count, cause, at_us or first)


def append(writer: ArchiveWriter, parts: Sequence[RowBuilder], session: RecordedSession = SESSION) -> None:
    """Append a batch to an archive."""
    received = (parts[0].received_us, parts[-1].received_us)
    writer.append(session, batch_of(session, parts), parts[0].first, parts[-1].end, received)


def small(**values: Any) -> Parameters:
    """Return parameters for archives of a few kilobytes without expiry."""
    return attrs.evolve(Parameters(), record_secs=1 << 62, **values)


def log_to(lines: list[str]) -> Any:
    """Return a log that appends its lines to a list."""
    return lambda code, text: lines.append(f"{code}: {text}")


def table(directory: Path, **request: Any) -> pa.Table:
    """Return a range of an archive as a table, with all columns by default."""
    found = ArchiveReader(directory).read(RangeRequest(request.pop("tsi", TSI_TEXT), **request))
    return pa.Table.from_batches(list(found.batches()), found.schema)


def check_rows(rows: pa.Table, first: int, end: int) -> None:
    """Assert that every sqn is present once, in order, with its payload."""
    sqns, counts = rows["sqn"].to_numpy(), rows["count"].to_numpy()
    assert sqns[0] == first, (sqns[0], first)
    assert (sqns[1:] == sqns[:-1] + counts[:-1]).all()
    assert sqns[-1] + counts[-1] == end
    for sqn, lost, value in zip(sqns, rows["lost"].to_pylist(), rows["value"].to_pylist(), strict=True):
        assert value == (payload(int(sqn), len(value)) if lost is None else None)


def valued(first: int, values: Sequence[bytes], subjects: Sequence[str] = (), at_us: int = 0) -> RowBuilder:
    """Return rows of messages of one packet each, with given values, whose subjects repeat in turn."""
    count = len(values)
    return RowBuilder(
        first,
        first + count,
        np.arange(first, first + count),
        np.ones(count, np.int64),
        np.fromiter(map(len, values), np.int64, count),
        [np.frombuffer(b"".join(values), np.uint8)],
        at_us or first,
        np.zeros(count, np.bool_),
        subjects=tuple(subjects),
        subject=(np.arange(count) % len(subjects) + 1).astype(np.uint32) if subjects else 0,
    )
