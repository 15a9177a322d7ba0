"""The command `pgm recv`: write a stream to standard output, or files into a folder (`deploy.stream.files`).

In the default format, received octets are written unchanged, so that the output equals the input of `pgm send`.
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

from deploy.stream.files import FileDestination, complain, first_item, receive_files, tell_protection
from deploy.stream.formats import FORMATS, writer_of
from deploy.stream.line_template import PLACEHOLDERS, LineTemplate
from deploy.stream.receive_output import ReceiveOutput
from deploy.terminal.completion import node_names
from deploy.terminal.exit_codes import EXIT_FAILED
from deploy.terminal.log import end_log, log, log_format
from deploy.terminal.options import option
from deploy.terminal.output import data_command, print_json
from deploy.terminal.target import require_node
from pgm.errors import UsageError
from pgm.net.control.signals import heed_signals
from pgm.net.driver.nurseries import open_plain_nursery
from pgm.net.endpoint.open import open_receiver, resolve
from pgm.net.endpoint.policies import LossError, OnLoss, Slow
from pgm.net.endpoint.receiver import Receiver
from pgm.net.framing.items import Batch, BatchItem, MultipartBatch
from pgm.net.framing.packed_batch import PackedBatch
from pgm.topology.node_plan import Role
from pgm.units import parse_duration

_WRITE_OCTETS = 1 << 20  # most octets of one write


_PLACEHOLDERS = ", ".join(f"{{{name}}}" for name in PLACEHOLDERS)


class _FormatChoice(click.Choice[str]):
    """A named format, or a text with placeholders."""

    def convert(self, value: str, param: click.Parameter | None, context: click.Context | None) -> str:
        """Return the format."""
        return value if "{" in value else super().convert(value, param, context)


def _form(form: str, lines: bool) -> str:
    """Return the format from --format and --lines. Raises `UsageError` if the two options name different formats."""
    if lines and form not in ("octets", "lines"):
        raise UsageError(f"--lines and --format {form} are two formats", remedy="leave out one of them")
    return "lines" if lines else form


async def _until_signalled(task: Callable[..., Awaitable[Any]], *arguments: object) -> Any:
    """Run a task until it ends or a signal cancels it. A cancelled task still closes its sessions in order.

    Raises `SystemExit` with the exit code of the signal.
    """
    async with open_plain_nursery() as nursery:
        await nursery.start(heed_signals)
        result = await task(*arguments)
        nursery.cancel_scope.cancel()
    return result


@attrs.frozen
class _ReceiveOptions:
    """Options of a receiver: the streams and messages to take, and the policies for losses and a slow output."""

    node: str | None
    stream: str | None
    subscribe: tuple[str, ...]
    subjects: tuple[str, ...]
    start: str | None
    durable: str | None
    archives: tuple[str, ...]
    wait_s: float
    on_loss: OnLoss
    slow: Slow


async def _receive(target: str, options: _ReceiveOptions, reception: ReceiveOutput) -> None:
    prefixes = [os.fsencode(prefix) for prefix in options.subscribe] or None
    plan = resolve(target, options.node, Role.RECEIVER, {})
    async with open_receiver(
        plan,
        stream=options.stream,
        subscribe=prefixes,
        subjects=options.subjects or None,
        start=options.start,
        durable=options.durable,
        archive=options.archives or None,
        on_notice=reception.notice,
        answer="if-free",
        on_loss=options.on_loss,
        slow=options.slow,
        ack="manual",
    ) as receiver:
        reception.counters = receiver.counters
        complain(receiver.links)
        tell_protection(plan)
        item = await first_item(receiver, options.wait_s)
        if item is not None:
            reception.take([item])
            receiver.cover([item])
        goes_on = True
        while goes_on:
            items, goes_on = await _next_items(receiver)
            # Standard output may be slow: in a thread, a blocked write stops neither the protocol nor Ctrl-C.
            takes_more = await trio.to_thread.run_sync(reception.take, items, abandon_on_cancel=True)
            receiver.cover(items)
            goes_on = goes_on and takes_more


async def _next_items(receiver: Receiver) -> tuple[list[BatchItem], bool]:
    """Wait for an item, take the items queued after it, and return all with whether to go on.

    Reception ends at a loss under `--on-loss raise`. Losses make batches small; a change of threads for each small batch
    would cost more than its write.
    """
    items: list[BatchItem] = []
    octets, timeout_s = 0, None
    try:
        while octets < _WRITE_OCTETS and (item := await receiver.next_batch(timeout_s)) is not None:
            items.append(item)
            octets += _octets_of(item)
            timeout_s = 0
    except LossError as error:
        return [*items, error.lost], False
    return items, bool(items)  # a closed receiver returns no items


def _octets_of(item: BatchItem) -> int:
    if isinstance(item, Batch):
        return item.payloads.size
    if isinstance(item, MultipartBatch):
        return sum(len(part) for parts in item for part in parts)
    return item.octets.size if isinstance(item, PackedBatch) else 0


@click.command()
@click.argument("target")
@click.option("--node", shell_complete=node_names, help="Node of the topology file to receive as.")
@click.option("--stream", help="Stream to receive; by default all streams of the node.")
@option(
    "--format",
    "form",
    type=_FormatChoice(FORMATS),
    default="octets",
    help="Output format: octets, lines, or the sent values as JSON, CBOR or Arrow. Or a text for each message, such as "
    f"'{{source}} {{subject}} {{payload}}', with the placeholders {_PLACEHOLDERS}.",
)
@click.option("--lines", is_flag=True, help="The same as --format lines: a newline after every message.")
@click.option(
    "--subject",
    "subjects",
    multiple=True,
    metavar="PATTERN",
    help="Only messages with a matching subject: '/nasdaq/*', '/nasdaq/...'; may be repeated.",
)
@click.option(
    "--subscribe",
    multiple=True,
    metavar="PREFIX",
    help="With ZeroMQ's framing: only messages that begin with this prefix; may be repeated.",
)
@click.option("--into", metavar="FOLDER", help="Receive files and folders, and write them into this folder.")
@click.option("--replace", is_flag=True, help="With --into: replace files of the same names.")
@click.option("--follow", is_flag=True, help="Wait for the next source when a stream ends.")
@click.option(
    "--from",
    "start",
    metavar="WHERE",
    help="Start at now, oldest (the oldest packet that repairers hold), last:1000 packets, last:30s, or a sqn. "
    "Or with a snapshot: the state of the source's application comes first, like a message.",
)
@click.option(
    "--durable",
    metavar="NAME",
    help="Remember under this name what was written to standard output, and continue there after any end of the command.",
)
@click.option(
    "--archive",
    "archives",
    multiple=True,
    metavar="HOST:PORT",
    help="With --durable: a range service (pgm serve) for what no repairer holds; may be repeated.",
)
@option("--wait", default="60s", metavar="DURATION", help="End with an error if no source is heard for this long.")
@option(
    "--on-loss",
    type=click.Choice(get_args(OnLoss)),
    default="report",
    help="At a loss: report it and go on, report it and skip to the newest data, or end.",
)
@option(
    "--slow",
    type=click.Choice(get_args(Slow)),
    default="block",
    help="If standard output is slower than the stream: wait while buffers have room, drop the oldest data, drop the newest, or end.",
)
@log_format
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
    durable: str | None,
    archives: tuple[str, ...],
    wait: str,
    on_loss: OnLoss,
    slow: Slow,
    as_json: bool,
) -> None:
    """Receive a stream from TARGET, a topology file or an address, and write it to standard output.

    \b
    pgm recv tree.toml --node desk-7 > data
    pgm recv --lines 'pgm://239.192.0.1:3056?interface=lo&data_port=7500' | grep ERROR
    pgm recv tree.toml --node desk-7 --into downloads
    pgm recv tree.toml --node desk-7 --slow drop-oldest --lines | show-newest

    Openings, losses, closings and the account go to standard error. The command ends with the stream. Exits with 0 if the whole stream
    was written. Exits with 1 if messages were lost, the source reset the stream or no source was heard. Exits with 130 after Ctrl-C.
    """
    require_node(target, node)
    wait_s = parse_duration(wait) / 1e9
    if into is not None or replace:
        others = lines or subjects or subscribe or start is not None or durable is not None
        if into is None or others or (form, on_loss, slow) != ("octets", "report", "block"):
            raise UsageError(
                "--into and --replace exclude the options for messages",
                remedy="use --into FOLDER without these options",
            )
        _receive_files(target, node, stream, FileDestination(Path(into), replace, follow), wait_s, as_json)
        return
    if sys.stdout is None:
        raise UsageError("standard output is closed", remedy="redirect it: pgm recv ... > data")
    form = _form(form, lines)
    template = LineTemplate.of(form) if "{" in form else None
    reception = ReceiveOutput(form, follow, writer_of(form), template)
    code: Any = 0
    try:
        options = _ReceiveOptions(node, stream, subscribe, subjects, start, durable, archives, wait_s, on_loss, slow)
        trio.run(_until_signalled, _receive, target, options, reception)
    except SystemExit as signalled:
        code = signalled.code  # Ctrl-C is the normal end of --follow, and the account must still be printed
    reception.end()
    account = reception.account()
    if as_json:
        end_log()
        print_json(account, sys.stderr)
    else:
        log("account", f"{account['messages']:,} messages, {account['octets']:,} octets, {account['lost']:,} lost")
    sys.exit(code or (EXIT_FAILED if reception.has_flaws else 0))


def _receive_files(
    target: str, node: str | None, stream: str | None, destination: FileDestination, wait_s: float, as_json: bool
) -> None:
    accounts: list[dict[str, Any]] = []
    code: Any = 0
    try:
        trio.run(_until_signalled, receive_files, target, node, stream, destination, wait_s, accounts)
    except SystemExit as signalled:
        code = signalled.code
    end_log()
    for account in accounts if as_json else ():
        print_json(account, sys.stderr)
    sys.exit(code or (0 if accounts and all(account["done"] for account in accounts) else EXIT_FAILED))
