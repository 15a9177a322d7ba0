"""The command `pgm up`: all nodes of a topology as processes of this machine."""

from __future__ import annotations

import fnmatch
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import click
import trio

from deploy.node.run import FAULTS, account_text
from deploy.node.supervised import SupervisedNodes, supervisor_path
from deploy.node.supervisor import Supervisor, while_running
from deploy.terminal.exit_codes import EXIT_FAILED
from deploy.terminal.log import log, log_format, plain_row, print_row_of
from deploy.terminal.options import generated_messages, message_size, telemetry_folder, topology_file
from deploy.terminal.output import command, print_json, warn
from pgm.core.counters import Counters
from pgm.errors import UsageError
from pgm.fleet.nodes import is_here
from pgm.net.control.control_socket import serve_control
from pgm.net.control.signals import heed_signals
from pgm.net.driver.nurseries import open_plain_nursery
from pgm.topology.check import load_checked
from pgm.topology.model import Topology
from pgm.topology.node_plan import NodePlan, Role
from pgm.topology.plan import plan_all, plan_node
from pgm.topology.problems import suggestion

T = TypeVar("T")


def start_order(plans: dict[str, NodePlan]) -> list[list[str]]:
    """Return the names of elements, receivers and sources in their start order: repairers before the first packet."""
    by_role = {role: [name for name, plan in plans.items() if plan.role is role] for role in Role}
    return [by_role[Role.AGGREGATOR] + by_role[Role.REPAIRER], by_role[Role.RECEIVER], by_role[Role.SOURCE]]


def select_nodes(plans: dict[str, T], only: Sequence[str], excepted: Sequence[str]) -> dict[str, T]:
    """Return the plans of the nodes that match a pattern of `only`, if any, and none of `excepted`.

    Raises `UsageError` for a pattern without a match, and if no node remains.
    """
    for option, patterns in (("--only", only), ("--except", excepted)):
        for pattern in patterns:
            if not fnmatch.filter(plans, pattern):
                raise UsageError(f"{option} {pattern!r} matches no node", remedy=suggestion(pattern, plans))
    wanted = {name for pattern in only or ("*",) for name in fnmatch.filter(plans, pattern)}
    unwanted = {name for pattern in excepted for name in fnmatch.filter(plans, pattern)}
    selected = {name: plan for name, plan in plans.items() if name in wanted - unwanted}
    if not selected:
        raise UsageError("--only and --except leave no node", remedy="leave out one of the patterns")
    return selected


async def run_tree(
    file: Path, plans: dict[str, NodePlan], messages: int, size: int, telemetry: Path | None = None
) -> dict[str, Any]:
    """Run all nodes until a signal, and return the accounts. Raises `ProcessError` if a node cannot start."""
    elements, receivers, sources = start_order(plans)
    roles = {name: plan.role for name, plan in plans.items()}
    telemetry_options = ["--telemetry", str(telemetry)] if telemetry is not None else []
    work = ["--generate", str(messages), "--size", str(size)] if messages else []
    options = {
        Role.RECEIVER: [*work, *telemetry_options],
        Role.SOURCE: [*(work or ["--idle"]), *telemetry_options],
    }

    async def start(node: str) -> None:
        """Start a node of the file as it is now, which `pgm apply` may have changed."""
        roles[node] = plan_node(load_checked(file), node).role
        await supervisor.start(node, options.get(roles[node], telemetry_options))

    async with open_plain_nursery() as nursery:
        supervisor = Supervisor(file, nursery, None, print_row_of)
        answer = SupervisedNodes(supervisor, start, nursery).answer
        path = supervisor_path(next(iter(plans.values())).topology)
        is_running, stop = trio.Event(), trio.Event()
        at = partial(while_running, is_running, stop)
        await nursery.start(heed_signals, at(stop.set), at(supervisor.reload_all))
        try:
            await supervisor.start_all(elements, telemetry_options)
            await supervisor.start_all(receivers, options[Role.RECEIVER])
            await supervisor.start_all(sources, options[Role.SOURCE])
            await nursery.start(serve_control, path, answer, Counters())
            is_running.set()
            log("ready", f"{len(plans)} nodes run; Ctrl-C stops all; to see the counters: pgm status {file}")
            await stop.wait()
            for wanted in (Role.SOURCE,), (Role.RECEIVER,), (Role.AGGREGATOR, Role.REPAIRER):
                await supervisor.stop_all([name for name in supervisor.children if roles[name] in wanted])
        finally:
            supervisor.kill_all()
        nursery.cancel_scope.cancel()
        may_end = {
            name for name in roles if roles[name] is Role.SOURCE and messages
        }  # a source ends after its last test message
        failed = [
            child.node
            for child in supervisor.children.values()
            if child.has_failed or (child.was_gone and child.node not in may_end)
        ]
        results = {child.node: child.result for child in supervisor.children.values() if child.result}
        return {"nodes": [results[name] for name in roles if name in results], "failed": failed}


@click.command()
@topology_file
@generated_messages("Send N test messages from every source, and check them at the receivers.")
@message_size
@click.option("--only", multiple=True, metavar="PATTERN", help="Run only the nodes whose names match; may be repeated.")
@click.option("--except", "excepted", multiple=True, metavar="PATTERN", help="Leave out these nodes; may be repeated.")
@click.option("--here", is_flag=True, help="Run only the nodes with an address of this host.")
@telemetry_folder
@log_format
@command
def up(
    file: Path,
    messages: int,
    size: int,
    telemetry: Path | None,
    as_json: bool,
    **chosen: Any,
) -> None:
    """Run every node of a topology FILE on this machine until Ctrl-C.

    A pattern starts as many nodes as its `count`. The addresses in the file must be addresses of this machine;
    127.x.y.z always are. Logs go to standard error; each line names its node.

    \b
    pgm demo --write tree.toml && pgm up tree.toml --generate 10000
    pgm up deploy/topologies/loopback-demo.toml

    To try a tree with your own data, leave out the source, or a receiver, and run your program in its place. PATTERN is a
    shell pattern (* ? [...]) of node names. Quote it, or the shell may expand it.

    \b
    pgm up tree.toml --except source
    seq 100000 | pgm run tree.toml --node source
    pgm up tree.toml --only 'subnet-1-*' --only source --except '*-repairer'

    With --here each host of a tree runs the same command. SIGHUP lets all nodes read the file again.

    Without --generate, sources send only SPMs. Exits with 0 after Ctrl-C or SIGTERM. Exits with 1 if a node cannot start or ends
    by itself, or if a receiver has lost, duplicate, reordered or damaged messages.
    """
    plans = _on_this_host(load_checked(file)) if chosen["here"] else plan_all(load_checked(file))
    plans = select_nodes(plans, chosen["only"], chosen["excepted"])
    accounts = trio.run(run_tree, file, plans, messages, size, None if telemetry is None else telemetry.resolve())
    if as_json:
        print_json(accounts)
    else:
        for row in accounts["nodes"]:
            print_row_of(plain_row(row["node"], "account", account_text(row)))
    faulty = [row["node"] for row in accounts["nodes"] if any(row.get(key) for key in FAULTS)]
    if accounts["failed"]:
        warn(f"these nodes ended by themselves: {', '.join(accounts['failed'])}")
    if faulty:
        warn(f"these receivers lost, duplicated, reordered or damaged messages: {', '.join(faulty)}")
    if accounts["failed"] or faulty:
        sys.exit(EXIT_FAILED)


def _on_this_host(topology: Topology) -> dict[str, NodePlan]:
    """Return the plans of the nodes with an address of this host. Raises `UsageError` if there is none."""
    plans = {name: plan for name, plan in plan_all(topology).items() if is_here(plan)}
    if not plans:
        raise UsageError(
            "no node has an address of this host", remedy="compare the addresses of the file with: ip address"
        )
    return plans
