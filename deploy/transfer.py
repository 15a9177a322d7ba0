"""`pgm send` and `pgm recv`: a stream as a pipe.

Without `--lines` standard input is sent octet by octet as it comes, cut into messages of packet size at most, and
received octets are written as they are: what comes out is what went in.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import attrs
import click
import trio

from deploy.output import EXIT_FAILED, command, print_json, warn
from deploy.run import has_stdin, read_stdin, send_lines
from pgm.core.effects import CloseCause, Closed, Lost, Opened
from pgm.errors import ProcessError, UsageError
from pgm.net.items import Batch, BatchItem
from pgm.net.open import open_receiver, open_source
from pgm.net.receiver import Receiver
from pgm.net.source import Source
from pgm.units import parse_duration
from pgm.wire.formats import DATA_HEADER_OCTETS, tsi_text

_SHOW_S = 0.5


class Meter:
    """A line on a terminal that says how far it is."""

    def __init__(self, verb: str) -> None:
        self._verb = verb
        self._since = time.monotonic()
        self._shown = 0.0
        self._is_on = sys.stderr.isatty()

    def show(self, octets: int, extra: str = "") -> None:
        """Show progress, at most twice a second."""
        now = time.monotonic()
        if self._is_on and now - self._shown >= _SHOW_S:
            self._shown = now
            rate = octets / max(1e-9, now - self._since) / 1e6
            print(
                f"\r{self._verb} {octets / 1e6:,.1f} MB, {rate:,.1f} MB/s{extra}  ", end="", file=sys.stderr, flush=True
            )

    def end(self) -> float:
        """Leave the line; returns the seconds it took."""
        if self._is_on and self._shown:
            print(file=sys.stderr)
        return round(time.monotonic() - self._since, 3)


def _where(target: str, node: str | None) -> None:
    if node is None and "://" not in target:
        raise UsageError("a topology file has many nodes", remedy="say which one with --node NAME")


async def _send(target: str, node: str | None, stream: str | None, lines: bool, settle_s: float) -> dict[str, Any]:
    meter = Meter("sent")
    async with open_source(target, node=node, stream=stream) as source:
        for link in source.links:
            if link.sockets.buffers.complaint:
                warn(link.sockets.buffers.complaint)
        # Receivers that wait already hear the first SPMs now, and miss nothing from the first packet on.
        await trio.sleep(settle_s)
        octets = 0
        if lines:
            messages = await send_lines(source)
            octets = source.counters.odata_octets
        else:
            messages, octets = await _send_octets(source, meter)
        await source.flush()
        if sys.stderr.isatty():
            warn("all sent; serving repairs until nobody asks any more")
    return {
        "messages": messages,
        "octets": octets,
        "seconds": meter.end(),
        "tsi": tsi_text(source.tsi),
        "counters": source.counters.snapshot(),
    }


async def _send_octets(source: Source, meter: Meter) -> tuple[int, int]:
    """Send standard input in full packets; what does not fill one waits for more only while more is there already."""
    size = source.max_tpdu - DATA_HEADER_OCTETS
    messages = octets = 0
    rest = b""
    while chunk := await read_stdin():
        rest += chunk
        end = len(rest) - len(rest) % size if has_stdin() else len(rest)
        payloads = [rest[at : at + size] for at in range(0, end, size)]
        rest = rest[end:]
        for at in range(0, len(payloads), 64):
            await source.send_batch(payloads[at : at + 64])
        messages += len(payloads)
        octets += end
        meter.show(octets)
    if rest:
        await source.send(rest)
        messages, octets = messages + 1, octets + len(rest)
    return messages, octets


@click.command()
@click.argument("target")
@click.option("--node", help="Node of the topology file to send as.")
@click.option("--stream", help="Stream to send, if the node has several.")
@click.option("--lines", is_flag=True, help="One message per line, instead of octets as they come.")
@click.option(
    "--settle", default="500ms", show_default=True, help="Announce the stream for this long before the first message."
)
@command
def send(target: str, node: str | None, stream: str | None, lines: bool, settle: str, as_json: bool) -> None:
    """Publish standard input to TARGET, a topology file or an address.

    \b
    pgm send tree.toml --node exchange < data
    tail -f log | pgm send --lines 'pgm://239.192.0.1:3056?interface=lo&data_port=7500&address=127.0.0.10'
    """
    _where(target, node)
    account = trio.run(_send, target, node, stream, lines, parse_duration(settle) / 1e9)
    if as_json:
        print_json(account)
    else:
        warn(f"{account['messages']:,} messages, {account['octets']:,} octets in {account['seconds']} s")


@attrs.define
class _Reception:
    lines: bool
    keeps_on: bool
    meter: Meter = attrs.field(factory=lambda: Meter("received"))
    octets: int = 0
    messages: int = 0
    lost: int = 0
    open: set[bytes] = attrs.field(factory=set)
    has_closed: bool = False

    def take(self, item: BatchItem) -> bool:
        """Write or tell; returns whether to go on."""
        if isinstance(item, Batch):
            return self._write(item)
        session = tsi_text(item.tsi)
        if isinstance(item, Opened):
            self.open.add(item.tsi)
            warn(f"session {session} {'goes on' if item.resumed else 'begins'} at sqn {item.first}, from {item.peer}")
        elif isinstance(item, Lost):
            self.lost += item.count
            warn(f"session {session} lost sqns {item.first} to {item.first + item.count - 1}: {item.cause.value}")
        elif isinstance(item, Closed):
            warn(f"session {session} ends at sqn {item.next_sqn}: {item.cause.value}")
            if item.cause is not CloseCause.SILENT:
                self.open.discard(item.tsi)
                self.has_closed = True
        return self.keeps_on or not self.has_closed or bool(self.open)

    def _write(self, batch: Batch) -> bool:
        self.messages += len(batch)
        self.octets += batch.payloads.size
        if self.lines:
            sys.stdout.buffer.write(b"".join(payload + b"\n" for payload in batch))
        else:
            sys.stdout.buffer.write(batch.payloads.tobytes())
        sys.stdout.buffer.flush()
        self.meter.show(self.octets, f", {self.lost:,} lost" if self.lost else "")
        return True


async def _receive(
    target: str, node: str | None, stream: str | None, reception: _Reception, wait_s: float
) -> dict[str, Any]:
    async with open_receiver(target, node=node, stream=stream) as receiver:
        for link in receiver.links:
            if link.sockets.buffers.complaint:
                warn(link.sockets.buffers.complaint)
        await _first(receiver, reception, wait_s)
        async for item in receiver.batches():
            # Standard output may be slow; the protocol goes on while it is.
            if not await trio.to_thread.run_sync(reception.take, item):
                break
        return {
            "messages": reception.messages,
            "octets": reception.octets,
            "lost": reception.lost,
            "seconds": reception.meter.end(),
            "counters": receiver.counters.snapshot(),
        }


async def _first(receiver: Receiver, reception: _Reception, wait_s: float) -> None:
    """Wait for a sign of a source. Raises `ProcessError` when none comes."""
    item = await receiver.next_batch(wait_s)
    if item is not None:
        reception.take(item)
    elif not receiver.known_sources:
        link = receiver.links[0]
        raise ProcessError(
            f"no source was heard on {link.plan.group}:{link.plan.port} ({link.sockets.interface.name}) in {wait_s:g} s",
            remedy="start the source, or check group, port and interface; --wait 1h waits longer",
        )


@click.command()
@click.argument("target")
@click.option("--node", help="Node of the topology file to receive as.")
@click.option("--stream", help="Stream to take; all of the node without it.")
@click.option("--lines", is_flag=True, help="Write a newline behind every message.")
@click.option("--follow", is_flag=True, help="Go on when a stream ends, for the next source.")
@click.option("--wait", default="60s", show_default=True, help="Give up when no source is heard for this long.")
@command
def recv(
    target: str, node: str | None, stream: str | None, lines: bool, follow: bool, wait: str, as_json: bool
) -> None:
    """Write what is received from TARGET, a topology file or an address, to standard output.

    Ends with the stream; exits with 1 if anything of it was lost. Openings, losses and endings go to standard
    error, and so does the account with --json.

    \b
    pgm recv tree.toml --node desk-7 > data
    pgm recv --lines 'pgm://239.192.0.1:3056?interface=lo&data_port=7500'
    """
    _where(target, node)
    reception = _Reception(lines, follow)
    account = trio.run(_receive, target, node, stream, reception, parse_duration(wait) / 1e9)
    if as_json:
        import json

        print(json.dumps(account), file=sys.stderr)
    else:
        warn(f"{account['messages']:,} messages, {account['octets']:,} octets, {account['lost']:,} lost")
    if account["lost"]:
        sys.exit(EXIT_FAILED)
