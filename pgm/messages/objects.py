"""Objects as messages: what turns values into octets and back."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Protocol

import cbor2

from pgm.errors import PgmError, UsageError

# Heads of tag 29, a reference to a value around it or before it.
_REFERENCE = re.compile(rb"\xd8\x1d|\xd9\x00\x1d|\xda\x00{3}\x1d|\xdb\x00{7}\x1d")


class BadObject(PgmError):
    """Octets that a codec does not understand."""

    code = "PGM-OBJECT"


class Codec(Protocol):
    """Values into octets and back. `decode` is given what a network brought: it raises `BadObject` or returns."""

    def encode(self, value: Any) -> bytes:
        """A value's octets. Raises `UsageError` for a value that it has none for."""

    def decode(self, payload: bytes) -> Any:
        """The value. Raises `BadObject`."""


def _walk(value: Any, most: int) -> None:
    """Raise `BadObject` for a value of more than `most` items, each counted as often as it is referred to.

    What CBOR says without references takes an octet an item. By references a value can hold itself, or the same thing twice, which
    holds another twice, and so on: few octets, and whoever walks it does not come back.
    """
    waiting, count = [value], 1
    while waiting:
        one = waiting.pop()
        held: list[Any] = []
        if isinstance(one, Mapping):
            held = [*one.keys(), *one.values()]
        elif isinstance(one, (list, tuple, set, frozenset)):
            held = list(one)
        elif isinstance(one, cbor2.CBORTag):
            held = [one.value]
        count += len(held)
        if count > most:
            raise BadObject("references make more of it than its octets could say")
        waiting += held


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
        """The value; what follows it is passed over. Raises `BadObject`."""
        try:
            value = cbor2.loads(payload)
            if _REFERENCE.search(payload) is not None:
                _walk(value, len(payload))
            return value
        except Exception as error:  # tags make values of many classes, each with complaints of its own
            raise BadObject(f"{type(error).__name__}: {error}") from error


class ArrowCodec:
    """Tables and record batches of Arrow, as an IPC stream; it needs pyarrow."""

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
        """The table. Raises `BadObject`."""
        pa = _pyarrow()
        try:
            table = pa.ipc.open_stream(payload).read_all()
            table.validate(full=True)  # offsets that lead outside would be followed later
        except Exception as error:  # of Arrow, of the system, or ValueError
            raise BadObject(f"{type(error).__name__}: {error}") from error
        return table


def _pyarrow() -> Any:
    try:
        import pyarrow.ipc
    except ImportError:
        raise UsageError("Arrow is not installed", remedy="pip install 'pgm-repair-network[arrow]'") from None
    return pyarrow


CBOR = CborCodec()
ARROW = ArrowCodec()
