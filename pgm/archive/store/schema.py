"""Schema of an archive's rows: one row for each message and each loss.

A loss is a range of packets. Spark takes the types from Arrow without a conversion: 64-bit signed integers,
microseconds in UTC, every column nullable. Files hold columns with few distinct values run-end encoded. Clients get
plain columns.

The rows of one session, which is a TSI and an epoch, are ordered by sqn. The counts of the rows add up to the sqns
covered. Every missing sqn has a row that says so.
"""

from __future__ import annotations

from collections.abc import Iterable

import attrs
import pyarrow as pa
import pyarrow.compute as pc

from pgm.archive.errors import SchemaTooNew

VERSION = 2
VERSION_KEY = b"pgm.schema"

_TIME = pa.timestamp("us", tz="UTC")


@attrs.frozen
class ArchiveColumn:
    """One column. Files keep a column with `is_constant`, mostly one value in a batch, run-end encoded."""

    name: str
    type: pa.DataType
    is_constant: bool
    doc: str
    version: int = 1  # of the first schema that has the column

    @property
    def stored_type(self) -> pa.DataType:
        """Type in a file."""
        return pa.run_end_encoded(pa.int32(), self.type) if self.is_constant else self.type


# fmt: off
COLUMNS = (
    ArchiveColumn("tsi", pa.string(), True, "Session: six decimal octets of the GSI and the data-source port."),
    ArchiveColumn("stream", pa.string(), True, "Name of the stream in the topology; null if an unnamed stream was opened by its address."),
    ArchiveColumn("source", pa.string(), True, "Name of the node that sends the stream, or its address if the topology names none."),
    ArchiveColumn("node", pa.string(), True, "Name of the node that recorded the row."),
    ArchiveColumn("segment", pa.string(), True, "Name of the segment on which the recording node receives the stream."),
    ArchiveColumn("epoch", _TIME, True, "Start of the session, by its source's clock. Null: the source does not say, and the upper half of sqn is a guess that no other node shares."),
    ArchiveColumn("sqn", pa.int64(), False, "First packet of the message or of the loss, in 64 bits that never wrap."),
    ArchiveColumn("count", pa.int64(), True, "Packets that the row stands for: those of the message, 0 if it shares its packet with the message before it, or those lost."),
    ArchiveColumn("index", pa.int32(), True, "Place of the message in its packet, from 0."),
    ArchiveColumn("subject", pa.string(), True, "Subject; null where the stream has none."),
    ArchiveColumn("sent", _TIME, True, "When the source filled the packet, by its clock; null where the stream does not say (`batch_times`)."),
    ArchiveColumn("received", _TIME, True, "When the recording node had the message and everything before it."),
    ArchiveColumn("repaired", pa.bool_(), True, "Whether the packet, of several the first, came as a repair."),
    ArchiveColumn("lost", pa.string(), True, "Null: a message. Else a loss, and why: see `LossCause`."),
    ArchiveColumn("value", pa.binary(), False, "The message; null for a loss."),
    ArchiveColumn("frame", pa.binary(), True, "For signed streams: what the proof of the packet covers beyond the values of its rows. Null where it covers nothing else.", 2),
)
# fmt: on

FRAME = "frame"
ALL_NAMES = tuple(column.name for column in COLUMNS)
COLUMN_NAMES = tuple(name for name in ALL_NAMES if name != FRAME)  # served unless a request names others


def _schema(columns: Iterable[ArchiveColumn], *, is_stored: bool) -> pa.Schema:
    """Return the schema of columns, with the lowest version that has all of them."""
    chosen = tuple(columns)
    version = max(column.version for column in chosen)
    fields = [(column.name, column.stored_type if is_stored else column.type) for column in chosen]
    return pa.schema(fields, {VERSION_KEY: str(version).encode()})


# Schema of served rows.
SCHEMA = _schema((column for column in COLUMNS if column.name != FRAME), is_stored=False)
# Schema of stored rows.
STORED_SCHEMA = _schema(COLUMNS, is_stored=True)
# Schema of rows that earlier versions have stored.
EARLIER_SCHEMA = _schema((column for column in COLUMNS if column.version == 1), is_stored=True)


def check_version(schema: pa.Schema, where: str) -> None:
    """Raise `SchemaTooNew` for rows of a newer version, or of another program."""
    version = (schema.metadata or {}).get(VERSION_KEY)
    if version is None or not version.isdigit():
        raise SchemaTooNew(
            f"{where} holds Arrow record batches that are no rows of an archive",
            remedy="name the directory of an archive",
        )
    if int(version) > VERSION:
        raise SchemaTooNew(
            f"{where} has rows of schema version {int(version)}; this program knows up to {VERSION}",
            remedy="read it with the version of pgm that wrote it, or a newer one",
        )


def served_schema(columns: tuple[str, ...] | None, *, is_encoded: bool = False) -> pa.Schema:
    """Return the schema of columns in the given order; None selects all. `is_encoded` gives the types of files."""
    by_name = {column.name: column for column in COLUMNS}
    return _schema((by_name[name] for name in columns or COLUMN_NAMES), is_stored=is_encoded)


def completed(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return stored rows of any version with the columns of the present one."""
    if rows.num_columns == len(COLUMNS):
        return rows
    ends = pa.array([rows.num_rows] if rows.num_rows else [], pa.int32())
    added = [
        pa.RunEndEncodedArray.from_arrays(ends, pa.nulls(len(ends), column.type))
        for column in COLUMNS[rows.num_columns :]
    ]
    return pa.RecordBatch.from_arrays([*rows.columns, *added], schema=STORED_SCHEMA)


def plain(column: pa.Array) -> pa.Array:
    """Return a column without run-end encoding."""
    return pc.run_end_decode(column) if pa.types.is_run_end_encoded(column.type) else column
