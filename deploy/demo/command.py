"""The command `pgm demo`: a whole tree on this machine, over real multicast on loopback, with injected losses.

Every node is a separate process with its own 127.x address. Each node draws losses packet by packet from the packets
it reads, control packets included. The losses of different receivers are independent.
"""

from __future__ import annotations

import signal
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import click
import trio

from deploy.archive.record import need_arrow
from deploy.demo.account import build_account
from deploy.demo.tree import DemoTree, demo_topology
from deploy.node.sample_messages import digest
from deploy.node.supervisor import ChildProcess, Supervisor
from deploy.node.up import start_order
from deploy.terminal.exit_codes import EXIT_FAILED
from deploy.terminal.options import FOLDER, NEW_FILE, option, parsed, telemetry_folder
from deploy.terminal.output import command, print_json, warn
from pgm.errors import ProcessError, UsageError
from pgm.fleet.runtime_folders import DEMO_PREFIX
from pgm.net.control.signals import heed_signals
from pgm.net.control.status_socket import ask_status
from pgm.net.driver.nurseries import open_plain_nursery
from pgm.parameters import ROWS
from pgm.topology.check import load_checked
from pgm.topology.node_plan import NodePlan, Role
from pgm.topology.plan import plan_all
from pgm.units import format_rate, parse_fraction

_POLL_S = 0.5
_STUCK_S = 60.0  # timeout without progress at any receiver; longer than all default retries and expiries

Show = Callable[[dict[str, Any], str], None]


@attrs.define
class Demo:
    """Run of the demo."""

    tree: DemoTree
    messages: int
    size: int
    seed: int
    show: Show
    telemetry: Path | None = None
    kill: str = ""  # element to kill when half of the messages have arrived
    plans: dict[str, NodePlan] = attrs.field(factory=dict)
    snapshots: dict[str, Any] = attrs.field(factory=dict)

    async def run(self, folder: Path) -> dict[str, Any]:
        """Start the tree, send, wait for all receivers, stop, and return the account. Raises `ProcessError`."""
        file = folder / "demo.toml"
        file.write_text(demo_topology(self.tree))
        self.plans = plan_all(load_checked(file))
        elements = [name for name, plan in self.plans.items() if plan.role in (Role.AGGREGATOR, Role.REPAIRER)]
        if self.kill and self.kill not in elements:
            raise UsageError(f"there is no element {self.kill!r} to kill", remedy=f"name one of {', '.join(elements)}")
        async with open_plain_nursery() as nursery:
            supervisor = Supervisor(file, nursery, folder, _ignore_log)
            await nursery.start(heed_signals)
            try:
                account = await self._run(supervisor, folder)
            finally:
                supervisor.kill_all()
            nursery.cancel_scope.cancel()
        return account

    async def _run(self, supervisor: Supervisor, folder: Path) -> dict[str, Any]:
        elements, receivers, sources = start_order(self.plans)
        recorders = [name for name in receivers if self.plans[name].record_directory is not None]
        receivers = [name for name in receivers if name not in recorders]
        work = ["--generate", str(self.messages), "--size", str(self.size), "--data-seed", str(self.seed)]
        seed = ["--seed", str(self.seed)]
        if self.telemetry is not None:
            seed += ["--telemetry", str(self.telemetry.resolve())]
        self._show(f"starting {len(self.plans)} processes")
        await supervisor.start_all(elements, seed)
        await supervisor.start_all(receivers, [*seed, *work, "--until-closed"])
        await supervisor.start_all(recorders, ["--seed", str(self.seed), "--until-closed"], verb="record")
        source = await supervisor.start(sources[0], [*seed, *work, "--hold"], has_stdin=True)
        await self._until_all_have_an_spm(supervisor, folder, [*receivers, *recorders])
        started = trio.current_time()
        assert source.process.stdin is not None
        await source.process.stdin.send_all(b"go\n")
        await self._until_all_are_done(supervisor, folder, [*receivers, *recorders])
        seconds = trio.current_time() - started
        await self._poll(supervisor, folder)
        self._show("stopping")
        await source.done.wait()
        await supervisor.stop_all([name for name in elements if name != self.kill])
        return self._account(supervisor, receivers, seconds)

    def _account(self, supervisor: Supervisor, receivers: list[str], seconds: float) -> dict[str, Any]:
        results: dict[str, dict[str, Any]] = {}
        for name in self.plans:
            child = supervisor.children[name]
            if name == self.kill and name in self.snapshots:
                continue  # with its snapshot before the end
            if child.result is None:
                raise child.failure()
            self.snapshots[name] = child.result["snapshot"]
            if name in receivers:
                results[name] = child.result
        expected = digest(self.messages, self.size, self.seed)
        for row in results.values():
            row["sha256_ok"] = row["sha256"] == expected
        recorded = [
            child.result for child in supervisor.children.values() if child.result and "directory" in child.result
        ]
        account = build_account(self.tree, self.messages, seconds, results, self.snapshots, recorded)
        killed = [name for name, child in supervisor.children.items() if child.process.returncode == -signal.SIGKILL]
        return account | {"killed": killed} if self.kill else account

    def _show(self, phase: str) -> None:
        """Show the known snapshots, in the order of the tree."""
        self.show({name: self.snapshots[name] for name in self.plans if name in self.snapshots}, phase)

    async def _poll(self, supervisor: Supervisor, folder: Path) -> None:
        """Update the snapshots: ask every running node, and take the last snapshot of every ended node."""
        results = {name: child.result for name, child in supervisor.children.items()}
        self.snapshots |= {name: result["snapshot"] for name, result in results.items() if result}
        running = [name for name, result in results.items() if not result]

        def ask() -> dict[str, Any]:
            answers = {}
            for name in running:
                try:
                    answers[name] = ask_status(folder / "demo" / f"{name}.sock")
                except ProcessError:
                    continue  # the node may just have ended
            return answers

        self.snapshots |= await trio.to_thread.run_sync(ask)

    async def _until_all_have_an_spm(self, supervisor: Supervisor, folder: Path, receivers: list[str]) -> None:
        """Wait until all receivers have the first SPM. From then on a receiver detects every loss."""
        with trio.move_on_after(_STUCK_S):
            while True:
                _raise_if_failed(list(supervisor.children.values()))
                await self._poll(supervisor, folder)
                waiting = [name for name in receivers if not self.snapshots.get(name, {}).get("sessions")]
                if not waiting:
                    return
                self._show(f"waiting for {len(waiting)} receivers to get the first SPM")
                await trio.sleep(_POLL_S)
        raise ProcessError(f"these receivers got no SPM: {', '.join(waiting)}")

    def _kill(self, supervisor: Supervisor) -> None:
        """Kill the element of `--kill` if it runs. Its last snapshot stays in the account."""
        victim = supervisor.children.get(self.kill)
        if victim is not None and victim.process.returncode is None and self.kill in self.snapshots:
            self._show(f"killing {self.kill}")
            victim.process.kill()

    async def _until_all_are_done(self, supervisor: Supervisor, folder: Path, receivers: list[str]) -> None:
        children = [supervisor.children[name] for name in receivers]
        progress, since = (-1, -1), trio.current_time()
        while not all(child.done.is_set() for child in children):
            _raise_if_failed([child for name, child in supervisor.children.items() if name != self.kill])
            await self._poll(supervisor, folder)
            counters = [self.snapshots.get(name, {}).get("counters", {}) for name in receivers]
            if 2 * max(row.get("delivered_packets", 0) for row in counters) >= self.messages:
                self._kill(supervisor)
            total = sum(row.get("delivered_packets", 0) + row.get("lost_sqns", 0) for row in counters)
            done = sum(child.done.is_set() for child in children)
            self._show(f"{done} of {len(children)} receivers have everything")
            if (total, done) != progress:
                progress, since = (total, done), trio.current_time()
            elif trio.current_time() - since > _STUCK_S:
                raise ProcessError(f"no receiver has made progress for {_STUCK_S:.0f} s")
            with trio.move_on_after(_POLL_S):
                for child in children:
                    await child.done.wait()


def _ignore_log(_: object) -> None:
    """Ignore a row of a log. The supervisor keeps the last lines and shows these when a node fails."""


def _raise_if_failed(children: list[ChildProcess]) -> None:
    for child in children:
        if child.has_failed:
            raise child.failure()


def _percentage(context: click.Context, param: click.Parameter, value: str) -> float:
    # 0 means the same with or without %; other bare numbers are ambiguous.
    share: float = parsed(parse_fraction, context, param, "0%" if value == "0" else value)
    if share > 0.5:
        raise click.BadParameter(f"{value} is more than the demo allows; at most 50%", param=param)
    return share


@click.command()
@option("--messages", type=click.IntRange(1, 10_000_000), default=100_000, help="Messages to send.")
@option("--size", type=click.IntRange(8, 1 << 20), default=1400, help="Octets of a message.")
@option("--subnets", type=click.IntRange(1, 60), default=3, help="Subnets; every third is on a second tier.")
@option("--receivers", type=click.IntRange(1, 2000), default=12, help="Receivers of all subnets together.")
@option("--loss", default="2%", metavar="SHARE", callback=_percentage, help="Random loss on every last hop.")
@option(
    "--burst-loss",
    default="2%",
    metavar="SHARE",
    callback=_percentage,
    help="Additional loss on every last hop, in bursts of mean 8 packets.",
)
@option(
    "--loss-at",
    type=click.Choice(["all", "receivers"]),
    default="all",
    help="Nodes of a subnet that lose: all, or only receivers. A relay loses on its uplink.",
)
@option("--uplink-loss", default="0.2%", metavar="SHARE", callback=_percentage, help="Random loss between the tiers.")
@option(
    "--rate",
    default=format_rate(DemoTree().rate),
    metavar="RATE",
    callback=partial(parsed, ROWS["txw_max_rte"].read),
    help="Rate limit of the source.",
)
@option("--kill", metavar="NODE", default="", help="Aggregator or repairer to kill in mid-stream.")
@option("--seed", type=int, default=1, help="Seed of losses and messages.")
@telemetry_folder
@click.option(
    "--record", type=FOLDER, help="Record the stream in each subnet by one more receiver, into archives in this folder."
)
@click.option("--write", type=NEW_FILE, help="Only write the topology of the demo to this file.")
@command
def demo(
    messages: int,
    size: int,
    seed: int,
    kill: str,
    write: Path | None,
    telemetry: Path | None,
    as_json: bool,
    **tree: Any,
) -> None:
    """Run a whole repair tree on this machine and account for every packet.

    The tree has a source, and subnets with relays, repairers and receivers on two tiers.
    Every node is a process with its own loopback address. The nodes use real multicast, with losses injected on every
    link. No privileges are needed. The defaults take about a minute on two cores.

    \b
    pgm demo
    pgm demo --messages 5000 --subnets 2 --receivers 4 --loss 10%
    pgm demo --kill subnet-1-repairer
    pgm demo --json | jq .totals
    pgm demo --write tree.toml && pgm plan tree.toml
    pgm demo --record archives && pgm archive ls archives

    In the account, packets "repaired locally" came from a repairer or relay of the same subnet, packets "from above" from a
    higher tier. A "late" packet arrived as data after its loss was detected. "NAKed sqns" counts requested sequence
    numbers, repeats included. ODATA is the stream and RDATA are repairs. An NCF confirms a NAK to a whole subnet.

    Exits with 1 if a receiver has lost, duplicate, reordered or damaged messages. Also exits with 1 if the measured loss differs
    from the configured loss by more than a fifth, or by three standard deviations if that is more. The loss is not checked if
    `pgm ctl demo` changed a setting during the run.
    """
    shape = DemoTree(**tree)
    if shape.record is not None:
        _require_room(shape.record)
    text = demo_topology(shape)
    if write is not None:
        write.write_text(text)
        warn(f"wrote {write}; to print the tree: pgm plan {write}")
        if as_json:
            print_json({"written": [str(write)]})
        return
    with tempfile.TemporaryDirectory(prefix=DEMO_PREFIX) as folder, _ProgressView(messages * size, as_json) as show:
        account = trio.run(Demo(shape, messages, size, seed, show, telemetry, kill).run, Path(folder))
    if as_json:
        print_json(account)
    else:
        from deploy.demo.view import account_view
        from deploy.terminal.tables import console

        terminal = console()
        terminal.print(account_view(account, terminal.width))
    if not account["ok"]:
        sys.exit(EXIT_FAILED)


def _require_room(directory: Path) -> None:
    """Check that archives go into an empty folder, so that the folder holds this run alone. Raises `UsageError`."""
    need_arrow()
    if directory.is_dir() and any(directory.iterdir()):
        raise UsageError(f"{directory} is not empty", remedy="name another folder for --record, or empty this one")


class _ProgressView:
    """Live view on a terminal, a line now and then elsewhere, nothing with --json."""

    def __init__(self, octets: int, as_json: bool) -> None:
        self._octets = octets  # of the complete stream
        self._live: Any = None
        self._last_line = ""
        self._is_quiet = as_json

    def __enter__(self) -> Show:
        if sys.stderr.isatty() and not self._is_quiet:
            from rich.console import Console
            from rich.live import Live

            self._live = Live(console=Console(stderr=True), refresh_per_second=4, transient=True)
            self._live.__enter__()
        return self._show

    def __exit__(self, *exc: object) -> None:
        if self._live is not None:
            self._live.__exit__(*exc)

    def _show(self, snapshots: dict[str, Any], phase: str) -> None:
        if self._live is not None:
            from deploy.demo.view import LiveView

            self._live.update(LiveView(snapshots, self._octets, phase))
        elif not self._is_quiet:
            self._print(snapshots, phase)

    def _print(self, snapshots: dict[str, Any], phase: str) -> None:
        receivers = [node for node in snapshots.values() if node["role"] == "receiver"]
        counts = [node["counters"].get("delivered_octets", 0) for node in receivers]
        if any(counts):
            phase += f", {10 * (10 * sum(counts) // (self._octets * len(counts)))} % delivered"
        if phase != self._last_line:
            self._last_line = phase
            warn(phase)
