"""Completion of node names in shells."""

from __future__ import annotations

import os
from pathlib import Path

import click

from pgm.errors import PgmError

_MOST_NAMES = 200  # shown at once; more letters find the others


def node_names(_: click.Context, __: click.Parameter, incomplete: str) -> list[str]:
    """Return the names of nodes that begin like this, from the topology file on the command line.

    A file that is missing or wrong has no names, because a shell shows no errors here.
    """
    from pgm.topology.check import load_checked  # the shell runs this at each Tab, often for other options
    from pgm.topology.plan import plan_all

    # click parses no argument before an option that still lacks its value, so the file is taken from the words.
    file = next((word for word in os.environ.get("COMP_WORDS", "").split() if Path(word).is_file()), "")
    try:
        names = plan_all(load_checked(Path(file)))
    except (OSError, PgmError):
        return []
    return [name for name in names if name.startswith(incomplete)][:_MOST_NAMES]
