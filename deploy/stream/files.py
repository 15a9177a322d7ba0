"""`pgm send --file` and `--folder`, `pgm recv --into`: whole files and folders, with a bar that says how far they are."""

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
from deploy.terminal.output import warn
from pgm.core.effects import CloseCause
from pgm.errors import ProcessError, UsageError
from pgm.files.receiving import FileReceiver, Progress
from pgm.files.sending import send
from pgm.net.endpoint.open import open_receiver, open_source
from pgm.net.link.link import Link
from pgm.wire.formats import tsi_text


@attrs.frozen
class FileOffer:
    """What is sent, and to how many; `receivers` 0: nobody knows."""

    files: tuple[Path, ...]
    folders: tuple[Path, ...]
    receivers: int = 0
    resume: bool = False


def _complain(links: Sequence[Link]) -> None:
    for link in links:
        if link.sockets.buffers.complaint:
            warn(link.sockets.buffers.complaint)


@contextmanager
def progress_bar() -> Iterator[Progress]:
    """A bar on a terminal; elsewhere nothing."""
    if not sys.stderr.isatty():
        yield lambda _what, _done, _total: None
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

        def show(what: str, done: int, total: int) -> None:
            nonlocal shown
            if what != shown:
                shown = what
                bars.reset(task, description=what)
            bars.update(task, completed=done, total=total or None)

        yield show


async def send_files(
    target: str, node: str | None, stream: str | None, offer: FileOffer, settle_s: float
) -> dict[str, Any]:
    """Send files and folders; returns the account."""
    began = trio.current_time()
    gc.freeze()  # what was loaded stays: looking through it again and again takes a twentieth of the time
    events = EventPrinter()
    async with open_source(target, node=node, stream=stream, on_notice=events.say, answer="if-free") as source:
        _complain(source.links)
        # Receivers that wait already hear the first SPMs now, and miss nothing from the first packet on.
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
            warn(f"{path} is a link or a device, and was not sent")
        account["seconds"] = round(trio.current_time() - began, 3)
        account["tsi"] = tsi_text(source.tsi)
    account["events"] = events.rows()
    account["counters"] = source.counters.snapshot()
    return account


def tell_sent(account: dict[str, Any]) -> None:
    """The account of a source in words."""
    many = len(account["receivers"])
    warn(
        f"{account['files']:,} files, {account['octets']:,} octets in {account['seconds']} s and {account['rounds']} rounds; "
        f"{account['complete']} of {many} receivers that answered have everything"
    )
    for who, one in account["receivers"].items():
        if one["state"] != "done":
            warn(f"{who} lacks {one['missing']:,} octets ({one['state']})")
    if not many:
        warn("nobody has answered: who received is not known")


@attrs.frozen
class FileWish:
    """Where received files go."""

    into: Path
    replace: bool
    follow: bool


async def receive_files(
    target: str, node: str | None, stream: str | None, wish: FileWish, wait_s: float, accounts: list[dict[str, Any]]
) -> None:
    """Receive files until the stream ends, or with `follow` for ever; adds an account for each stream."""
    gc.freeze()
    async with open_receiver(target, node=node, stream=stream, answer="if-free") as receiver:
        _complain(receiver.links)
        who = node or f"{os.uname().nodename}:{os.getpid()}"
        first = await receiver.next_batch(wait_s)
        if first is None and not receiver.known_sources:
            link = receiver.links[0]
            raise ProcessError(
                f"no source was heard on {link.plan.where} ({link.sockets.interface.name}) in {wait_s:g} s",
                remedy="start the source, or check group, port and interface; --wait 1h waits longer",
            )
        while True:
            with progress_bar() as show:
                files = FileReceiver(receiver, wish.into, who=who, replace=wish.replace, progress=show)
                try:
                    await files.run(first)
                finally:
                    account = {**files.intake.account(), "counters": receiver.counters.snapshot()}
                    account["cut_short"] = files.close_cause not in (None, CloseCause.FIN)
                    accounts.append(account)
            if files.unanswerable:
                warn(f"questions of the source could not be answered: {files.unanswerable}")
            tell_received(account, wish.into)
            first = None
            if not wish.follow:
                return


def tell_received(account: dict[str, Any], into: Path) -> None:
    """The account of a receiver in words."""
    if account["done"]:
        kept = f", {account['octets_resumed']:,} of them from before" if account["octets_resumed"] else ""
        warn(f"{account['files']:,} files, {account['octets']:,} octets in {into}{kept}")
        return
    if not account["octets"] and not account["files"]:
        warn("no files came: a source sends them with --file or --folder")
        return
    warn(f"{account['incomplete']:,} of {account['files']:,} files are not complete, and kept in {into}")
    for name in account["incomplete_names"]:
        warn(f"  {name}")
    warn("receive again while the source sends them with --resume: only what is lacking will be sent")


def offer_of(
    files: tuple[str, ...], folders: tuple[str, ...], receivers: int, resume: bool, others: Mapping[str, object]
) -> FileOffer:
    """What the options of `pgm send` ask for. Raises `UsageError` where they do not fit together."""
    for option, value in others.items():
        if value:
            raise UsageError(f"{option} is for messages, not for files", remedy=f"leave out {option}")
    return FileOffer(tuple(map(Path, files)), tuple(map(Path, folders)), receivers, resume)
