"""Output of `pgm recv`: messages go to standard output, events of the stream to standard error."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import attrs

from deploy.stream.formats import Writer
from deploy.stream.line_template import LineTemplate, messages_in
from deploy.terminal.event_log import EventPrinter
from deploy.terminal.log import log
from pgm.core.counters import Counters
from pgm.core.effects import CloseCause, Closed, Conflict, Forged, Lost, Notice, Opened, Snapshot
from pgm.messages.objects import BadObject
from pgm.net.framing.items import AnyBatch, Batch, BatchItem, Message, MultipartBatch

_SHOW_S = 0.5

T = TypeVar("T")


class ProgressLine:
    """Progress line on a terminal, with octets and rate."""

    def __init__(self, verb: str) -> None:
        self._verb = verb
        self._since = time.monotonic()
        self._shown = 0.0
        self.is_on = sys.stderr.isatty()

    def show(self, octets: int, extra: str = "") -> None:
        """Show progress, at most twice a second."""
        now = time.monotonic()
        if self.is_on and now - self._shown >= _SHOW_S:
            self._shown = now
            rate = octets / max(1e-9, now - self._since) / 1e6
            print(
                f"\r{self._verb} {octets / 1e6:,.1f} MB, {rate:,.1f} MB/s{extra}  ", end="", file=sys.stderr, flush=True
            )

    def leave(self) -> None:
        """End the progress line, so that the next message begins on a new line."""
        if self._shown:
            print(file=sys.stderr)
            self._shown = 0.0

    def end(self) -> float:
        """End the progress line and return the elapsed time in seconds."""
        self.leave()
        return round(time.monotonic() - self._since, 3)


@attrs.define
class ReceiveOutput:
    """Output of received messages and events, with the account of both."""

    form: str
    keeps_on: bool  # whether to wait for the next stream after the end of the last one
    writer: Writer | None = None
    template: LineTemplate | None = None
    unreadable: int = 0  # messages that were not in the format
    meter: ProgressLine = attrs.field(factory=lambda: ProgressLine("received"))
    octets: int = 0
    messages: int = 0
    lost: int = 0
    forged: int = 0  # delivered, and not sent by the source
    cut_short: int = 0  # streams that ended without the FIN of the source
    open: set[bytes] = attrs.field(factory=set)
    has_closed: bool = False
    counters: Counters = attrs.field(factory=Counters)
    events: EventPrinter = attrs.field(factory=EventPrinter)

    def take(self, items: Iterable[BatchItem]) -> bool:
        """Write messages and print events, in order. Return whether to go on receiving."""
        texts: list[bytes] = []
        for item in items:
            if isinstance(item, AnyBatch):
                texts.append(self._text(item))
                continue
            if isinstance(item, Snapshot):
                texts.append(self._state(item))
                continue
            self._write(texts)
            texts = []
            if not self._print_event(item):
                return False
        self._write(texts)
        return True

    def notice(self, notice: Notice) -> None:
        """Print another event of the stream."""
        self.meter.leave()
        self.events.say(notice)

    def _print_event(self, item: Lost | Conflict | Forged | Opened | Closed) -> bool:
        self.meter.leave()
        self.events.say(item)
        if isinstance(item, Opened):
            self.open.add(item.tsi)
        elif isinstance(item, Lost):
            self.lost += item.count
        elif isinstance(item, Forged):
            self.forged += item.count
        elif isinstance(item, Closed) and item.cause is not CloseCause.SILENT:
            self.open.discard(item.tsi)
            self.has_closed = True
            self.cut_short += item.cause is not CloseCause.FIN
        return self.keeps_on or not self.has_closed or bool(self.open)

    def _state(self, snapshot: Snapshot) -> bytes:
        """Return a state in the form of a message."""
        payload = bytes(snapshot.payload)
        self.meter.leave()
        log("snapshot", f"{len(payload)} octets from {snapshot.source}, before sqn {snapshot.position}")
        self.octets += len(payload)
        if self.writer is not None:
            return self._converted(self.writer.text, [payload])
        return payload if self.form == "octets" else payload + b"\n"

    def _text(self, batch: AnyBatch) -> bytes:
        self.messages += len(batch)
        if self.template is not None:
            return b"".join(self._line(self.template, message) for message in messages_in(batch))
        if isinstance(batch, Batch) and self.form == "octets":
            self.octets += batch.payloads.size
            return batch.payloads.tobytes()
        payloads = [b"".join(parts) for parts in batch] if isinstance(batch, MultipartBatch) else list(batch)
        self.octets += sum(len(payload) for payload in payloads)
        if self.writer is not None:
            return b"".join(self._converted(self.writer.text, [payload]) for payload in payloads)
        return b"".join(payload + b"\n" for payload in payloads) if self.form == "lines" else b"".join(payloads)

    def _line(self, template: LineTemplate, message: Message) -> bytes:
        self.octets += len(message.payload)
        return self._converted(template.line, message)

    def _converted(self, convert: Callable[[T], bytes], content: T) -> bytes:
        try:
            return convert(content)
        except BadObject as error:
            self.unreadable += 1
            self.meter.leave()
            log("unreadable", f"a message is not in this format: {error.message}")
            return b""

    def end(self) -> None:
        """Write the end of the output format."""
        if self.writer is not None:
            self._write([self.writer.end()])

    def _write(self, texts: list[bytes]) -> None:
        # The write uses the descriptor: an interrupted write leaves no lock or buffered data that delays the interpreter's end.
        rest = memoryview(b"".join(texts))
        while rest:
            rest = rest[os.write(sys.stdout.fileno(), rest) :]
        self.meter.show(self.octets, f", {self.lost:,} lost" if self.lost else "")

    @property
    def has_flaws(self) -> bool:
        """Whether messages were lost, forged or unreadable, or a stream was cut short."""
        return bool(self.lost or self.forged or self.cut_short or self.unreadable)

    def account(self) -> dict[str, Any]:
        """Return the account as an object with stable keys."""
        return {
            "messages": self.messages,
            "octets": self.octets,
            "lost": self.lost,
            "forged": self.forged,
            "cut_short": self.cut_short,
            "unreadable": self.unreadable,
            "seconds": self.meter.end(),
            "events": self.events.rows(),
            "counters": self.counters.snapshot(),
        }
