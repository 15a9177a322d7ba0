"""`pgm top`: a live screen of the nodes that run on this machine."""

from __future__ import annotations

import os
import sys

import click

from deploy.monitor.extra import need
from deploy.monitor.nodes import NodeWatch
from deploy.terminal.output import command, print_json
from pgm.errors import ProcessError, UsageError


@click.command()
@click.argument("topologies", metavar="[TOPOLOGY]...", nargs=-1)
@command
def top(topologies: tuple[str, ...], as_json: bool) -> None:
    """Watch the nodes that run on this machine, as a live screen: who sends, who asks, who repairs, who loses.

    TOPOLOGY is a file, whose nodes are then missed when they do not run, or the name of a topology that runs; without
    any, all that run as this user are shown. Nodes that end stay on the screen as gone for ten minutes.

    \b
    pgm top
    pgm top tree.toml
    pgm top --json | jq .node

    Keys: left and right choose the column to sort by, r turns it round, t gives the order of the tree again; enter
    shows one node with its streams, children, rates and counters, and the command to see the messages themselves;
    space holds the picture; q ends. docs/guide/monitoring.md explains the columns. With --json nothing is drawn: there is one
    object per running node and line, as `pgm status FILE --json` gives it, once. It needs pip install
    'pgm-repair-network[monitor]' and a terminal; elsewhere there is `pgm status FILE --watch`.
    """
    nodes = NodeWatch(topologies)
    if as_json:
        snapshots = nodes.look().snapshots
        if not snapshots:
            raise ProcessError(
                "no node runs on this machine as this user",
                remedy="start one: pgm run FILE --node NAME, or pgm up FILE",
            )
        for snapshot in snapshots:
            print_json(snapshot)
        return
    if (
        not all(one and one.isatty() for one in (sys.stdin, sys.stdout, sys.stderr))
        or os.environ.get("TERM", "dumb") == "dumb"
    ):
        raise UsageError("pgm top draws on a terminal, and this is none", remedy="use: pgm status FILE --watch")
    need("pgm top", "textual")
    from deploy.monitor.top_screen import TopApp

    TopApp(nodes).run()
