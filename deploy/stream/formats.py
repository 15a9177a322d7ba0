"""Formats of `pgm send` and `pgm recv` besides octets and lines: JSON lines, CBOR sequences, Arrow IPC streams.

JSON and CBOR values travel as CBOR, one value per message. Arrow data travels as one record batch per message.
"""

from __future__ import annotations

import base64
import datetime
import io
import json
import os
import sys
from collections.abc import Iterator
from typing import Any, Protocol

import cbor2

from pgm.errors import UsageError
from pgm.messages.objects import ARROW, CBOR

FORMATS = ("octets", "lines", "json", "cbor", "arrow")


class InputReader:
    """Standard input as a file object. It reads from the descriptor, so that an abandoned thread holds no lock."""

    closed = False

    def read(self, most: int = -1) -> bytes:
        """Read `most` octets, fewer only at the end of the input. Read to the end if `most` is negative."""
        octets = bytearray()
        while most < 0 or len(octets) < most:
            part = os.read(sys.stdin.fileno(), (1 << 20) if most < 0 else most - len(octets))
            if not part:
                break
            octets += part
        return bytes(octets)

    def readable(self) -> bool:
        """Return True."""
        return True


def json_message(text: bytes, number: int) -> bytes | None:
    """Return the message for a line of JSON; None for an empty line. Raises `UsageError` with the line's number."""
    if not text.strip():
        return None
    try:
        return CBOR.encode(json.loads(text))
    except ValueError as error:
        raise UsageError(
            f"line {number} of standard input is no JSON: {error}",
            remedy="write one value per line, or use --format lines",
        ) from None


class CborSequence:
    """Splitter of a CBOR sequence (RFC 8742) into its encoded values, which are sent unchanged."""

    def __init__(self) -> None:
        self._rest = b""
        self._number = 0

    def add(self, octets: bytes) -> list[bytes]:
        """Add octets and return the values that are complete now. Raises `UsageError` for invalid CBOR."""
        data, at = self._rest + octets, 0
        values = []
        while at < len(data):
            file = io.BytesIO(data[at:])
            try:
                cbor2.CBORDecoder(file).decode()
            except cbor2.CBORDecodeEOF:
                break
            except Exception as error:  # tags create values of many classes, which raise errors of many types
                raise UsageError(
                    f"value {self._number + 1} of standard input is no CBOR: {error}", remedy="send a CBOR sequence"
                ) from None
            values.append(data[at : at + file.tell()])
            at += file.tell()
            self._number += 1
        self._rest = data[at:]
        return values

    def end(self) -> None:
        """Check that the last value is complete. Raises `UsageError` if it is not."""
        if self._rest:
            raise UsageError(
                f"value {self._number + 1} of standard input ends too early", remedy="send complete values"
            )


def arrow_messages() -> Iterator[bytes]:
    """Yield a message for each record batch of the Arrow IPC stream on standard input. Raises `UsageError`."""
    pa = pyarrow()
    try:
        with pa.ipc.open_stream(pa.PythonFile(InputReader(), mode="r")) as stream:
            for batch in stream:
                yield ARROW.encode(batch)
    except (pa.ArrowException, OSError) as error:
        raise UsageError(
            f"standard input is no Arrow IPC stream: {error}", remedy="write it with pyarrow.ipc.new_stream"
        ) from None


def pyarrow() -> Any:
    """Import and return pyarrow. Raises `UsageError` with the remedy if pyarrow is not installed."""
    try:
        import pyarrow as module
        import pyarrow.ipc as _  # noqa: F401 - imported only when needed
    except ImportError:
        raise UsageError("Arrow is not installed", remedy="pip install 'pgm-repair-network[arrow]'") from None
    return module


class Writer(Protocol):
    """Encoder of messages in an output format."""

    def text(self, payloads: list[bytes]) -> bytes:
        """Return the output for messages. Raises `BadObject` for a message that is not in the format."""

    def end(self) -> bytes:
        """Return the output at the end of the stream."""


class JsonWriter:
    """Writer of JSON lines, one value per line, with octets in base64 and times in ISO 8601."""

    def text(self, payloads: list[bytes]) -> bytes:
        """Return the lines. Raises `BadObject`."""
        values = map(CBOR.decode, payloads)
        return b"".join(json.dumps(value, default=_plain, ensure_ascii=False).encode() + b"\n" for value in values)

    def end(self) -> bytes:
        """Return no octets."""
        return b""


def _plain(value: object) -> object:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, (datetime.date, datetime.datetime)):
        return value.isoformat()
    if isinstance(value, (set, frozenset)):
        return list(value)
    return str(value)


class CborWriter:
    """Writer of a CBOR sequence, with the values unchanged."""

    def text(self, payloads: list[bytes]) -> bytes:
        """Return the values after a check of each. Raises `BadObject`."""
        for payload in payloads:
            CBOR.decode(payload)
        return b"".join(payloads)

    def end(self) -> bytes:
        """Return no octets."""
        return b""


class ArrowWriter:
    """Writer of all record batches as one IPC stream. All batches must have the schema of the first."""

    def __init__(self) -> None:
        self._pa = pyarrow()
        self._sink = io.BytesIO()
        self._writer: Any = None
        self._schema: Any = None

    def text(self, payloads: list[bytes]) -> bytes:
        """Return the next part of the stream. Raises `UsageError` for another schema, `BadObject` for invalid data."""
        for payload in payloads:
            table = ARROW.decode(payload)
            if self._writer is None:
                self._writer = self._pa.ipc.new_stream(self._pa.PythonFile(self._sink, mode="w"), table.schema)
                self._schema = table.schema
            if table.schema != self._schema:
                raise UsageError(
                    "a record batch has another schema than the earlier ones", remedy="receive one stream at a time"
                )
            self._writer.write(table)
        return self._drain()

    def end(self) -> bytes:
        """Return the end marker of the IPC stream; no octets if no batch came."""
        if self._writer is None:
            return b""
        self._writer.close()
        return self._drain()

    def _drain(self) -> bytes:
        text = self._sink.getvalue()
        self._sink.seek(0)
        self._sink.truncate()
        return text


def writer_of(form: str) -> Writer | None:
    """Return a new writer for a format; None for octets and lines, which need no writer."""
    writers: dict[str, type[Writer]] = {"json": JsonWriter, "cbor": CborWriter, "arrow": ArrowWriter}
    return writers[form]() if form in writers else None
