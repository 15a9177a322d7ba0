"""`pgm send` and `pgm recv`: a stream as a pipe, or files and folders (`deploy.stream.files`).

Without `--lines` standard input is sent octet by octet as it comes, cut into messages of packet size at most, and
received octets are written as they are: what comes out is what went in.
"""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, get_args

import attrs
import click
import trio

from deploy.node.run import has_stdin, read_stdin, require_stdin, send_lines
from deploy.node.supervisor import heed_signals
from deploy.stream.files import FileOffer, FileWish, offer_of, receive_files, send_files, tell_sent
from deploy.stream.formats import FORMATS, CborSequence, arrow_messages, json_message, writer_of
from deploy.stream.receive_output import Meter, Reception
from deploy.terminal.event_log import Happenings
from deploy.terminal.exit_codes import EXIT_FAILED
from deploy.terminal.output import command, data_command, print_json, warn
from deploy.terminal.target import require_node
from pgm.errors import ProcessError, UsageError
from pgm.net.driver.nurseries import open_plain_nursery
from pgm.net.endpoint.loss_policies import LossError, OnLoss, Slow
from pgm.net.endpoint.open import open_receiver, open_source
from pgm.net.endpoint.receiver import Receiver
from pgm.net.endpoint.source import Source
from pgm.net.framing.items import Batch, BatchItem, MultipartBatch
from pgm.net.framing.packed_batch import PackedBatch
from pgm.units import parse_duration
from pgm.wire.formats import DATA_HEADER_OCTETS, tsi_text

_BATCH_OCTETS = 192  # of a packet of a stream with batches, that are not the message's: more with a long subject
_WRITE_OCTETS = 1 << 20  # received octets that are written at a time


def _form(form: str, lines: bool) -> str:
    """The format that both options say. Raises `UsageError` where they say two."""
    if lines and form not in ("octets", "lines"):
        raise UsageError(f"--lines and --format {form} are two formats", remedy="leave out one of them")
    return "lines" if lines else form


async def _until_signalled(task: Callable[..., Awaitable[Any]], *arguments: object) -> Any:
    """Run a task; a signal cancels it, so that it takes leave of its peers, and raises `SystemExit` with its code."""
    async with open_plain_nursery() as nursery:
        await nursery.start(heed_signals, trio.Event(), trio.Event())
        result = await task(*arguments)
        nursery.cancel_scope.cancel()
    return result


@attrs.frozen
class _Offer:
    """What is sent, and how."""

    form: str
    subject: str | None
    to: str | None


async def _send(target: str, node: str | None, stream: str | None, offer: _Offer, settle_s: float) -> dict[str, Any]:
    meter = Meter("sent")
    events = Happenings(meter.leave)
    async with open_source(target, node=node, stream=stream, on_notice=events.say, answer="if-free") as source:
        for link in source.links:
            if link.sockets.buffers.complaint:
                warn(link.sockets.buffers.complaint)
        # Receivers that wait already hear the first SPMs now, and miss nothing from the first packet on.
        await trio.sleep(settle_s)
        messages, octets = await _send_all(source, offer, meter)
        await source.flush()
        if sys.stderr.isatty():
            meter.leave()
            warn("all sent; serving repairs until nobody asks any more")
    return {
        "messages": messages,
        "octets": octets,
        "seconds": meter.end(),
        "tsi": tsi_text(source.tsi),
        "events": events.rows(),
        "counters": source.counters.snapshot(),
    }


async def _send_all(source: Source, offer: _Offer, meter: Meter) -> tuple[int, int]:
    """Send standard input; returns messages and octets. Raises `UsageError` for what is not in the format."""
    if offer.form in ("lines", "json"):
        convert = json_message if offer.form == "json" else None
        return await send_lines(source, convert, offer.subject, offer.to)
    if offer.form == "octets":
        return await _send_octets(source, offer, meter)
    messages = octets = 0
    async for found in _cbor() if offer.form == "cbor" else _arrow():
        for message in found:
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
    found = arrow_messages()
    while (message := await trio.to_thread.run_sync(next, found, None, abandon_on_cancel=True)) is not None:
        yield [message]


async def _send_octets(source: Source, offer: _Offer, meter: Meter) -> tuple[int, int]:
    """Send standard input in full packets; what does not fill one waits for more only while more is there already."""
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
@click.option("--node", help="Node of the topology file to send as.")
@click.option("--stream", help="Stream to send, if the node has several.")
@click.option(
    "--format",
    "form",
    type=click.Choice(FORMATS),
    default="octets",
    show_default=True,
    help="What is read: octets as they come, a message per line, a JSON value per line, a CBOR sequence, an Arrow IPC stream.",
)
@click.option("--lines", is_flag=True, help="The same as --format lines.")
@click.option("--subject", metavar="NAME", help="Subject of all messages, as in /nasdaq/ibm; for streams with batches.")
@click.option("--to", metavar="NODE", help="The one node that they are for; for streams with batches.")
@click.option("--file", "files", multiple=True, metavar="PATH", help="Send this file instead; may be said again.")
@click.option(
    "--folder", "folders", multiple=True, metavar="PATH", help="Send all that is in this folder, and its name."
)
@click.option(
    "--receivers",
    type=click.IntRange(0),
    default=0,
    metavar="N",
    help="Of files: end with 0 only if so many have everything.",
)
@click.option("--resume", is_flag=True, help="Of files: send only what receivers lack that were there before.")
@click.option(
    "--settle",
    default="500ms",
    show_default=True,
    metavar="DURATION",
    help="Announce the stream for this long before the first message.",
)
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
    """Publish standard input, or files, to TARGET, a topology file or an address, as one stream with a beginning and an end.

    \b
    pgm send tree.toml --node exchange < data
    tail -f log | pgm send --lines 'pgm://239.192.0.1:3056?interface=lo&data_port=7500&address=127.0.0.10'
    pgm send tree.toml --node exchange --format json --subject /a/b < quotes
    pgm send tree.toml --node exchange --folder photos --file big.iso

    After the last message it serves repairs until nobody has asked for a while, and ends with 0. Ctrl-C or SIGTERM cuts the stream
    short, which receivers are told.
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
        warn(f"{account['messages']:,} messages, {account['octets']:,} octets in {account['seconds']} s")


def _send_files(
    target: str, node: str | None, stream: str | None, offer: FileOffer, settle_s: float, as_json: bool
) -> None:
    account = trio.run(_until_signalled, send_files, target, node, stream, offer, settle_s)
    if as_json:
        print_json(account)
    else:
        tell_sent(account)
    sys.exit(EXIT_FAILED if account["incomplete"] else 0)


@attrs.frozen
class _Wish:
    """What is received, and what becomes of it when something goes wrong."""

    node: str | None
    stream: str | None
    subscribe: tuple[str, ...]
    subjects: tuple[str, ...]
    start: str | None
    wait_s: float
    on_loss: str
    slow: str


async def _receive(target: str, wish: _Wish, reception: Reception) -> None:
    prefixes = [os.fsencode(prefix) for prefix in wish.subscribe] or None
    async with open_receiver(
        target,
        node=wish.node,
        stream=wish.stream,
        subscribe=prefixes,
        subjects=wish.subjects or None,
        start=wish.start,
        on_notice=reception.notice,
        answer="if-free",
        on_loss=wish.on_loss,
        slow=wish.slow,
    ) as receiver:
        reception.counters = receiver.counters
        for link in receiver.links:
            if link.sockets.buffers.complaint:
                warn(link.sockets.buffers.complaint)
        await _first(receiver, reception, wish.wait_s)
        goes_on = True
        while goes_on:
            items, goes_on = await _waiting(receiver)
            # Standard output may be slow; the protocol goes on while it is, and Ctrl-C does not wait for it.
            takes_more = await trio.to_thread.run_sync(reception.take, items, abandon_on_cancel=True)
            goes_on = goes_on and takes_more


async def _waiting(receiver: Receiver) -> tuple[list[BatchItem], bool]:
    """What comes next and what waits behind it, and whether to go on: not behind a loss that is to be raised.

    Losses cut batches small, and changing threads for each would cost more than its octets.
    """
    items: list[BatchItem] = []
    octets, patience_s = 0, None
    try:
        while octets < _WRITE_OCTETS and (found := await receiver.next_batch(patience_s)) is not None:
            items.append(found)
            octets += _octets_of(found)
            patience_s = 0
    except LossError as error:
        return [*items, error.lost], False
    return items, bool(items)  # nothing comes from one that is closed


def _octets_of(item: BatchItem) -> int:
    if isinstance(item, Batch):
        return item.payloads.size
    if isinstance(item, MultipartBatch):
        return sum(len(part) for parts in item for part in parts)
    return item.octets.size if isinstance(item, PackedBatch) else 0


async def _first(receiver: Receiver, reception: Reception, wait_s: float) -> None:
    """Wait for a sign of a source. Raises `ProcessError` when none comes."""
    item = await receiver.next_batch(wait_s)
    if item is not None:
        reception.take([item])
    elif not receiver.known_sources:
        link = receiver.links[0]
        raise ProcessError(
            f"no source was heard on {link.plan.where} ({link.sockets.interface.name}) in {wait_s:g} s",
            remedy="start the source, or check group, port and interface; --wait 1h waits longer",
        )


@click.command()
@click.argument("target")
@click.option("--node", help="Node of the topology file to receive as.")
@click.option("--stream", help="Stream to take; all of the node without it.")
@click.option(
    "--format",
    "form",
    type=click.Choice(FORMATS),
    default="octets",
    show_default=True,
    help="What is written: octets, lines, or the values that were sent in JSON, CBOR or Arrow.",
)
@click.option("--lines", is_flag=True, help="The same as --format lines: a newline behind every message.")
@click.option(
    "--subject",
    "subjects",
    multiple=True,
    metavar="PATTERN",
    help="Only messages of subjects that match this, or another one named so: '/nasdaq/*', '/nasdaq/...'.",
)
@click.option(
    "--subscribe",
    multiple=True,
    metavar="PREFIX",
    help="With ZeroMQ's framing: only messages that begin with this, or another one named so.",
)
@click.option("--into", metavar="FOLDER", help="Take files and folders, and write them into this one.")
@click.option("--replace", is_flag=True, help="Of files: replace those that have the same names.")
@click.option("--follow", is_flag=True, help="Go on when a stream ends, for the next source.")
@click.option(
    "--from",
    "start",
    metavar="WHERE",
    help="Begin now, with the oldest that repairers hold, with last:1000 packets, last:30s, or at a sqn.",
)
@click.option(
    "--wait",
    default="60s",
    show_default=True,
    metavar="DURATION",
    help="Give up when no source is heard for this long.",
)
@click.option(
    "--on-loss",
    type=click.Choice(get_args(OnLoss)),
    default="report",
    show_default=True,
    help="At a loss: say so and go on, go on with the newest instead, or end.",
)
@click.option(
    "--slow",
    type=click.Choice(get_args(Slow)),
    default="block",
    show_default=True,
    help="When standard output is slower than the stream: keep what comes while there is room, lose the oldest, the newest, or end.",
)
@data_command
def recv(
    target: str,
    node: str | None,
    stream: str | None,
    form: str,
    lines: bool,
    subjects: tuple[str, ...],
    subscribe: tuple[str, ...],
    into: str | None,
    replace: bool,
    follow: bool,
    start: str | None,
    wait: str,
    on_loss: str,
    slow: str,
    as_json: bool,
) -> None:
    """Write what is received from TARGET, a topology file or an address, to standard output.

    \b
    pgm recv tree.toml --node desk-7 > data
    pgm recv --lines 'pgm://239.192.0.1:3056?interface=lo&data_port=7500' | grep ERROR
    pgm recv tree.toml --node desk-7 --into downloads
    pgm recv tree.toml --node desk-7 --slow drop-oldest --lines | show-what-is-new

    Openings, losses, endings and the account go to standard error. Ends with the stream; exits with 0 if all of it was written, with 1
    if anything was lost, the source cut it short or none was heard, with 130 after Ctrl-C.
    """
    require_node(target, node)
    wait_s = parse_duration(wait) / 1e9
    if into is not None or replace:
        others = lines or subjects or subscribe or start is not None
        if into is None or others or (form, on_loss, slow) != ("octets", "report", "block"):
            raise UsageError("files go into a folder, whole", remedy="say --into FOLDER, and nothing of messages")
        _receive_files(target, node, stream, FileWish(Path(into), replace, follow), wait_s, as_json)
        return
    if sys.stdout is None:
        raise UsageError("standard output is closed", remedy="send it somewhere: pgm recv ... > data")
    form = _form(form, lines)
    reception = Reception(form, follow, writer_of(form))
    code: Any = 0
    try:
        wish = _Wish(node, stream, subscribe, subjects, start, wait_s, on_loss, slow)
        trio.run(_until_signalled, _receive, target, wish, reception)
    except SystemExit as signalled:
        code = signalled.code  # Ctrl-C is the way to end --follow: the account is wanted all the same
    reception.end()
    account = reception.account()
    if as_json:
        print_json(account, sys.stderr)
    else:
        warn(f"{account['messages']:,} messages, {account['octets']:,} octets, {account['lost']:,} lost")
    sys.exit(code or (EXIT_FAILED if reception.lost or reception.cut_short or reception.unreadable else 0))


def _receive_files(
    target: str, node: str | None, stream: str | None, wish: FileWish, wait_s: float, as_json: bool
) -> None:
    accounts: list[dict[str, Any]] = []
    code: Any = 0
    try:
        trio.run(_until_signalled, receive_files, target, node, stream, wish, wait_s, accounts)
    except SystemExit as signalled:
        code = signalled.code
    for account in accounts if as_json else ():
        print_json(account, sys.stderr)
    sys.exit(code or (0 if accounts and all(account["done"] for account in accounts) else EXIT_FAILED))
