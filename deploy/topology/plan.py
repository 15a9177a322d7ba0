"""The command `pgm plan`: addresses and timers of every node, with the reasons for the timers."""

from __future__ import annotations

from pathlib import Path

import click

from deploy.terminal.completion import node_names
from deploy.terminal.options import topology_file
from deploy.terminal.output import command, print_json
from pgm.topology.check import load_checked
from pgm.topology.describe import plan_json, plan_lines, topology_json, topology_lines
from pgm.topology.plan import plan_node


@click.command()
@topology_file
@click.option(
    "--node",
    shell_complete=node_names,
    help="Print only this node, with every parameter that its role uses and that differs from the default.",
)
@command
def plan(file: Path, node: str | None, as_json: bool) -> None:
    """Print the tree of a topology FILE: segments, nodes, parents, and timers with their reasons.

    \b
    pgm plan tree.toml
    pgm plan tree.toml --node desk-7
    """
    topology = load_checked(file)
    if node is not None:
        node_plan = plan_node(topology, node)
        if as_json:
            print_json(plan_json(node_plan))
        else:
            print("\n".join(plan_lines(node_plan)))
    elif as_json:
        print_json(topology_json(topology))
    else:
        print("\n".join(topology_lines(topology)))
