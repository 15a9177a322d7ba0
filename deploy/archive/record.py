"""The command `pgm record`: a receiver that writes its messages into an archive."""

from __future__ import annotations

import random
import resource
import sys
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import attrs
import click
import trio

from deploy.node.supervisor import end_with_supervisor
from deploy.stream.receive_output import ProgressLine
from deploy.terminal.completion import node_names
from deploy.terminal.event_log import EventPrinter
from deploy.terminal.exit_codes import EXIT_FAILED
from deploy.terminal.log import log, log_format, name_log
from deploy.terminal.options import PATH, loss_seed
from deploy.terminal.output import command, print_json
from deploy.terminal.target import require_node
from pgm.archive.recording.node_recording import recording
from pgm.archive.recording.recorder import Recorder
from pgm.archive.service.node_service import serving
from pgm.core.effects import (
    NOTHING,
    CloseCause,
    Closed,
    Conflict,
    Deliver,
    Effect,
    Effects,
    Forged,
    LossCause,
    Lost,
    Notice,
    Opened,
)
from pgm.core.receiver.receiver import ReceiverCore
from pgm.errors import UsageError
from pgm.net.control.operated_process import start_operating
from pgm.net.control.status_socket import snapshot_of
from pgm.net.core_factory import receiver_core, stream_of
from pgm.net.driver.nurseries import open_plain_nursery
from pgm.net.driver.trio_driver import TrioDriver
from pgm.net.driver.trio_reads import TrioReads
from pgm.net.durable.archive_memory import ArchiveMemory
from pgm.net.endpoint.open import driven, receiving_driver, resolve
from pgm.net.keys.control_keys import with_codes
from pgm.net.keys.kept_companions import keeping_companions
from pgm.net.keys.stream_signatures import signers_of
from pgm.net.link.node_links import open_links
from pgm.net.link.reader import receiving_arena
from pgm.telemetry.snapshot import Snapshot
from pgm.topology.node_plan import NodePlan, Role

_SHOW_S = 0.5  # interval between two updates of the progress line
_EXTRA = "pip install 'pgm-repair-network[arrow]'"


def need_arrow() -> None:
    """Raise `UsageError` if pyarrow is not installed."""
    try:
        import pyarrow.flight  # noqa: F401
    except ImportError:
        raise UsageError("archives need pyarrow", remedy=_EXTRA) from None


@attrs.define(eq=False)
class _RecordingApplication:
    """Application of a recording receiver, which accepts all packets at once. The recorder's queue is the bound."""

    core: ReceiverCore
    recorder: Recorder
    memory: ArchiveMemory
    ends_when_closed: bool
    events: EventPrinter
    packets: int = 0
    lost: int = 0
    has_ended: trio.Event = attrs.field(factory=trio.Event)
    _open: set[bytes] = attrs.field(factory=set)
    _freed: int = 0

    def take(self, effect: Effect) -> None:
        self.memory.take(effect)
        if isinstance(effect, Deliver):
            self._freed += effect.run.octets
            self.packets += effect.run.count
        elif isinstance(effect, (Notice, Conflict, Forged)):
            self.events.say(effect)
        elif isinstance(effect, (Opened, Lost, Closed)):
            self.events.say(effect)
            self._follow(effect)

    def _follow(self, effect: Opened | Lost | Closed) -> None:
        if isinstance(effect, Lost):
            self.lost += effect.count
        elif isinstance(effect, Opened):
            self._open.add(effect.tsi)
        elif effect.cause is not CloseCause.SILENT:
            self._open.discard(effect.tsi)
            if self.ends_when_closed and not self._open:
                self.has_ended.set()

    def after(self) -> Effects:
        freed, self._freed = self._freed, 0
        return self.core.grant(freed) if freed else NOTHING


async def record_node(
    plan: NodePlan, stream: str | None, directory: Path, *, until_closed: bool, seed: str | None
) -> dict[str, Any]:
    """Record until a signal or the end of all streams; return the account. Raises `ArchiveError`, `TransportError`."""
    streams = plan.streams if stream is None else (stream_of(plan, stream),)
    links = open_links(plan, receiving_arena(plan.parameters), seed, has_single_consumer=True)
    since = time.monotonic()
    meter = ProgressLine("recorded")
    events = EventPrinter(meter.leave)
    async with AsyncExitStack() as stack:
        stack.enter_context(links.held())
        generator = random.Random(random.SystemRandom().random())
        signers = with_codes(signers_of(streams, plan), plan, streams)
        recorder = stack.enter_context(recording(plan, directory, lambda tsi: core.state_of(tsi), events.log))
        memory = ArchiveMemory(recorder)
        segments = [link.segment for link in links]
        kept = keeping_companions(signers, streams)
        core = receiver_core(plan, streams, segments, generator, starts=memory, signers=kept)
        recorder.counters = core.counters
        stack.enter_context(serving(plan, directory, events.log))
        application = _RecordingApplication(core, recorder, memory, until_closed, events)
        driver = receiving_driver(core, TrioReads(links), application, plan.parameters)
        driver.recent_events = events.recent
        await stack.enter_async_context(driven(driver, plan))
        stack.callback(lambda: driver.perform(core.leave(driver.now_ns())))
        snapshot = await _until_done(plan, driver, application, meter)
    meter.leave()
    snapshot["counters"] = core.counters.snapshot()  # includes the rows that were written at the end
    account = recorder.account()
    return {
        "node": plan.name,
        "role": plan.role.value,
        "segment": plan.upstream.name,
        "directory": str(directory),
        "packets": application.packets,
        "rows": account["rows"],
        "messages": account["messages"],
        "lost": account["lost"],
        "octets": account["octets"],
        "syncs": account["syncs"],
        "seconds": round(time.monotonic() - since, 3),
        "writer_cpu_s": round(sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2]), 3),
        "events": application.events.rows(),
        "snapshot": snapshot,
    }


async def _until_done(
    plan: NodePlan, driver: TrioDriver, application: _RecordingApplication, meter: ProgressLine
) -> Snapshot:
    started_ns = driver.now_ns()
    async with open_plain_nursery() as nursery:
        await start_operating(nursery, plan, driver, lambda: snapshot_of(plan, driver, started_ns), log)
        nursery.start_soon(_show_progress, application, meter)
        log("ready", f"{plan.name} is recording{plan.protection_text}")
        await application.has_ended.wait()
        nursery.cancel_scope.cancel()
    return snapshot_of(plan, driver, started_ns)


async def _show_progress(application: _RecordingApplication, meter: ProgressLine) -> None:
    while meter.is_on:
        account = application.recorder.account()
        waiting = f"{account['waiting_octets'] / 1e6:,.1f} MB queued"
        meter.show(account["octets"], f", {account['rows']:,} rows, {application.lost:,} lost, {waiting}")
        await trio.sleep(_SHOW_S)


def account_text(account: dict[str, Any]) -> str:
    """Return the account of a recording as one line of text."""
    lost = ", ".join(f"{count:,} lost ({cause})" for cause, count in sorted(account["lost"].items())) or "0 lost"
    return f"{account['rows']:,} rows, {account['octets'] / 1e6:,.1f} MB, {lost}"


@click.command()
@click.argument("file")
@click.option("--node", shell_complete=node_names, help="Record as this receiver of the file.")
@click.option("--stream", help="Record this stream; by default all streams of the node.")
@click.option("--dir", "directory", type=PATH, help="Directory of the archive; created if missing.")
@click.option("--until-closed", is_flag=True, help="End when every received stream has ended.")
@loss_seed
@log_format
@command
def record(
    file: str,
    node: str | None,
    stream: str | None,
    directory: Path | None,
    until_closed: bool,
    seed: str | None,
    as_json: bool,
) -> None:
    """Record the messages of a receiver of FILE, a topology file or an address, in an archive on disk.

    \b
    pgm record tree.toml --node desk-7 --dir /var/lib/pgm/desk-7
    pgm record tree.toml --node desk-7 --dir archive --until-closed --json
    pgm archive ls archive

    The archive has a row for each message and for each loss, in segments of Arrow record batches that survive SIGKILL. The format is
    described in docs/guide/archive.md. Sizes and ages are parameters of the topology (record_bytes and others). A repairer with
    record = { directory = "..." } in the topology records without this command.

    Ends on Ctrl-C or SIGTERM, or with --until-closed, after a sync of the written rows. Exits with 1 if a full or slow disk lost rows.
    """
    require_node(file, node)
    plan = resolve(file, node, Role.RECEIVER, {})
    archive_directory = directory or (Path(plan.record_directory) if plan.record_directory is not None else None)
    if archive_directory is None:
        raise UsageError(f"node {plan.name} has no directory to record into", remedy="name one with --dir DIRECTORY")
    name_log(plan.name)
    end_with_supervisor()

    async def run() -> dict[str, Any]:
        return await record_node(plan, stream, archive_directory, until_closed=until_closed, seed=seed)

    account = trio.run(run)
    if as_json:
        print_json(account)
    else:
        log("account", account_text(account))
    if account["lost"].get(LossCause.RECORDER.value):
        sys.exit(EXIT_FAILED)
