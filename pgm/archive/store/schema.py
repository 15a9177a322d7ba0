"""The schema of an archive's rows: one row for each message, and one for each range of packets that was lost.

The types are those that Spark takes from Arrow without a conversion: 64-bit signed integers, microseconds in UTC, every
column nullable. Files hold columns that are constant in a batch run-end encoded; what is served is plain.

For one session, a TSI and an epoch, rows come in the order of their sqns, and the counts of its rows add up to the sqns
they cover: nothing is missing without a row that says so.
"""

from __future__ import annotations

import attrs
import pyarrow as pa
import pyarrow.compute as pc

from pgm.archive.errors import SchemaTooNew

VERSION = 1
VERSION_KEY = b"pgm.schema"

_TIME = pa.timestamp("us", tz="UTC")


@attrs.frozen
class ArchiveColumn:
    """One column. `is_constant`: as a rule it is the same for all rows of a batch, and files keep it as one value."""

    name: str
    type: pa.DataType
    is_constant: bool
    doc: str

    @property
    def stored_type(self) -> pa.DataType:
        """Its type in a file."""
        return pa.run_end_encoded(pa.int32(), self.type) if self.is_constant else self.type


# fmt: off
COLUMNS = (
    ArchiveColumn("tsi", pa.string(), True, "Session: six decimal octets of the GSI and the data-source port."),
    ArchiveColumn("stream", pa.string(), True, "Name of the stream in the topology; null if the address of an unnamed one was opened."),
    ArchiveColumn("source", pa.string(), True, "Name of the node that sends it, or its address if the topology names none."),
    ArchiveColumn("node", pa.string(), True, "Name of the node that recorded it."),
    ArchiveColumn("segment", pa.string(), True, "Name of the segment on which the recording node receives it."),
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
)
# fmt: on

COLUMN_NAMES = tuple(column.name for column in COLUMNS)
_METADATA = {VERSION_KEY: str(VERSION).encode()}

# What is served.
SCHEMA = pa.schema([(column.name, column.type) for column in COLUMNS], _METADATA)
# What files hold.
STORED_SCHEMA = pa.schema([(column.name, column.stored_type) for column in COLUMNS], _METADATA)


def check_version(schema: pa.Schema, where: str) -> None:
    """Raise `SchemaTooNew` if rows of this schema may mean something that is not known here, or are none of ours."""
    told = (schema.metadata or {}).get(VERSION_KEY)
    if told is None or not told.isdigit():
        raise SchemaTooNew(
            f"{where} holds Arrow record batches that are no rows of an archive",
            remedy="name the directory of an archive",
        )
    if int(told) > VERSION:
        raise SchemaTooNew(
            f"{where} has rows of schema version {int(told)}; this program knows up to {VERSION}",
            remedy="read it with the version of pgm that wrote it, or a newer one",
        )


def served_schema(columns: tuple[str, ...] | None, *, is_encoded: bool = False) -> pa.Schema:
    """The schema of a selection of columns, in the order asked for; all without one. `is_encoded`: with the types of files."""
    whole = STORED_SCHEMA if is_encoded else SCHEMA
    if columns is None:
        return whole
    return pa.schema([whole.field(name) for name in columns], _METADATA)


def plain(column: pa.Array) -> pa.Array:
    """A column as it is served, whether it is encoded or not."""
    return pc.run_end_decode(column) if pa.types.is_run_end_encoded(column.type) else column
