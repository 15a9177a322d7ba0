"""The command `pgm status`: the counters of the running nodes of a topology."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from deploy.status.beside import print_comparisons
from deploy.status.detail import print_details
from deploy.status.fleet import only, print_fleet, problems_of
from deploy.status.peers import PeerNames
from deploy.terminal.completion import node_names
from deploy.terminal.exit_codes import EXIT_FAILED
from deploy.terminal.fleet_options import FleetAccess, fleet_options
from deploy.terminal.options import predicted_file
from deploy.terminal.output import command, print_json, warn
from deploy.terminal.tables import TableColumn, console, table
from pgm.errors import ProcessError, UsageError
from pgm.fleet.runtime_folders import folder_of, is_file, sockets_in
from pgm.net.control.status_socket import ask_status, status_path
from pgm.prediction.beside import Comparison, of_status, read_prediction
from pgm.topology.check import load_checked
from pgm.topology.plan import plan_all, plan_node
from pgm.topology.problems import joined

if TYPE_CHECKING:
    from pgm.fleet.watch import FleetWatch

_SOCKETS = "*.sock"

# Counters shown for each role, with a rank. In a narrow terminal the highest rank is left out first; rank 0 always stays.
# fmt: off
_COUNTERS = {
    "source": {"odata_packets": 0, "rdata_packets": 0, "nak_sqns_in": 0, "rate_cuts": 2, "ncf_packets": 3, "spm_packets": 4},
    "aggregator": {"odata_packets": 0, "rdata_forwarded": 0, "nak_sqns_in": 0, "nak_sqns": 0, "ncf_packets": 3, "spm_packets": 4, "conflict_sqns": 7},
    "repairer": {"received_packets": 0, "rdata_packets": 0, "nak_sqns_in": 0, "nak_sqns": 0, "ncf_packets": 3, "cache_misses": 2, "recorder_lost": 5, "conflict_sqns": 7},
    "receiver": {"delivered_packets": 0, "lost_sqns": 0, "repaired_sqns": 0, "repaired_locally": 2, "nak_sqns": 3, "duplicate_packets": 4, "recorder_lost": 5, "conflict_sqns": 7},
}
# fmt: on
_COLUMNS = (TableColumn("missing now"), TableColumn("memory", 5), TableColumn("up", 6))


def gather(where: str, nodes: tuple[str, ...]) -> tuple[list[dict[str, Any]], list[str], list[str]]:
    """Return the snapshots of answering nodes, and the names of stopped and hanging ones. Raises `TopologyError`."""
    tree, names = _requested_nodes(where, nodes)
    folder = folder_of(tree, _SOCKETS)
    if not nodes:  # receivers of a pattern may be more than its count, and may have any number
        known = {status_path(tree, name).name for name in names}
        names += [path.stem for path in sockets_in(folder, _SOCKETS) if path.name not in known]
    rows: list[dict[str, Any]] = []
    silent: list[str] = []
    stuck: list[str] = []
    for name in names:
        try:
            rows.append(ask_status(folder / status_path(tree, name).name))
        except ProcessError as error:
            (stuck if isinstance(error.__cause__, TimeoutError) else silent).append(name)
    return rows, silent, stuck


def _requested_nodes(where: str, nodes: tuple[str, ...]) -> tuple[str, list[str]]:
    """Return the name of the tree and the names of its nodes: all nodes of a file, but only `nodes` for a tree's name."""
    if not is_file(where):
        return where, list(nodes)
    topology = load_checked(Path(where))
    return topology.name, [plan_node(topology, name).name for name in nodes] or list(plan_all(topology))


@click.command()
@click.argument("where", metavar="TOPOLOGY|FILE")
@click.option("--node", "nodes", multiple=True, shell_complete=node_names, help="Only this node; may be repeated.")
@click.option(
    "--detail",
    is_flag=True,
    help="Show the whole snapshot: sessions, lines, children, rates with peaks, every counter.",
)
@click.option("--watch", is_flag=True, help="Show the status again every second until Ctrl-C.")
@predicted_file
@command
@fleet_options()
def status(
    where: str,
    nodes: tuple[str, ...],
    detail: bool,
    watch: bool,
    predicted: Path | None,
    as_json: bool,
    fleet: FleetAccess | None,
) -> None:
    """Show the counters of the running nodes of a topology, given by FILE or name, on this machine or on all hosts.

    \b
    pgm status tree.toml --watch
    pgm status tree.toml --node desk-7 --detail
    pgm status tree.toml --node desk-7 --json | jq .counters
    pgm status demo                         # a running tree, by name
    pgm status tree.toml --predicted plan.json  # of pgm plan --predict --json
    pgm status tree.toml --fleet            # of all hosts that run pgm agent

    The command finds a node by its status socket, under $PGM_RUNTIME_DIR, $XDG_RUNTIME_DIR/pgm or /tmp/pgm-UID. Run
    the command as the user of the node, or name that user in $PGM_RUNTIME_USER. The counters are described in
    docs/reference/counters.md. With --json there is one object per node and line, with every counter, session and segment. Exits
    with 1 if no node answers.

    With --predicted the repairs and NAKs of each node are shown beside the prediction, per packet. What differs by more than a
    third is marked. With --json each object has them as "predicted".

    With --fleet the command asks the agents of all hosts, and also tells hosts that do not answer, nodes that do not run,
    and hosts with another topology file. With --json there is one object. Exits with 1 if a host or a node is missing.
    docs/guide/monitoring.md explains fleets.
    """
    prediction = None if predicted is None else read_prediction(predicted)
    if fleet is not None:
        if prediction is not None:
            raise UsageError("--predicted compares the nodes of this machine only", remedy="leave out --fleet")
        _fleet_status(fleet.watch(where), nodes, detail=detail, watch=watch, as_json=as_json)
        return
    if not watch:
        rows, silent, stuck = gather(where, nodes)
        if not rows:
            raise _no_answer(where, silent, stuck)
        _show(_with_predicted(rows, prediction), names_of(where, rows), as_json, detail=detail, clear=False)
        _warn(silent if nodes else [], stuck)
        return
    try:
        while True:
            rows, silent, stuck = gather(where, nodes)
            _show(_with_predicted(rows, prediction), names_of(where, rows), as_json, detail=detail, clear=True)
            _warn(silent if nodes or not rows else [], stuck)
            time.sleep(1)
    except KeyboardInterrupt:  # the normal end of --watch
        return


def _fleet_status(fleet: FleetWatch, nodes: tuple[str, ...], *, detail: bool, watch: bool, as_json: bool) -> None:
    while True:
        try:
            view = only(fleet.look(), nodes)
            if as_json:
                print_json(view.row())
            elif detail:
                print_details(view.snapshots, PeerNames.of_nodes(view.nodes, fleet.name), clear=watch)
            else:
                names = PeerNames.of_nodes(view.nodes, fleet.name)
                print_fleet(view, partial(print_rows, names=names, clear=False), clear=watch)
            if not watch:
                break
            time.sleep(1)
        except KeyboardInterrupt:  # the normal end of --watch
            return
    if problems_of(view):
        sys.exit(EXIT_FAILED)


def names_of(where: str, rows: list[dict[str, Any]]) -> PeerNames:
    """Return the names of a tree's nodes by address: of nodes that answer, and of all nodes of a file."""
    plans = plan_all(load_checked(Path(where))).values() if is_file(where) else ()
    return PeerNames.of_status(rows, plans)


def _show(rows: list[dict[str, Any]], names: PeerNames, as_json: bool, *, detail: bool, clear: bool) -> None:
    if as_json:
        for row in rows:
            print_json(row)
    elif detail:
        print_details(rows, names, clear=clear)
    else:
        print_rows(rows, names=names, clear=clear)
    if not as_json and any("predicted" in row for row in rows):
        print_comparisons([Comparison(**one) for row in rows for one in row["predicted"]])


def _with_predicted(rows: list[dict[str, Any]], prediction: dict[str, Any] | None) -> list[dict[str, Any]]:
    """Return the rows with their comparisons as `predicted`; the rows as they are without a prediction."""
    if prediction is None:
        return rows
    return [{**row, "predicted": [one.as_json() for one in of_status(prediction, [row])]} for row in rows]


def _warn(silent: list[str], stuck: list[str]) -> None:
    if silent:
        warn(f"not running on this machine: {joined(silent)}")
    if stuck:
        warn(f"running, but not answering: {joined(stuck)}")


def _no_answer(where: str, names: list[str], stuck: list[str]) -> ProcessError:
    if stuck:
        return ProcessError(
            f"running, but not answering: {joined(stuck)}",
            remedy="check for a stopped process or an overloaded machine; try again, or restart the node",
        )
    if not is_file(where):
        subject = f"no node {joined(names)}" if names else "no node"
        return ProcessError(
            f"{subject} of a tree called {where!r} runs on this machine as this user",
            remedy="give the topology file, or start the tree: pgm up FILE; pgm top shows all running nodes",
        )
    return ProcessError(
        f"none of these nodes runs on this machine as this user: {joined(names)}",
        remedy=f"start one with: pgm run {where} --node {names[0]}; or all: pgm up {where}",
    )


def print_rows(rows: list[dict[str, Any]], *, names: PeerNames, clear: bool) -> None:
    """Print the counters of nodes, one table for each role. Peers have their `names`."""
    terminal = console()
    if clear:
        terminal.clear()
    for role, counters in _COUNTERS.items():
        chosen = [row for row in rows if row["role"] == role]
        if not chosen:
            continue
        headings = (TableColumn(key.replace("_", " "), rank) for key, rank in counters.items())
        extra = [(TableColumn(key, 1), cell) for key, cell in _EXTRA.items() if any(map(cell, chosen))]
        columns = (
            TableColumn("node"),
            TableColumn("sessions", 1),
            *(column for column, _ in extra),
            *headings,
            *_COLUMNS,
        )
        cells = [
            [row["node"], _sessions(row), *(names.in_text(cell(row)) for _, cell in extra), *_numbers(row, counters)]
            for row in chosen
        ]
        terminal.print(table(f"{role}s", columns, cells, terminal.width))
        terminal.print()


def _sessions(row: dict[str, Any]) -> str:
    first, *others = [f"{session['state']} to {session['lead']:,}" for session in row["sessions"]] or ["none"]
    return f"{first} and {len(others)} more" if others else first


def _children(row: dict[str, Any]) -> str:
    """Return the number of children that answer polls on each segment below, the largest count of any session."""
    counts: dict[str, int] = {}
    for session in row["sessions"]:
        for segment, count in session["children"].items():
            counts[segment] = max(count, counts.get(segment, 0))
    return ", ".join(f"{count:,} on {segment}" for segment, count in counts.items())


def _acked(row: dict[str, Any]) -> str:
    """Return the sqn below which all members have everything, and the slowest member, of the first acknowledged stream."""
    for session in row["sessions"]:
        acked = session["acked"]
        if acked is not None:
            parts = [f"{acked['stable']:,} by {acked['members']:,}"]
            parts += [f"{acked['held_up_by']} last"] if acked["held_up_by"] else []
            parts += [f"{acked['lag']:,} behind"] if acked.get("lag") else []
            parts += [f"{acked['untaken']:,} wait for the application"] if acked.get("untaken") else []
            return ", ".join(parts)
    return ""


def _lines(row: dict[str, Any]) -> str:
    """Return the loss and the delay of each line, for the first session with several lines."""
    for session in row["sessions"]:
        if session["lines"]:
            return "; ".join(_line(line) for line in session["lines"])
    return ""


def _line(line: dict[str, Any]) -> str:
    passed = line["packets"] + line["lost_packets"]
    lost = line["lost_packets"] / passed if passed else 0.0
    delay = "down" if line["is_down"] else f"{line['behind_ns'] / 1e6:.1f} ms behind"
    return f"{line['segment']} lost {lost:.1%}, {delay}"


_EXTRA = {"children": _children, "acknowledged": _acked, "lines": _lines}  # columns if a row has them


def _numbers(row: dict[str, Any], counters: Iterable[str]) -> list[str]:
    missing = sum(session["missing_sqns"] for session in row["sessions"])
    return [
        *(f"{row['counters'].get(key, 0):,}" for key in counters),
        f"{missing:,}",
        f"{row['rss_bytes'] / 1e6:.0f} MB",
        f"{row['uptime_s']:.0f} s",
    ]
