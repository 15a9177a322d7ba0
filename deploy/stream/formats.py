"""What `pgm send` reads and `pgm recv` writes besides octets and lines: JSON lines, CBOR sequences, Arrow IPC streams.

JSON and CBOR travel as CBOR, one value a message; Arrow as one record batch a message.
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
    """Standard input for those who read from a file. From the descriptor: a thread that is left behind in there holds no lock."""

    closed = False

    def read(self, most: int = -1) -> bytes:
        """As many octets, fewer only at the end."""
        found = bytearray()
        while most < 0 or len(found) < most:
            part = os.read(sys.stdin.fileno(), (1 << 20) if most < 0 else most - len(found))
            if not part:
                break
            found += part
        return bytes(found)

    def readable(self) -> bool:
        """It is."""
        return True


def json_message(text: bytes, number: int) -> bytes | None:
    """A line of JSON as the message that carries it; None for an empty one. Raises `UsageError` naming the line."""
    if not text.strip():
        return None
    try:
        return CBOR.encode(json.loads(text))
    except ValueError as error:
        raise UsageError(
            f"line {number} of standard input is no JSON: {error}",
            remedy="write one value a line, or send it with --format lines",
        ) from None


class CborSequence:
    """Cuts a CBOR sequence (RFC 8742) into its values, which are sent as they stand there."""

    def __init__(self) -> None:
        self._rest = b""
        self._number = 0

    def add(self, octets: bytes) -> list[bytes]:
        """The values that are whole now. Raises `UsageError` for what is none."""
        data, at = self._rest + octets, 0
        found = []
        while at < len(data):
            file = io.BytesIO(data[at:])
            try:
                cbor2.CBORDecoder(file).decode()
            except cbor2.CBORDecodeEOF:
                break
            except Exception as error:  # tags make values of many classes, each with complaints of its own
                raise UsageError(
                    f"value {self._number + 1} of standard input is no CBOR: {error}", remedy="send a CBOR sequence"
                ) from None
            found.append(data[at : at + file.tell()])
            at += file.tell()
            self._number += 1
        self._rest = data[at:]
        return found

    def end(self) -> None:
        """Raises `UsageError` if a value is not whole."""
        if self._rest:
            raise UsageError(f"value {self._number + 1} of standard input ends too early", remedy="send whole values")


def arrow_messages() -> Iterator[bytes]:
    """The messages that carry the record batches of an Arrow IPC stream on standard input. Raises `UsageError`."""
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
    """Arrow, or a `UsageError` that says how to get it."""
    try:
        import pyarrow as found
        import pyarrow.ipc as _  # noqa: F401 - only where somebody asks for it
    except ImportError:
        raise UsageError("Arrow is not installed", remedy="pip install 'pgm-repair-network[arrow]'") from None
    return found


class Writer(Protocol):
    """Turns messages into what is written."""

    def text(self, payloads: list[bytes]) -> bytes:
        """What to write for some messages. Raises `BadObject` for one that is not in the format."""

    def end(self) -> bytes:
        """What to write at the end."""


class JsonWriter:
    """A line of JSON for each value; octets in base64, times in ISO 8601."""

    def text(self, payloads: list[bytes]) -> bytes:
        """The lines."""
        values = map(CBOR.decode, payloads)
        return b"".join(json.dumps(value, default=_plain, ensure_ascii=False).encode() + b"\n" for value in values)

    def end(self) -> bytes:
        """Nothing."""
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
    """The values as they came: a CBOR sequence."""

    def text(self, payloads: list[bytes]) -> bytes:
        """The values, after a look whether they are any."""
        for payload in payloads:
            CBOR.decode(payload)
        return b"".join(payloads)

    def end(self) -> bytes:
        """Nothing."""
        return b""


class ArrowWriter:
    """All record batches as one IPC stream. They must have the schema of the first."""

    def __init__(self) -> None:
        self._pa = pyarrow()
        self._sink = io.BytesIO()
        self._writer: Any = None
        self._schema: Any = None

    def text(self, payloads: list[bytes]) -> bytes:
        """What became of the stream. Raises `UsageError` for a batch of another schema."""
        for payload in payloads:
            table = ARROW.decode(payload)
            if self._writer is None:
                self._writer = self._pa.ipc.new_stream(self._pa.PythonFile(self._sink, mode="w"), table.schema)
                self._schema = table.schema
            if table.schema != self._schema:
                raise UsageError(
                    "a record batch has another schema than those before it", remedy="receive one stream at a time"
                )
            self._writer.write(table)
        return self._taken()

    def end(self) -> bytes:
        """The mark at the end of a stream."""
        if self._writer is None:
            return b""
        self._writer.close()
        return self._taken()

    def _taken(self) -> bytes:
        text = self._sink.getvalue()
        self._sink.seek(0)
        self._sink.truncate()
        return text


def writer_of(form: str) -> Writer | None:
    """What writes a format; None for octets and lines, which need none."""
    found: dict[str, type[Writer]] = {"json": JsonWriter, "cbor": CborWriter, "arrow": ArrowWriter}
    return found[form]() if form in found else None
