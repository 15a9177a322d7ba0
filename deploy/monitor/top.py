"""`pgm top`: live screen of the nodes that run on this machine."""

from __future__ import annotations

import os
import sys

import click

from deploy.monitor.extra import need
from deploy.terminal.fleet_options import FleetAccess, fleet_options, one_file
from deploy.terminal.output import command, print_json
from pgm.errors import ProcessError, UsageError
from pgm.fleet.nodes import NodeWatch, Watch


@click.command()
@click.argument("topologies", metavar="[TOPOLOGY]...", nargs=-1)
@command
@fleet_options()
def top(topologies: tuple[str, ...], as_json: bool, fleet: FleetAccess | None) -> None:
    """Watch the nodes of this machine, or of all hosts, on a live screen: packets, NAKs, repairs and losses.

    TOPOLOGY is a topology file, or the name of a running topology. Nodes of a file are shown even if they do not run.
    Without any TOPOLOGY, all nodes of this user are shown. Nodes that end stay on the screen as gone for ten minutes.

    \b
    pgm top
    pgm top tree.toml
    pgm top tree.toml --fleet               # of all hosts that run pgm agent
    pgm top --json | jq .node

    Keys: left and right choose the column to sort by, r reverses the order, t returns to the order of the tree. Enter
    shows one node with its streams, children, rates and counters, and the command to see its messages. Space pauses the
    screen, and q ends the command. docs/guide/monitoring.md explains the columns. With --json the command prints one object a
    line for each running node, as `pgm status FILE --json` does, and ends. The screen needs a terminal, and
    pip install 'pgm-repair-network[monitor]'. Without a terminal use `pgm status FILE --watch`.
    """
    nodes: Watch = NodeWatch(topologies) if fleet is None else fleet.watch(one_file(topologies))
    if as_json:
        snapshots = nodes.look().snapshots
        if not snapshots:
            raise ProcessError(
                "no node runs on this machine as this user" if fleet is None else "no node of any host answers",
                remedy="start one: pgm run FILE --node NAME, or pgm up FILE",
            )
        for snapshot in snapshots:
            print_json(snapshot)
        return
    if (
        not all(stream and stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr))
        or os.environ.get("TERM", "dumb") == "dumb"
    ):
        raise UsageError("pgm top needs a terminal", remedy="use: pgm status FILE --watch")
    need("pgm top", "textual")
    from deploy.monitor.top_screen import TopApp

    TopApp(nodes).run()
