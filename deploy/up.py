"""`pgm up`: all nodes of a topology as processes of this machine."""

from __future__ import annotations

import sys
from pathlib import Path

import click
import trio

from deploy.output import EXIT_FAILED, command, print_json, warn
from deploy.supervise import Supervisor
from pgm.net.nurseries import open_plain_nursery
from pgm.net.process import until_signal
from pgm.topology.check import load_checked
from pgm.topology.node_plan import NodePlan, Role
from pgm.topology.plan import plan_all


def start_order(plans: dict[str, NodePlan]) -> list[list[str]]:
    """Elements first, then receivers, then sources: who repairs must be there before anything can be lost."""
    by_role = {role: [name for name, plan in plans.items() if plan.role is role] for role in Role}
    return [by_role[Role.AGGREGATOR] + by_role[Role.REPAIRER], by_role[Role.RECEIVER], by_role[Role.SOURCE]]


async def run_tree(file: Path, plans: dict[str, NodePlan], messages: int, size: int) -> dict[str, object]:
    """Run until a signal; returns every node's account. Raises `ProcessError` if a node cannot start."""
    elements, receivers, sources = start_order(plans)
    work = ["--generate", str(messages), "--size", str(size)] if messages else []
    async with open_plain_nursery() as nursery:
        supervisor = Supervisor(file, nursery, None, lambda node, line: print(f"{node} | {line}", file=sys.stderr))
        try:
            await supervisor.start_all(elements)
            await supervisor.start_all(receivers, work)
            await supervisor.start_all(sources, work or ["--idle"])
            warn(f"{len(plans)} nodes run; stop them with Ctrl-C, look at them with: pgm status {file}")
            await until_signal()
            await supervisor.stop_all(sources)
            await supervisor.stop_all(receivers)
            await supervisor.stop_all(elements)
        finally:
            supervisor.kill_all()
        failed = [child.node for child in supervisor.children.values() if child.has_failed]
        return {"nodes": [child.result for child in supervisor.children.values() if child.result], "failed": failed}


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--generate",
    "messages",
    type=int,
    default=0,
    metavar="N",
    help="Let every source send N test messages, and receivers check them.",
)
@click.option("--size", type=click.IntRange(8), default=1400, show_default=True, help="Octets of a test message.")
@command
def up(file: Path, messages: int, size: int, as_json: bool) -> None:
    """Run every node of a topology FILE on this machine until Ctrl-C.

    Patterns start as many nodes as their `count` says. The addresses of the file must be addresses of this
    machine; 127.x.y.z always are. Logs go to standard error, a line each, behind the node's name.
    """
    plans = plan_all(load_checked(file))
    accounts = trio.run(run_tree, file, plans, messages, size)
    if as_json:
        print_json(accounts)
    if accounts["failed"]:
        warn(f"these nodes ended by themselves: {', '.join(map(str, accounts['failed']))}")  # type: ignore[call-overload]
        sys.exit(EXIT_FAILED)
