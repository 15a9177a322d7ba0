"""`pgm ctl`: settings of nodes that run, read and changed from outside."""

from __future__ import annotations

import fnmatch
from pathlib import Path
from typing import Any

import click

from deploy.node.runtime_folders import folder_of, is_file, sockets_in
from deploy.terminal.output import command, print_json
from deploy.terminal.tables import TableColumn, console, table
from pgm.errors import ProcessError, UsageError
from pgm.net.control.control_socket import Request, ask_control
from pgm.topology.check import load_checked

_SOCKETS = "*.ctl"
_COLUMNS = (TableColumn("setting"), TableColumn("segment", 1), TableColumn("in force"), TableColumn("at the start", 2))


def sockets_of(where: str) -> dict[str, Path]:
    """The control sockets of a tree, by node: of a file, or of a name under which nodes run. Raises `TopologyError`, `ProcessError`."""
    name = load_checked(Path(where)).name if is_file(where) else where
    found = {path.stem: path for path in sockets_in(folder_of(name, _SOCKETS), _SOCKETS)}
    if found:
        return found
    raise ProcessError(
        f"no node of {where} runs on this machine as this user",
        remedy="start one with: pgm run FILE --node NAME; its sockets lie under $PGM_RUNTIME_DIR, $XDG_RUNTIME_DIR/pgm or /tmp/pgm-UID",
    )


def request_of(action: str, words: tuple[str, ...], stream: str | None, segment: str | None) -> Request:
    """What a node is asked, of what the command line says. Raises `UsageError`."""
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
            raise UsageError("say what to set and to which value", remedy="as in: set rate=20Mbit/s, or set loss=off")
        request["settings"] = {name: value for name, _, value in pairs}
    else:
        if len(words) != 1:
            raise UsageError(
                "say whom to release", remedy="as in: release 10.0.2.7; pgm status --detail shows who is crying"
            )
        request["child"] = words[0]
    return request


@click.command()
@click.argument("where", metavar="TOPOLOGY|FILE")
@click.argument("action", type=click.Choice(["get", "set", "release"]), default="get")
@click.argument("words", nargs=-1, metavar="[WORD]...")
@click.option(
    "--node", "nodes", multiple=True, help="This node, or all that match, as in 'desk-*'; may be given several times."
)
@click.option("--stream", help="Only if the process sends, or receives, this stream.")
@click.option("--segment", help="set: injected losses of this segment; without it of all that have some.")
@command
def ctl(
    where: str,
    action: str,
    words: tuple[str, ...],
    nodes: tuple[str, ...],
    stream: str | None,
    segment: str | None,
    as_json: bool,
) -> None:
    """Change settings of nodes that run on this machine, and print those in force.

    \b
    pgm ctl tree.toml                                       # of all nodes
    pgm ctl tree.toml --node exchange set rate=20Mbit/s
    pgm ctl tree.toml --node exchange set rate=start        # as in the file
    pgm ctl tree.toml --node 'desk-*' set loss=off
    pgm ctl tree.toml --node desk-7 set loss=2% burst_loss=1% burst_length=8
    pgm ctl tree.toml --node floor-2-repairer release 10.0.2.7
    pgm ctl tree.toml --node exchange get rate txw_secs
    pgm ctl demo                                            # of a demo that runs

    A source's rate can be changed up to that of the file, and the losses that a node injects on purpose. `release`
    gives a child that asked for too much its normal budget back. Everything else is fixed at the start: `get` with a
    parameter's name says its value and why. A change is said on the node's own output and counted. Nodes are found as
    by `pgm status`. With --json there is one object per node and line. docs/guide/operations.md has more.

    Exits with 0 if every node did it, with 1 if one does not answer, with 2 if one refuses.
    """
    request = request_of(action, words, stream, segment)
    if action != "get" and not nodes:
        raise UsageError("say which node's settings to change", remedy="--node NAME, or --node '*' for all that run")
    silent = []
    for name, path in _chosen(where, sockets_of(where), nodes).items():
        try:
            answer = ask_control(path, request)
        except ProcessError:
            silent.append(name)
            continue
        except UsageError as error:
            raise UsageError(f"{name}: {error.message}", remedy=error.remedy) from None
        if as_json:
            print_json(answer)
        else:
            _print(answer)
    if silent:
        raise ProcessError(
            f"no answer from {', '.join(silent)}",
            remedy=f"see whether it runs: pgm status {where}; what was killed leaves its socket, which goes when it is started anew",
        )


def _chosen(where: str, sockets: dict[str, Path], nodes: tuple[str, ...]) -> dict[str, Path]:
    if not nodes:
        return sockets
    found: dict[str, Path] = {}
    for pattern in nodes:
        names = fnmatch.filter(sockets, pattern.replace("/", "_"))
        if not names:
            running = ", ".join(list(sockets)[:12])
            raise ProcessError(f"no node {pattern} of {where} runs on this machine", remedy=f"these run: {running}")
        found |= {name: sockets[name] for name in names}
    return found


def _print(answer: dict[str, Any]) -> None:
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
