"""The command `pgm ctl`: read and change settings of running nodes."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import click

from deploy.status.fleet import problems_of
from deploy.terminal.completion import node_names
from deploy.terminal.fleet_options import FleetAccess, fleet_options
from deploy.terminal.output import command, print_json
from deploy.terminal.tables import TableColumn, console, table
from pgm.errors import ProcessError, UsageError
from pgm.fleet.runtime_folders import folder_of, is_file, sockets_in
from pgm.net.control.control_socket import Answer, Request, ask_control
from pgm.topology.check import load_checked

Ask = Callable[[], Answer]  # asks one node

_SOCKETS = "*.ctl"
_COLUMNS = (TableColumn("setting"), TableColumn("segment", 1), TableColumn("in force"), TableColumn("at the start", 2))


def sockets_of(where: str) -> dict[str, Path]:
    """Return the control sockets of a tree by node. `where` is a topology file or the name of a running tree.

    Raises `TopologyError` for a wrong file, `ProcessError` if no node runs.
    """
    name = load_checked(Path(where)).name if is_file(where) else where
    sockets = {path.stem: path for path in sockets_in(folder_of(name, _SOCKETS), _SOCKETS)}
    if sockets:
        return sockets
    raise ProcessError(
        f"no node of {where} runs on this machine as this user",
        remedy="start one with: pgm run FILE --node NAME; sockets are in $PGM_RUNTIME_DIR, $XDG_RUNTIME_DIR/pgm or /tmp/pgm-UID",
    )


def request_of(action: str, words: tuple[str, ...], stream: str | None, segment: str | None) -> Request:
    """Return the request for a node from the words of the command line. Raises `UsageError`."""
    request: Request = {"do": action}
    if stream is not None:
        request["stream"] = stream
    if segment is not None and action == "set":
        request["segment"] = segment
    if action == "get":
        request["names"] = list(words)
    elif action == "set":
        pairs = [word.partition("=") for word in words]
        if not pairs or not all(name and sign and value for name, sign, value in pairs):
            raise UsageError("`set` needs settings with values", remedy="as in: set rate=20Mbit/s, or set loss=off")
        request["settings"] = {name: value for name, _, value in pairs}
    else:
        if len(words) != 1:
            raise UsageError(
                "`release` needs one child's address",
                remedy="as in: release 10.0.2.7; pgm status --detail shows children with excessive NAKs",
            )
        request["child"] = words[0]
    return request


@click.command()
@click.argument("where", metavar="TOPOLOGY|FILE")
@click.argument("action", type=click.Choice(["get", "set", "release"]), default="get")
@click.argument("words", nargs=-1, metavar="[WORD]...")
@click.option(
    "--node",
    "nodes",
    multiple=True,
    shell_complete=node_names,
    help="This node, or all nodes that match a pattern such as 'desk-*'; may be repeated.",
)
@click.option("--stream", help="Only if the process sends or receives this stream.")
@click.option(
    "--segment", help="set: only the injected losses of this segment; by default of all segments with losses."
)
@command
@fleet_options()
def ctl(where: str, action: str, words: tuple[str, ...], nodes: tuple[str, ...], as_json: bool, **options: Any) -> None:
    """Print and change settings of running nodes on this machine, or on all hosts.

    \b
    pgm ctl tree.toml                                       # of all nodes
    pgm ctl tree.toml --node exchange set rate=20Mbit/s
    pgm ctl tree.toml --node exchange set rate=start        # as in the file
    pgm ctl tree.toml --node 'desk-*' set loss=off
    pgm ctl tree.toml --node desk-7 set loss=2% burst_loss=1% burst_length=8
    pgm ctl tree.toml --node floor-2-repairer release 10.0.2.7
    pgm ctl tree.toml --node exchange get rate txw_secs
    pgm ctl demo                                            # of a running demo
    pgm ctl tree.toml --fleet --node exchange set rate=20Mbit/s   # on its host

    `set` changes the rate of a source, up to the rate in the file, and the injected losses of a node. `release`
    returns the normal budget to a child with excessive NAKs. All other parameters are fixed at the start: `get` with
    the name of a parameter prints its value and the reason. A node logs and counts each change. `pgm ctl` finds nodes
    like `pgm status`. With --fleet the agents of all hosts pass on the request; they need a token for it. With --json there is one object per node and line. See docs/guide/operations.md.

    Exits with 0 if every node did the action, with 1 if a node does not answer, with 2 if a node refuses.
    """
    request = request_of(action, words, options["stream"], options["segment"])
    if action != "get" and not nodes:
        raise UsageError(f"`{action}` needs --node", remedy="--node NAME, or --node '*' for all running nodes")
    fleet: FleetAccess | None = options["fleet"]
    running = _asked_here(where, request) if fleet is None else _asked_by_agents(fleet, where, request)
    silent = []
    for name in chosen(where, list(running), nodes):
        try:
            answer = running[name]()
        except ProcessError as error:  # with --fleet the agent may be at fault, not the node
            silent.append(name if fleet is None else f"{name} ({error.message})")
            continue
        except UsageError as error:
            raise UsageError(f"{name}: {error.message}", remedy=error.remedy) from None
        if as_json:
            print_json(answer)
        else:
            print_answer(answer)
    if silent:
        raise ProcessError(
            f"no answer from {', '.join(silent)}",
            remedy=f"check that the node runs: pgm status {where}; a killed node leaves its socket until its next start",
        )


def _asked_here(where: str, request: Request) -> dict[str, Ask]:
    return {name: partial(ask_control, path, request) for name, path in sockets_of(where).items()}


def _asked_by_agents(access: FleetAccess, where: str, request: Request) -> dict[str, Ask]:
    """Return the nodes of all hosts, each with a function that asks it. Raises `ProcessError` if no node runs."""
    fleet = access.watch(where)
    view = fleet.look()
    running: dict[str, Ask] = {
        node.name: partial(fleet.control, node, view, request) for node in view.nodes if node.is_up
    }
    if not running:
        problem = next(iter(problems_of(view)), (f"no node of {where} runs on any host", ""))
        raise ProcessError(problem[0], remedy=problem[1])
    return running


def chosen(where: str, running: list[str], nodes: tuple[str, ...]) -> list[str]:
    """Return the running nodes that match patterns, or all. Raises `ProcessError` for a pattern without a match."""
    if not nodes:
        return running
    found: dict[str, None] = {}
    for pattern in nodes:
        names = fnmatch.filter(running, pattern) or fnmatch.filter(running, pattern.replace("/", "_"))
        if not names:
            raise ProcessError(
                f"no node {pattern} of {where} runs here", remedy=f"these nodes run: {', '.join(running[:12])}"
            )
        found |= dict.fromkeys(names)
    return list(found)


def print_answer(answer: dict[str, Any]) -> None:
    """Print the answer of a node: its settings, or what has changed."""
    node = answer["node"]
    if "released" in answer:
        print(f"{node}: {answer['released']} has its normal budget again")
        return
    if "changed" in answer:
        for change in answer["changed"]:
            on = "" if change["segment"] is None else f" on {change['segment']}"
            print(f"{node}: {change['name']}{on} = {change['new']}, was {change['old']}")
        return
    rows = answer["settings"]
    if not rows:
        print(f"{answer['role']} {node}: nothing can be changed while it runs\n")
        return
    terminal = console()
    cells = [[row["name"], row["segment"] or "", row["value"], row["start"]] for row in rows]
    terminal.print(table(f"{answer['role']} {node}", _COLUMNS, cells, terminal.width))
    for row in rows:
        for text in filter(None, (row["note"], row["fixed"] and f"cannot be changed while it runs: {row['fixed']}")):
            print(f"{row['name']}: {text}")
    terminal.print()
