"""The command `pgm apply`: bring a running tree to another topology file."""

from __future__ import annotations

import signal
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import attrs
import click

from deploy.node.apply_text import lines_of
from deploy.terminal.fleet_options import FleetAccess, fleet_options
from deploy.terminal.log import log, log_format
from deploy.terminal.options import PATH
from deploy.terminal.output import command, print_json
from pgm.errors import UsageError
from pgm.fleet.apply_change import ChangingHost, FileChange
from pgm.fleet.apply_host import HostChange
from pgm.fleet.hosts import hosts_of
from pgm.fleet.local_nodes import LocalNodes, running_file
from pgm.fleet.nodes import is_here
from pgm.topology.changes.steps import ChangePlan, plan_steps, require_same_name
from pgm.topology.load import load_checked
from pgm.topology.model import Topology
from pgm.topology.node_plan import NodePlan
from pgm.topology.plan import plan_all


@attrs.frozen
class LocalHost:
    """This host, without an agent."""

    change: HostChange

    @property
    def name(self) -> str:
        """Return the name of this host."""
        return socket.gethostname()

    def ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Return the answer of this host."""
        return self.change.answer(request)


@click.command()
@click.argument("new", metavar="NEW.toml", type=PATH)
@click.option("--from", "old", type=PATH, help="File that the tree runs; by default the one that its nodes here name.")
@click.option("--dry-run", is_flag=True, help="Print the steps, and change nothing.")
@click.option("--allow-loss", is_flag=True, help="Do also what may lose data.")
@log_format
@command
@fleet_options()
def apply(
    new: Path, old: Path | None, dry_run: bool, allow_loss: bool, as_json: bool, fleet: FleetAccess | None
) -> None:
    """Bring a running tree to the topology file NEW.toml, while its streams go on.

    \b
    cp tree.toml new.toml; $EDITOR new.toml
    pgm apply new.toml --dry-run             # what differs, what it costs
    pgm apply new.toml                       # on this host
    pgm apply new.toml --fleet --token-file token   # on all hosts
    pgm apply new.toml --from tree.toml --dry-run   # compare two files

    Receivers and repairers are added and removed while the tree runs. Parents, rates, budgets and timers change in
    place, and windows and caches grow in place. Anything else restarts its node. The output names what differs, the
    order of the steps, the cost of each, and what may lose data; such a change needs --allow-loss.

    NEW.toml replaces the file that the nodes run. Every node must take it, or the old file and the old state of all
    nodes come back. With --fleet the agents of all hosts take part (pgm agent --apply). `pgm up` starts, restarts and stops its nodes for this command; nodes that run otherwise change in
    place only. docs/guide/apply.md explains the steps.

    Exits with 0 if all nodes run the new file, with 1 after a failure, with 2 if the file or a node refuses.
    """
    topology = load_checked(new)
    old = running_file(LocalNodes(topology.name), topology.name) if old is None else old
    if old.resolve() == new.resolve():
        raise UsageError(
            f"{new} is the file that the nodes run", remedy="leave that file as it is: edit a copy, and apply the copy"
        )
    before = load_checked(old)
    require_same_name(before, topology)
    befores, afters = plan_all(before), plan_all(topology)
    plan = plan_steps(befores, afters)
    if not as_json:
        print("\n".join(lines_of(plan)))
    elif dry_run:
        print_json({**plan.row(), "applied": False})
    if not allow_loss:
        require_no_loss(plan)
    if not dry_run:
        # Without a translation of line ends: the hosts keep the file as it is.
        plans, text = {**befores, **afters}, new.read_bytes().decode()
        hosts: Sequence[ChangingHost]
        if fleet is None:
            hosts, host_of = _this_host(before, plans, old)
        else:
            client = fleet.watch(old).client
            from pgm.fleet.apply_agents import changing_hosts  # needs h11, which `watch` has checked

            hosts, host_of = changing_hosts(client, hosts_of(before, plans), [step.node for step in plan.steps])
        with interrupted_once() as ignore_signals:
            FileChange(plan, text, before.digest, hosts, host_of, log).run(ignore_signals)
        if as_json:
            print_json({**plan.row(), "applied": True})


@contextmanager
def interrupted_once() -> Iterator[Callable[[], None]]:
    """Let the first SIGINT, SIGTERM or SIGHUP interrupt a block, so that the change is undone, and ignore later ones.

    The function that is yielded ignores all from then on. A signal that was ignored before stays so.
    """
    former = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    former = {number: handler for number, handler in former.items() if handler not in (signal.SIG_IGN, None)}
    is_over = False

    def ignore() -> None:
        nonlocal is_over
        is_over = True

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        if not is_over:
            ignore()
            raise KeyboardInterrupt

    for number in former:
        signal.signal(number, interrupt)
    try:
        yield ignore
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)


def _this_host(
    before: Topology, plans: Mapping[str, NodePlan], file: Path
) -> tuple[Sequence[ChangingHost], dict[str, ChangingHost]]:
    """Return this host, as that of all nodes. Raises `UsageError` if the change concerns nodes elsewhere."""
    elsewhere = [name for name, one in plans.items() if not is_here(one) and _has_address(one)]
    if elsewhere:
        raise UsageError(
            f"{len(elsewhere)} nodes of this tree run on other hosts, such as {elsewhere[0]}",
            remedy="let the agents of all hosts take part: pgm apply NEW.toml --fleet",
        )
    host: ChangingHost = LocalHost(HostChange(before.name, file))
    return [host], dict.fromkeys(plans, host)


def _has_address(plan: NodePlan) -> bool:
    return any(segment.address is not None for segment in plan.segments)


def require_no_loss(plan: ChangePlan) -> None:
    """Raise `UsageError` for a change that may lose data."""
    if plan.losses:
        named = "; ".join(f"{step.action.value} {step.node}: {step.cost.loss}" for step in plan.losses[:3])
        more = len(plan.losses) - 3
        raise UsageError(
            f"this change may lose data: {named}" + (f"; and {more} more steps" if more > 0 else ""),
            remedy="leave those values as they are, or accept the loss with --allow-loss",
        )
