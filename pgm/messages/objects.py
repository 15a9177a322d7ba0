"""Objects as messages: what turns values into octets and back."""

from __future__ import annotations

from typing import Any, Protocol

import attrs
import cbor2

from pgm.errors import PgmError, UsageError
from pgm.messages.references import refers
from pgm.messages.unpacked import unpacked
from pgm.units import MIB

MOST_UNPACKED_OCTETS = 64 * MIB  # as much as the largest message by default


class BadObject(PgmError):
    """Octets that a codec does not understand."""

    code = "PGM-OBJECT"


class Codec(Protocol):
    """Values into octets and back. `decode` is given what a network brought: it raises `BadObject` or returns."""

    def encode(self, value: Any) -> bytes:
        """A value's octets. Raises `UsageError` for a value that it has none for."""

    def decode(self, payload: bytes) -> Any:
        """The value. Raises `BadObject`."""


class CborCodec:
    """Any value that CBOR (RFC 8949) knows: numbers, text, octets, lists, tables, times, and what they nest."""

    def encode(self, value: Any) -> bytes:
        """A value's octets. Raises `UsageError` for a value that CBOR does not know."""
        try:
            return cbor2.dumps(value)
        except (cbor2.CBOREncodeError, RecursionError, OverflowError) as error:
            raise UsageError(
                f"a {type(value).__name__} that CBOR does not know: {error}", remedy="send what is made of plain values"
            ) from error

    def decode(self, payload: bytes) -> Any:
        """The value; what follows it is passed over. Raises `BadObject`, for references too (tag 29)."""
        if refers(payload):
            raise BadObject("references to other parts of the value, which are not read")
        try:
            return cbor2.loads(payload)
        except Exception as error:  # tags make values of many classes, each with complaints of its own
            raise BadObject(f"{type(error).__name__}: {error}") from error


@attrs.frozen
class ArrowCodec:
    """Tables and record batches of Arrow, as an IPC stream; it needs pyarrow.

    Buffers may come packed, by others that write IPC. `most_octets` is what all of a message may become when it is unpacked,
    and an eighth of what it may have in rows, so that a few octets on the wire take no more memory than that.
    """

    most_octets: int = MOST_UNPACKED_OCTETS

    def encode(self, value: Any) -> bytes:
        """The octets of a table or a record batch. Raises `UsageError` for anything else."""
        pa = _pyarrow()
        if not isinstance(value, (pa.Table, pa.RecordBatch)):
            raise UsageError(
                f"a {type(value).__name__} is no Arrow table", remedy="give a pyarrow.Table or RecordBatch"
            )
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, value.schema) as writer:
            writer.write(value)
        octets: bytes = sink.getvalue().to_pybytes()
        return octets

    def decode(self, payload: bytes) -> Any:
        """The table. Raises `BadObject`, also for one that would be too large."""
        pa = _pyarrow()
        try:
            self._check_size(pa.ipc.MessageReader.open_stream(payload))
            table = pa.ipc.open_stream(payload).read_all()
            table.validate(full=True)  # offsets that lead outside would be followed later
        except Exception as error:  # of Arrow, of the system, or ValueError
            raise BadObject(f"{type(error).__name__}: {error}") from error
        return table

    def _check_size(self, messages: Any) -> None:
        rows = octets = 0
        for message in messages:
            if message.body is not None:
                more_rows, more_octets = unpacked(memoryview(message.metadata), memoryview(message.body))
                rows, octets = rows + more_rows, octets + more_octets
        if octets > self.most_octets or rows > 8 * self.most_octets:
            raise ValueError(f"{rows} rows, and {octets} octets when unpacked, of {self.most_octets} that are allowed")


def _pyarrow() -> Any:
    try:
        import pyarrow.ipc
    except ImportError:
        raise UsageError("Arrow is not installed", remedy="pip install 'pgm-repair-network[arrow]'") from None
    return pyarrow


CBOR = CborCodec()
ARROW = ArrowCodec()
