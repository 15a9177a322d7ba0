"""`pgm send` and `pgm recv`: a stream as a pipe, or files and folders (`deploy.stream.files`).

Without `--lines` standard input is sent octet by octet as it comes, cut into messages of packet size at most, and
received octets are written as they are: what comes out is what went in.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, get_args

import attrs
import click
import trio

from deploy.node.supervisor import heed_signals
from deploy.stream.files import FileWish, receive_files
from deploy.stream.formats import FORMATS, writer_of
from deploy.stream.receive_output import ReceiveOutput
from deploy.terminal.exit_codes import EXIT_FAILED
from deploy.terminal.output import data_command, print_json, warn
from deploy.terminal.target import require_node
from pgm.errors import ProcessError, UsageError
from pgm.net.driver.nurseries import open_plain_nursery
from pgm.net.endpoint.loss_policies import LossError, OnLoss, Slow
from pgm.net.endpoint.open import open_receiver
from pgm.net.endpoint.receiver import Receiver
from pgm.net.framing.items import Batch, BatchItem, MultipartBatch
from pgm.net.framing.packed_batch import PackedBatch
from pgm.units import parse_duration

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


async def _receive(target: str, wish: _Wish, reception: ReceiveOutput) -> None:
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


async def _first(receiver: Receiver, reception: ReceiveOutput, wait_s: float) -> None:
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
    reception = ReceiveOutput(form, follow, writer_of(form))
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
