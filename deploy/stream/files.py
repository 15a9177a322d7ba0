"""Transfer of files and folders with a progress bar: `pgm send --file` and `--folder`, `pgm recv --into`."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs
import trio

from deploy.terminal.event_log import EventPrinter
from deploy.terminal.log import log
from pgm.core.effects import CloseCause
from pgm.errors import ProcessError, UsageError
from pgm.files.receiving import FileReceiver, Progress
from pgm.files.sending import send
from pgm.net.endpoint.open import open_receiver, open_source, resolve
from pgm.net.endpoint.receiver import Receiver
from pgm.net.framing.items import BatchItem
from pgm.net.link.link import Link
from pgm.topology.node_plan import NodePlan, Role
from pgm.wire.formats import tsi_text


@attrs.frozen
class FileOffer:
    """Files and folders to send. `receivers` is the expected number of receivers; 0 means that it is unknown."""

    files: tuple[Path, ...]
    folders: tuple[Path, ...]
    receivers: int = 0
    resume: bool = False


def complain(links: Sequence[Link]) -> None:
    """Warn of socket buffers that are smaller than requested."""
    for link in links:
        if link.sockets.buffers.complaint:
            log("rcvbuf", f"segment {link.plan.name}: {link.sockets.buffers.complaint}")


def tell_protection(plan: NodePlan) -> None:
    """Log the protection of a node's streams, if one of them has some."""
    if plan.protection_text:
        log("ready", f"{plan.role.value} {plan.name} runs{plan.protection_text}")


async def first_item(receiver: Receiver, wait_s: float) -> BatchItem | None:
    """Return the first item, or None from a silent source. Raises `ProcessError` if no source is heard."""
    item = await receiver.next_batch(wait_s)
    if item is None and not receiver.known_sources:
        link = receiver.links[0]
        raise ProcessError(
            f"no source was heard on {link.plan.where} ({link.sockets.interface.name}) in {wait_s:g} s",
            remedy="start the source, or check group, port and interface; --wait 1h waits longer",
        )
    return item


@contextmanager
def progress_bar() -> Iterator[Progress]:
    """Yield a function that updates a progress bar on a terminal. The function does nothing if there is no terminal."""
    if not sys.stderr.isatty():
        yield lambda _task, _done, _total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn, TransferSpeedColumn
    from rich.progress import Progress as Bars

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Bars(*columns, console=Console(stderr=True), transient=True) as bars:
        task, shown = bars.add_task("waiting", total=None), "waiting"

        def show(description: str, done: int, total: int) -> None:
            nonlocal shown
            if description != shown:
                shown = description
                bars.reset(task, description=description)
            bars.update(task, completed=done, total=total or None)

        yield show


async def send_files(
    target: str, node: str | None, stream: str | None, offer: FileOffer, settle_s: float
) -> dict[str, Any]:
    """Send files and folders, and return the account. Raises `TopologyError`, `UsageError`, `TransportError`."""
    began = trio.current_time()
    gc.freeze()  # saves repeated collections over the imported modules, which stay in memory anyway
    events = EventPrinter()
    plan = resolve(target, node, Role.SOURCE, {})
    async with open_source(plan, stream=stream, on_notice=events.say, answer="if-free") as source:
        complain(source.links)
        tell_protection(plan)
        # Receivers that already wait get the first SPMs during this time, and can then detect the loss of the first packet.
        with trio.move_on_after(settle_s):
            if offer.receivers and source.is_acked:
                await source.joined(offer.receivers)
            else:
                await trio.sleep_forever()
        with progress_bar() as show:
            account = await send(
                source,
                files=offer.files,
                folders=offer.folders,
                receivers=offer.receivers,
                resume=offer.resume,
                progress=show,
            )
        for path in account["skipped"]:
            log("skipped", f"{path} was not sent, because it is a link or a device")
        account["seconds"] = round(trio.current_time() - began, 3)
        account["tsi"] = tsi_text(source.tsi)
    account["events"] = events.rows()
    account["counters"] = source.counters.snapshot()
    return account


def print_sent(account: dict[str, Any]) -> None:
    """Print the account of a source of files as text."""
    answers = len(account["receivers"])
    log(
        "account",
        f"{account['files']:,} files, {account['octets']:,} octets in {account['seconds']} s and {account['rounds']} rounds; "
        f"{account['complete']} of {answers} receivers that answered have everything",
    )
    for name, receiver in account["receivers"].items():
        if receiver["state"] != "done":
            log("account", f"{name} lacks {receiver['missing']:,} octets ({receiver['state']})")
    if not answers:
        log("account", "no receiver has answered, so that deliveries are unknown")


@attrs.frozen
class FileDestination:
    """Options for received files."""

    into: Path
    replace: bool
    follow: bool


async def receive_files(
    target: str,
    node: str | None,
    stream: str | None,
    destination: FileDestination,
    wait_s: float,
    accounts: list[dict[str, Any]],
) -> None:
    """Receive files until the stream ends, or forever with `follow`. Append an account to `accounts` for each stream.

    Raises `ProcessError` if no source is heard for `wait_s` seconds.
    """
    gc.freeze()
    plan = resolve(target, node, Role.RECEIVER, {})
    async with open_receiver(plan, stream=stream, answer="if-free") as receiver:
        complain(receiver.links)
        tell_protection(plan)
        name = node or f"{os.uname().nodename}:{os.getpid()}"
        first = await first_item(receiver, wait_s)
        while True:
            with progress_bar() as show:
                files = FileReceiver(receiver, destination.into, who=name, replace=destination.replace, progress=show)
                try:
                    await files.run(first)
                finally:
                    account = {**files.intake.account(), "counters": receiver.counters.snapshot()}
                    account["cut_short"] = files.close_cause not in (None, CloseCause.FIN)
                    accounts.append(account)
            if files.unanswerable:
                log("unanswerable", f"the source's requests could not be answered: {files.unanswerable}")
            print_received(account, destination.into)
            first = None
            if not destination.follow:
                return


def print_received(account: dict[str, Any], into: Path) -> None:
    """Print the account of a receiver of files as text."""
    if account["done"]:
        kept = f", {account['octets_resumed']:,} of them from an earlier run" if account["octets_resumed"] else ""
        log("account", f"{account['files']:,} files, {account['octets']:,} octets in {into}{kept}")
        return
    if not account["octets"] and not account["files"]:
        log("account", "no files came: a source sends files with --file or --folder")
        return
    log(
        "account",
        f"{account['incomplete']:,} of {account['files']:,} files are incomplete; {into} keeps the received parts",
    )
    for name in account["incomplete_names"]:
        log("incomplete", name)
    log(
        "account",
        "run this command again while the source sends with --resume: the source then sends only the missing parts",
    )


def offer_of(
    files: tuple[str, ...], folders: tuple[str, ...], receivers: int, resume: bool, others: Mapping[str, object]
) -> FileOffer:
    """Return the offer for the options of `pgm send`. Raises `UsageError` if an option in `others` is set."""
    for option, value in others.items():
        if value:
            raise UsageError(f"{option} is for messages, not for files", remedy=f"leave out {option}")
    return FileOffer(tuple(map(Path, files)), tuple(map(Path, folders)), receivers, resume)
