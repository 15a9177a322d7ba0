"""The command `pgm run`: one node of a topology, of any role, in the foreground."""

from __future__ import annotations

import os
import select
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import click
import trio

import aggregator.process
import repairer.process
from deploy.node.sample_messages import Account, generate, payloads_of
from deploy.node.sigterm import SIGTERM_HANDLER
from deploy.node.supervisor import end_with_supervisor
from deploy.terminal.completion import node_names
from deploy.terminal.event_log import EventPrinter
from deploy.terminal.log import log, log_format, name_log
from deploy.terminal.options import (
    generated_messages,
    loss_seed,
    message_size,
    option,
    tape_folder,
    telemetry_folder,
    topology_file,
)
from deploy.terminal.output import command, print_json, warn
from pgm.core.counters import Counters
from pgm.core.effects import CloseCause, Closed, Lost
from pgm.core.effects import Snapshot as ApplicationState
from pgm.errors import PayloadTooLarge, UsageError
from pgm.net.control.operated_process import start_operating
from pgm.net.control.status_socket import snapshot_of
from pgm.net.driver.nurseries import open_plain_nursery
from pgm.net.endpoint.open import open_receiver, open_source
from pgm.net.endpoint.receiver import Receiver
from pgm.net.endpoint.source import Source
from pgm.net.framing.items import StreamMark
from pgm.telemetry.snapshot import Snapshot
from pgm.topology.check import load_checked
from pgm.topology.node_plan import NodePlan, Role
from pgm.topology.plan import plan_node

_STDIN_CHUNK = 1 << 20
FAULTS = ("lost", "duplicates", "out_of_order", "damaged")  # of a receiver's account: 0 after a correct run


@attrs.frozen
class TestWork:
    """Test messages that a source sends or a receiver expects: `messages` of `size` octets, made from `data_seed`."""

    messages: int = 0
    size: int = 1400
    data_seed: int = 1
    hold: bool = False  # wait for a line on standard input before sending
    idle: bool = False  # a source sends nothing but SPMs
    until_closed: bool = False  # a receiver ends with the first stream that ends


@asynccontextmanager
async def _answering(plan: NodePlan, node: Source | Receiver) -> AsyncIterator[Callable[[], Snapshot]]:
    """Serve the status of a node during a block, which a signal ends. Yield a function that returns the snapshot."""
    started_ns = node.driver.now_ns()

    def snapshot() -> Snapshot:
        return snapshot_of(plan, node.driver, started_ns)

    async with open_plain_nursery() as nursery:
        await start_operating(nursery, plan, node.driver, snapshot, log)
        log("ready", f"{plan.role.value} {plan.name} runs{plan.protection_text}")
        yield snapshot
        SIGTERM_HANDLER.has_ended = True  # set before trio stops handling signals
        nursery.cancel_scope.cancel()


async def run_source(plan: NodePlan, stream: str | None, work: TestWork, seed: str | None) -> dict[str, Any]:
    """Send test messages, or the lines of standard input, and return the account. Raises `TransportError`.

    Without `stream` test messages go to every stream of the node.
    """
    started = trio.current_time()
    events = EventPrinter()
    is_given = stream is not None or not (work.messages or work.idle)
    names = [stream] if is_given else [one.name for one in plan.streams]
    async with AsyncExitStack() as stack:
        sources = [
            await stack.enter_async_context(open_source(plan, stream=name, seed=seed, on_notice=events.say))
            for name in names
        ]
        async with _answering(plan, sources[0]) as snapshot:
            if work.hold:
                await _stdin_line()
            async with open_plain_nursery() as nursery:
                for source in sources:
                    nursery.start_soon(_send, source, work)
        account: dict[str, Any] = {"node": plan.name, "role": "source"}
        account["counters"] = Counters.total(source.counters for source in sources).snapshot()
        account["seconds"] = round(trio.current_time() - started, 3)
        account["events"] = events.rows()
        account["snapshot"] = snapshot()
    return account


async def _send(source: Source, work: TestWork) -> None:
    """Send test messages or lines, and end the stream."""
    if work.messages:
        for rows in generate(work.messages, work.size, work.data_seed):
            await source.send_batch(rows)
    elif work.idle:
        await trio.sleep_forever()
    else:
        await send_lines(source)
    await source.aclose()


async def _stdin_line() -> None:
    """Wait for a line of standard input, and read nothing after the newline."""
    while await read_stdin(1) not in (b"", b"\n"):
        pass


async def read_stdin(most: int = _STDIN_CHUNK) -> bytes:
    """Wait for data on standard input and return at most `most` octets; empty at the end of the input.

    The read uses the descriptor, so that an abandoned thread holds no lock that the interpreter needs at its end.
    """
    return await trio.to_thread.run_sync(os.read, sys.stdin.fileno(), most, abandon_on_cancel=True)


def has_stdin() -> bool:
    """Return whether `read_stdin` would return at once, with data or with the end of the input."""
    return bool(select.select([sys.stdin], [], [], 0)[0])


def require_stdin() -> None:
    """Warn that input comes from a terminal. Raises `UsageError` if standard input is closed."""
    if sys.stdin is None:
        raise UsageError("standard input is closed", remedy="redirect data to it, as in: ... < data")
    if sys.stdin.isatty():
        warn("reading from the terminal; Ctrl-D on a line of its own ends the stream")


async def send_lines(
    source: Source,
    convert: Callable[[bytes, int], bytes | None] | None = None,
    subject: str | None = None,
    to: str | None = None,
) -> tuple[int, int]:
    """Send each line of standard input as a message without the newline. Return the counts of messages and of octets.

    `convert` returns the message for a line and the line's number, or None to send no message. Raises `PayloadTooLarge`
    for a line longer than the largest message, before the end of the line is read.
    """
    sent = octets = read = 0
    rest = bytearray()  # start of a line that has no newline yet
    while chunk := await read_stdin():
        first, newline, others = chunk.partition(b"\n")
        rest += first
        if not newline:
            if len(rest) > source.max_apdu:
                raise PayloadTooLarge(
                    f"a line of {len(rest)} octets or more does not fit: the limit is {source.max_apdu}",
                    remedy="raise max_apdu, txw_bytes or txw_secs, or send shorter lines",
                )
            continue
        *complete, last = others.split(b"\n")
        lines = [bytes(rest), *complete]
        rest = bytearray(last)
        converted = lines if convert is None else [convert(line, read + at) for at, line in enumerate(lines, 1)]
        messages = [message for message in converted if message is not None]
        await source.send_batch(messages, subject=subject, to=to)
        read += len(lines)
        sent += len(messages)
        octets += sum(map(len, messages))
    message = bytes(rest) if convert is None else convert(bytes(rest), read + 1)
    if rest and message is not None:
        await source.send(message, subject=subject, to=to)
        sent, octets = sent + 1, octets + len(message)
    await source.flush()
    return sent, octets


async def run_receiver(plan: NodePlan, stream: str | None, work: TestWork, seed: str | None) -> dict[str, Any]:
    """Receive, log the events of the streams, check test messages, and return the account. Raises `TransportError`."""
    accounts: dict[bytes, Account] = {}  # by TSI
    lost, events = 0, EventPrinter()
    async with open_receiver(plan, stream=stream, seed=seed, on_notice=events.say) as receiver:
        async with _answering(plan, receiver) as snapshot:
            async for item in receiver.batches():
                if isinstance(item, ApplicationState):
                    continue
                if isinstance(item, (Lost, StreamMark)):
                    events.say(item)
                    lost += item.count if isinstance(item, Lost) else 0
                    if isinstance(item, Closed) and item.cause is not CloseCause.SILENT and work.until_closed:
                        break
                elif work.messages:
                    account = accounts.setdefault(item.tsi, Account(work.size, work.data_seed))
                    for payloads in payloads_of(item):
                        account.add(payloads)
        row = _receiver_row(plan, receiver, list(accounts.values()), lost, work)
        row["events"] = events.rows()
        row["snapshot"] = snapshot()
    return row


def _receiver_row(
    plan: NodePlan, receiver: Receiver, accounts: list[Account], lost: int, work: TestWork
) -> dict[str, Any]:
    counters = receiver.counters
    row: dict[str, Any] = {
        "node": plan.name,
        "role": "receiver",
        "segment": plan.upstream.name,
        "delivered": sum(one.delivered for one in accounts) if work.messages else counters.delivered_packets,
        "lost": lost,
        "duplicates": sum(one.duplicates for one in accounts),
        "out_of_order": sum(one.out_of_order for one in accounts),
        "damaged": sum(one.damaged for one in accounts),
        "nak_sqns": counters.nak_sqns,
        "repaired": counters.repaired_sqns,
        "repaired_locally": counters.repaired_locally,
        "late": counters.late_sqns,
    }
    if work.messages:
        digests = {one.sha256 for one in accounts or [Account(work.size, work.data_seed)]}
        row["sha256"] = digests.pop() if len(digests) == 1 else ""  # sessions with the same messages have one digest
    return row


def account_text(row: Mapping[str, Any]) -> str:
    """Return the account of a node as one line of text."""
    if row["role"] == "receiver":
        wrong = [f"{row[key]:,} {key.replace('_', ' ')}" for key in FAULTS if row[key] or key == "lost"]
        return f"{row['delivered']:,} delivered, {', '.join(wrong)}"
    counters = row["snapshot"]["counters"]
    sent = f"{counters.get('odata_packets', 0):,} packets sent, {counters.get('rdata_packets', 0):,} repairs"
    return f"{sent}, {counters.get('nak_sqns_in', 0):,} sqns asked for"


async def run_node(plan: NodePlan, stream: str | None, work: TestWork, seed: str | None) -> dict[str, Any]:
    """Run one node until its work is done or a signal stops the node. Return the account."""
    if plan.role is Role.SOURCE:
        return await run_source(plan, stream, work, seed)
    if plan.role is Role.RECEIVER:
        return await run_receiver(plan, stream, work, seed)
    run = aggregator.process.run if plan.role is Role.AGGREGATOR else repairer.process.run
    events = EventPrinter()
    snapshot = await run(plan, events.log, seed)
    return {"node": plan.name, "role": plan.role.value, "events": events.rows(), "snapshot": snapshot}


@click.command()
@topology_file
@click.option("--node", required=True, shell_complete=node_names, help="Name of the node in the file.")
@click.option("--stream", help="The only stream of the node to run; all by default.")
@generated_messages("Source: send N test messages instead of standard input. Receiver: check them.")
@message_size
@option("--data-seed", type=int, default=1, help="Seed of the test messages.")
@click.option("--hold", is_flag=True, help="Source: wait for a line on standard input before sending.")
@click.option("--idle", is_flag=True, help="Source: send nothing but SPMs until stopped.")
@click.option("--until-closed", is_flag=True, help="Receiver: end when the first stream ends.")
@loss_seed
@telemetry_folder
@tape_folder
@log_format
@command
def run(
    file: Path,
    node: str,
    stream: str | None,
    seed: str | None,
    as_json: bool,
    **work: Any,
) -> None:
    """Run one node of a topology FILE in the foreground until its work is done, or until SIGTERM or SIGINT.

    A source sends the lines of standard input, or test messages in each of its streams. A receiver counts messages and logs openings, losses and closings.
    An aggregator or repairer relays and repairs. Logs go to standard error. `pgm status FILE` shows the counters of
    a running node. docs/reference/command.md describes the log.

    \b
    pgm run tree.toml --node floor-2-repairer
    pgm run tree.toml --node desk-7 --generate 10000 --until-closed &
    pgm run tree.toml --node exchange --generate 10000
    pgm run tree.toml --node desk-7 --tape tapes

    Exits with 0 when the work is done or a signal stopped the node.
    """
    plan = plan_node(load_checked(file), node)
    name_log(plan.name)
    folders: dict[str, Any] = {name: work.pop(name) for name in ("telemetry", "tape")}
    given: dict[str, Any] = {name: str(folder) for name, folder in folders.items() if folder is not None}
    plan = attrs.evolve(plan, **given)
    test_work = TestWork(**work)
    if plan.role is Role.SOURCE and (test_work.hold or not (test_work.messages or test_work.idle)):
        require_stdin()
    end_with_supervisor()
    with SIGTERM_HANDLER.installed():
        account = trio.run(run_node, plan, stream, test_work, seed)
        if as_json:
            print_json(account)
        else:
            log("account", account_text(account))
