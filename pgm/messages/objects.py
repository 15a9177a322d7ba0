"""Codecs that turn values into the octets of messages and back."""

from __future__ import annotations

from typing import Any, Protocol

import attrs
import cbor2

from pgm.errors import PgmError, UsageError
from pgm.messages.plain_values import array_of_tag, plain_value
from pgm.messages.references import has_reference
from pgm.messages.unpacked import unpacked_size
from pgm.units import MIB

MOST_UNPACKED_OCTETS = 64 * MIB  # the default of the largest message


class BadObject(PgmError):
    """Octets that a codec cannot decode."""

    code = "PGM-OBJECT"


class Codec(Protocol):
    """Codec of values. `decode` receives untrusted octets, and either returns a value or raises `BadObject`."""

    def encode(self, value: Any) -> bytes:
        """Return the octets of a value. Raises `UsageError` for a value that the codec cannot encode."""

    def decode(self, payload: bytes) -> Any:
        """Return the value. Raises `BadObject`."""


class CborCodec:
    """Codec of CBOR values (RFC 8949): numbers, text, octets, lists, tables and times, also nested.

    Dataclasses, attrs classes, values of numpy and times without a zone become such values (`pgm.messages.plain_values`).
    Typed arrays come back as arrays of numpy.
    """

    def encode(self, value: Any) -> bytes:
        """Return the octets of a value. Raises `UsageError` for a value that CBOR does not know."""
        try:
            return cbor2.dumps(value)
        except (cbor2.CBOREncodeError, RecursionError, OverflowError):
            pass  # the walk over the value would take most of the time of others
        try:
            return cbor2.dumps(plain_value(value))
        except (cbor2.CBOREncodeError, RecursionError, OverflowError, TypeError) as error:
            raise UsageError(
                f"a {type(value).__name__} that CBOR does not know: {error}", remedy="send a value made of plain values"
            ) from error

    def decode(self, payload: bytes) -> Any:
        """Return the value and ignore octets after it. Raises `BadObject`, also for references (tag 29)."""
        if has_reference(payload):
            raise BadObject("references to other parts of the value are not supported")
        try:
            return cbor2.loads(payload, tag_hook=array_of_tag)
        except Exception as error:  # tags build values of many classes, which raise many kinds of errors
            raise BadObject(f"{type(error).__name__}: {error}") from error


@attrs.frozen
class ArrowCodec:
    """Codec of Arrow tables and record batches as an IPC stream. The codec needs pyarrow.

    Other writers of IPC may send packed buffers. `most_octets` bounds the size of a message after unpacking. A message may
    have at most eight times as many rows. These bounds keep a few octets on the wire from taking much memory.
    """

    most_octets: int = MOST_UNPACKED_OCTETS

    def encode(self, value: Any) -> bytes:
        """Return the octets of a table or a record batch. Raises `UsageError` for other values."""
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
        """Return the table. Raises `BadObject`, also for a table that would be too large."""
        pa = _pyarrow()
        try:
            self._check_size(pa.ipc.MessageReader.open_stream(payload))
            table = pa.ipc.open_stream(payload).read_all()
            table.validate(full=True)  # later reads would follow offsets that lead outside
        except Exception as error:  # Arrow's errors, system errors or ValueError
            raise BadObject(f"{type(error).__name__}: {error}") from error
        return table

    def _check_size(self, messages: Any) -> None:
        rows = octets = 0
        for message in messages:
            if message.body is not None:
                more_rows, more_octets = unpacked_size(memoryview(message.metadata), memoryview(message.body))
                rows, octets = rows + more_rows, octets + more_octets
        if octets > self.most_octets or rows > 8 * self.most_octets:
            raise ValueError(f"{rows} rows, and {octets} octets when unpacked, of {self.most_octets} allowed")


def _pyarrow() -> Any:
    try:
        import pyarrow.ipc
    except ImportError:
        raise UsageError("Arrow is not installed", remedy="pip install 'pgm-repair-network[arrow]'") from None
    return pyarrow


CBOR = CborCodec()
ARROW = ArrowCodec()
