"""The command `pgm send`: publish standard input or files as a stream.

In the default format, standard input is sent octet by octet, cut into messages of at most packet size.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from typing import Any

import attrs
import click
import trio

from deploy.node.run import has_stdin, read_stdin, require_stdin, send_lines
from deploy.stream.files import FileOffer, complain, offer_of, print_sent, send_files, tell_protection
from deploy.stream.formats import FORMATS, CborSequence, arrow_messages, json_message
from deploy.stream.receive_output import ProgressLine
from deploy.stream.recv import _form, _until_signalled
from deploy.terminal.completion import node_names
from deploy.terminal.event_log import EventPrinter
from deploy.terminal.exit_codes import EXIT_FAILED
from deploy.terminal.log import log, log_format
from deploy.terminal.options import option
from deploy.terminal.output import command, print_json
from deploy.terminal.target import require_node
from pgm.net.endpoint.open import open_source, resolve
from pgm.net.endpoint.source import Source
from pgm.topology.node_plan import Role
from pgm.units import parse_duration
from pgm.wire.formats import DATA_HEADER_OCTETS, tsi_text

_BATCH_OCTETS = 192  # overhead in a packet of a stream with batches; a long subject needs more


@attrs.frozen
class _Offer:
    """Format, subject and destination of the messages to send."""

    form: str
    subject: str | None
    to: str | None


async def _send(target: str, node: str | None, stream: str | None, offer: _Offer, settle_s: float) -> dict[str, Any]:
    meter = ProgressLine("sent")
    events = EventPrinter(meter.leave)
    plan = resolve(target, node, Role.SOURCE, {})
    async with open_source(plan, stream=stream, on_notice=events.say, answer="if-free") as source:
        complain(source.links)
        tell_protection(plan)
        # Receivers that already wait get the first SPMs during this time, and can then detect the loss of the first packet.
        await trio.sleep(settle_s)
        messages, octets = await _send_all(source, offer, meter)
        await source.flush()
        if sys.stderr.isatty():
            meter.leave()
            log("serving", "all messages are sent; serving repairs until no more NAKs come")
    return {
        "messages": messages,
        "octets": octets,
        "seconds": meter.end(),
        "tsi": tsi_text(source.tsi),
        "events": events.rows(),
        "counters": source.counters.snapshot(),
    }


async def _send_all(source: Source, offer: _Offer, meter: ProgressLine) -> tuple[int, int]:
    """Send standard input and return the counts of messages and octets. Raises `UsageError` for input in another format."""
    if offer.form in ("lines", "json"):
        convert = json_message if offer.form == "json" else None
        return await send_lines(source, convert, offer.subject, offer.to)
    if offer.form == "octets":
        return await _send_octets(source, offer, meter)
    messages = octets = 0
    async for batch in _cbor() if offer.form == "cbor" else _arrow():
        for message in batch:
            await source.send(message, subject=offer.subject, to=offer.to)
            messages, octets = messages + 1, octets + len(message)
            meter.show(octets)
    return messages, octets


async def _cbor() -> AsyncIterator[list[bytes]]:
    sequence = CborSequence()
    while chunk := await read_stdin():
        yield sequence.add(chunk)
    sequence.end()


async def _arrow() -> AsyncIterator[list[bytes]]:
    source = arrow_messages()
    while (message := await trio.to_thread.run_sync(next, source, None, abandon_on_cancel=True)) is not None:
        yield [message]


async def _send_octets(source: Source, offer: _Offer, meter: ProgressLine) -> tuple[int, int]:
    """Send standard input in full packets. A partly filled packet waits only if more input is already available."""
    size = source.max_tpdu - DATA_HEADER_OCTETS - (_BATCH_OCTETS if source.has_batches else 0)
    messages = octets = 0
    rest = b""
    while chunk := await read_stdin():
        rest += chunk
        end = len(rest) - len(rest) % size if has_stdin() else len(rest)
        payloads = [rest[at : at + size] for at in range(0, end, size)]
        rest = rest[end:]
        for at in range(0, len(payloads), 64):
            await source.send_batch(payloads[at : at + 64], subject=offer.subject, to=offer.to)
        messages += len(payloads)
        octets += end
        meter.show(octets)
    if rest:
        await source.send(rest, subject=offer.subject, to=offer.to)
        messages, octets = messages + 1, octets + len(rest)
    return messages, octets


@click.command()
@click.argument("target")
@click.option("--node", shell_complete=node_names, help="Node of the topology file to send as.")
@click.option("--stream", help="Stream to send, if the node has several.")
@option(
    "--format",
    "form",
    type=click.Choice(FORMATS),
    default="octets",
    help="Input format: octets, a message per line, a JSON value per line, a CBOR sequence, or an Arrow IPC stream.",
)
@click.option("--lines", is_flag=True, help="The same as --format lines.")
@click.option("--subject", metavar="NAME", help="Subject of all messages, as in /nasdaq/ibm; for streams with batches.")
@click.option("--to", metavar="NODE", help="Only receiver of the messages; for streams with batches.")
@click.option(
    "--file", "files", multiple=True, metavar="PATH", help="Send this file instead of standard input; may be repeated."
)
@click.option(
    "--folder", "folders", multiple=True, metavar="PATH", help="Send this folder with its contents; may be repeated."
)
@click.option(
    "--receivers",
    type=click.IntRange(0),
    default=0,
    metavar="N",
    help="With files: exit with 0 only if N receivers have everything.",
)
@click.option("--resume", is_flag=True, help="With files: send only the parts that receivers of an earlier run lack.")
@option(
    "--settle", default="500ms", metavar="DURATION", help="Announce the stream for this long before the first message."
)
@log_format
@command
def send(
    target: str,
    node: str | None,
    stream: str | None,
    form: str,
    lines: bool,
    subject: str | None,
    to: str | None,
    files: tuple[str, ...],
    folders: tuple[str, ...],
    receivers: int,
    resume: bool,
    settle: str,
    as_json: bool,
) -> None:
    """Publish standard input, or files, to TARGET, a topology file or an address, as one complete stream.

    \b
    pgm send tree.toml --node exchange < data
    tail -f log | pgm send --lines 'pgm://239.192.0.1:3056?interface=lo&data_port=7500&address=127.0.0.10'
    pgm send tree.toml --node exchange --format json --subject /a/b < quotes
    pgm send tree.toml --node exchange --folder photos --file big.iso

    After the last message the command serves repairs until no NAK has come for a while, and exits with 0. Ctrl-C or SIGTERM resets the
    stream, and receivers get the reset.
    """
    require_node(target, node)
    settle_s = parse_duration(settle) / 1e9
    if files or folders or receivers or resume:
        others = {"--lines": lines, "--subject": subject, "--to": to, "--format": form != "octets"}
        _send_files(target, node, stream, offer_of(files, folders, receivers, resume, others), settle_s, as_json)
        return
    require_stdin()
    offer = _Offer(_form(form, lines), subject, to)
    account = trio.run(_until_signalled, _send, target, node, stream, offer, settle_s)
    if as_json:
        print_json(account)
    else:
        log("account", f"{account['messages']:,} messages, {account['octets']:,} octets in {account['seconds']} s")


def _send_files(
    target: str, node: str | None, stream: str | None, offer: FileOffer, settle_s: float, as_json: bool
) -> None:
    account = trio.run(_until_signalled, send_files, target, node, stream, offer, settle_s)
    if as_json:
        print_json(account)
    else:
        print_sent(account)
    sys.exit(EXIT_FAILED if account["incomplete"] else 0)
