"""Lines of `pgm recv --format TEMPLATE`: a line for each message, with its subject, its source and more."""

from __future__ import annotations

import string
from collections.abc import Callable, Iterator

import attrs

from deploy.stream.formats import JsonWriter
from pgm.errors import UsageError
from pgm.net.framing.items import AnyBatch, Message, Unpacker

_JSON = JsonWriter()

# Placeholder -> octets of a message.
PLACEHOLDERS: dict[str, Callable[[Message], bytes]] = {
    "payload": lambda message: message.payload,
    "value": lambda message: _JSON.text([message.payload]).rstrip(b"\n"),
    "subject": lambda message: (message.subject or "").encode(),
    "source": lambda message: message.source.encode(),
    "sqn": lambda message: b"%d" % message.sqn,
    "tsi": lambda message: str(message.tsi).encode(),
}


@attrs.frozen
class LineTemplate:
    """Template of a line: text before each placeholder, the placeholders, and the text at the end."""

    parts: tuple[tuple[bytes, str | None], ...]

    @classmethod
    def of(cls, text: str) -> LineTemplate:
        """Read a template such as `{source} {subject} {payload}`. Raises `UsageError`."""
        known = ", ".join(f"{{{name}}}" for name in PLACEHOLDERS)
        parts: list[tuple[bytes, str | None]] = []
        try:
            for before, name, spec, conversion in string.Formatter().parse(text):
                if name is not None and (name not in PLACEHOLDERS or spec or conversion):
                    raise ValueError(f"{{{name}}} is unknown" if name not in PLACEHOLDERS else "only names are read")
                parts.append((before.encode(), name))
        except ValueError as error:
            raise UsageError(f"{text!r} is no format: {error}", remedy=f"choose from {known}") from None
        return cls(tuple(parts))

    def line(self, message: Message) -> bytes:
        """Return the line of a message. Raises `BadObject` if {value} is wanted and the message has none."""
        pieces = [before + (PLACEHOLDERS[name](message) if name is not None else b"") for before, name in self.parts]
        return b"".join((*pieces, b"\n"))


def messages_in(batch: AnyBatch) -> Iterator[Message]:
    """Yield the messages of a batch."""
    unpacker = Unpacker()
    message = unpacker.open(batch)
    while message is not None:
        yield message
        message = unpacker.next()
