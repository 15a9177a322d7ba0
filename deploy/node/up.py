"""`pgm up`: all nodes of a topology as processes of this machine."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click
import trio

from deploy.node.run import FAULTS, account_text
from deploy.node.supervisor import Supervisor, heed_signals
from deploy.terminal.exit_codes import EXIT_FAILED
from deploy.terminal.output import command, print_json, warn
from pgm.net.driver.nurseries import open_plain_nursery
from pgm.topology.check import load_checked
from pgm.topology.node_plan import NodePlan, Role
from pgm.topology.plan import plan_all


def start_order(plans: dict[str, NodePlan]) -> list[list[str]]:
    """Elements first, then receivers, then sources: who repairs must be there before anything can be lost."""
    by_role = {role: [name for name, plan in plans.items() if plan.role is role] for role in Role}
    return [by_role[Role.AGGREGATOR] + by_role[Role.REPAIRER], by_role[Role.RECEIVER], by_role[Role.SOURCE]]


async def run_tree(
    file: Path, plans: dict[str, NodePlan], messages: int, size: int, telemetry: Path | None = None
) -> dict[str, Any]:
    """Run until a signal; returns every node's account. Raises `ProcessError` if a node cannot start."""
    elements, receivers, sources = start_order(plans)
    watched = ["--telemetry", str(telemetry)] if telemetry is not None else []
    work = ["--generate", str(messages), "--size", str(size)] if messages else []
    async with open_plain_nursery() as nursery:
        supervisor = Supervisor(file, nursery, None, _heard)
        is_running, stop = trio.Event(), trio.Event()
        await nursery.start(heed_signals, is_running, stop)
        try:
            await supervisor.start_all(elements, watched)
            await supervisor.start_all(receivers, [*work, *watched])
            await supervisor.start_all(sources, [*(work or ["--idle"]), *watched])
            warn(f"{len(plans)} nodes run; stop them with Ctrl-C, look at them with: pgm status {file}")
            is_running.set()
            await stop.wait()
            await supervisor.stop_all(sources)
            await supervisor.stop_all(receivers)
            await supervisor.stop_all(elements)
        finally:
            supervisor.kill_all()
        nursery.cancel_scope.cancel()
        may_go = set(sources) if messages else set()  # who has sent all
        failed = [
            child.node
            for child in supervisor.children.values()
            if child.has_failed or (child.was_gone and child.node not in may_go)
        ]
        results = {child.node: child.result for child in supervisor.children.values() if child.result}
        return {"nodes": [results[name] for name in plans if name in results], "failed": failed}


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--generate",
    "messages",
    type=click.IntRange(0),
    default=0,
    metavar="N",
    help="Let every source send N test messages, and receivers check them.",
)
@click.option("--size", type=click.IntRange(8), default=1400, show_default=True, help="Octets of a test message.")
@click.option(
    "--telemetry",
    type=click.Path(path_type=Path, file_okay=False),
    help="Write protocol events as Parquet files into this folder, for `pgm report`.",
)
@command
def up(file: Path, messages: int, size: int, telemetry: Path | None, as_json: bool) -> None:
    """Run every node of a topology FILE on this machine until Ctrl-C.

    Patterns start as many nodes as their `count` says. The addresses of the file must be addresses of this
    machine; 127.x.y.z always are. Logs go to standard error, a line each, behind the node's name.

    \b
    pgm demo --write tree.toml && pgm up tree.toml --generate 10000
    pgm up deploy/topologies/loopback-demo.toml

    Without --generate sources only announce themselves. Exits with 0 after Ctrl-C or SIGTERM; with 1 if a node cannot start or ends
    by itself, or if a receiver lost, doubled, reordered or damaged anything.
    """
    plans = plan_all(load_checked(file))
    accounts = trio.run(run_tree, file, plans, messages, size, None if telemetry is None else telemetry.resolve())
    if as_json:
        print_json(accounts)
    else:
        for row in accounts["nodes"]:
            _heard(row["node"], f"account: {account_text(row)}")
    unsound = [row["node"] for row in accounts["nodes"] if any(row.get(key) for key in FAULTS)]
    if accounts["failed"]:
        warn(f"these nodes ended by themselves: {', '.join(accounts['failed'])}")
    if unsound:
        warn(f"these receivers did not get everything once, in order and unharmed: {', '.join(unsound)}")
    if accounts["failed"] or unsound:
        sys.exit(EXIT_FAILED)


def _heard(node: str, line: str) -> None:
    print(f"{node} | {line}", file=sys.stderr, flush=True)
