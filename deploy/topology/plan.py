"""`pgm plan`: addresses and timers of every node, with their reasons."""

from __future__ import annotations

from pathlib import Path

import click

from deploy.terminal.output import command, print_json
from pgm.topology.check import load_checked
from pgm.topology.describe import plan_json, plan_lines, topology_json, topology_lines
from pgm.topology.plan import plan_node


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--node", help="Only this node, with every parameter that it reads and is not the default.")
@command
def plan(file: Path, node: str | None, as_json: bool) -> None:
    """Print the tree of a topology FILE: segments, nodes, parents, and why each timer is what it is.

    \b
    pgm plan tree.toml
    pgm plan tree.toml --node desk-7
    """
    topology = load_checked(file)
    if node is not None:
        one = plan_node(topology, node)
        if as_json:
            print_json(plan_json(one))
        else:
            print("\n".join(plan_lines(one)))
    elif as_json:
        print_json(topology_json(topology))
    else:
        print("\n".join(topology_lines(topology)))
